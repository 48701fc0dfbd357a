"""Evaluation of finished releases by fresh attackers.

Apart from `evaluator` because it loads scikit-learn, which an exact evaluation does not need and a
game does not wait for.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence

import numpy as np
import torch

from privnets.adversarial.attackers.neural import FittedUtility, fit_utility
from privnets.adversarial.attackers.panel import (
    PanelResult,
    build_panel,
    discard_progress,
    score_releases,
)
from privnets.adversarial.evaluation import estimates
from privnets.adversarial.evaluation.baselines import Baseline, Baselines
from privnets.adversarial.evaluation.evaluator import (
    ADVERSARY,
    CERTAIN_ERRORS,
    ReplicateDraft,
    add_accuracy,
    add_adversary,
    finish_replicate,
    group_of,
    normalized_error,
)
from privnets.adversarial.problem import Problem
from privnets.adversarial.records import (
    MISSING,
    PARTS,
    AttackerGuesses,
    Release,
    class_frequencies,
    known_rows,
)
from privnets.points import Replicate

_STRONGEST = "privacy/attacker_balanced_accuracy"
_RAW = "baseline/attacker_balanced_accuracy"
_NOT_CONVERGED = "flag/attacker_not_converged"


def evaluate_by_attackers(
    problem: Problem, releases: Sequence[Release]
) -> Generator[Replicate | None, None, None]:
    """Evaluates releases of one structure by fresh attackers.

    Yields:
        One replicate per release, in order; None wherever the work may pause.
    """
    configs = [release.config for release in releases]
    baselines = Baselines(problem, configs, [release.original for release in releases])
    yield from discard_progress(baselines.compute())
    evidence = [release.released for release in releases]
    refitted = yield from discard_progress(
        fit_utility(problem, configs, evidence, "refitted utility")
    )
    results = score_releases(
        evidence,
        build_panel(problem, configs[0]),
        configs,
        [fitted.likeliest_labels for fitted in refitted],
    )
    references = yield from problem.reference_metrics(configs)
    drafts = [ReplicateDraft(problem, *pair) for pair in zip(releases, references, strict=True)]
    pending = enumerate(zip(drafts, refitted, strict=True))
    for result in results:
        if result is None:
            yield None
        else:
            place, (draft, utility) = next(pending)
            baseline = yield from discard_progress(baselines.get(place))
            yield _attacked_replicate(draft, baseline, utility, result)


def _attacked_replicate(
    draft: ReplicateDraft, baseline: Baseline, refitted: FittedUtility, result: PanelResult
) -> Replicate:
    draft.metrics.update(result.metrics)
    draft.errors.update(result.standard_errors)
    draft.notes.update(result.notes)
    draft.curves.update(result.curves)
    draft.metrics[_RAW], draft.errors[_RAW] = baseline.attacker
    if math.isnan(baseline.attacker[0]):
        draft.notes[_RAW] = "attackers of the raw records could not be scored"
    add_adversary(draft)
    _add_control_flags(draft)
    _add_attacker_details(draft, "privacy", result.guesses)
    _add_attacker_details(draft, "baseline", baseline.guesses)
    _add_normalized_error(draft)
    if not draft.problem.spec.utility_classes:
        return finish_replicate(draft)
    add_accuracy(draft)
    _add_utility(draft, baseline, refitted)
    return finish_replicate(draft, ("privacy/leakage", "utility/censored"))


def _add_control_flags(draft: ReplicateDraft) -> None:
    """Flags attackers that an adversary exceeds, or that learn nothing from raw records."""
    values, errors = draft.metrics, draft.errors
    ahead = values[ADVERSARY] - values[_STRONGEST]
    error = math.hypot(errors[ADVERSARY], errors.get(_STRONGEST, math.nan))
    reason = f"the in-loop adversary is better than the strongest attacker by {ahead:.4f}"
    _add_flag(draft, "flag/attacker_below_adversary", ahead - CERTAIN_ERRORS * error, reason)
    above = values[_RAW] - values["floor/prior"]
    reason = f"the strongest attacker of raw records reaches {values[_RAW]:.4f}, as by guessing"
    excess = CERTAIN_ERRORS * errors[_RAW] - above
    if split := _mislabelled_split(draft.release):
        excess, reason = 1.0, f"secrets of the {split} split differ from those of the raw records"
    _add_flag(draft, "flag/attacker_fails_on_raw_data", excess, reason)


def _mislabelled_split(release: Release) -> str | None:
    """First split whose attackers have other secrets than those of raw records; None if equal.

    The success on raw records then says nothing about these attackers, however private the release.
    """
    splits = zip(PARTS, release.original.splits, release.released.splits, strict=True)
    return next((p for p, raw, ours in splits if not torch.equal(raw.secret, ours.secret)), None)


def _add_flag(draft: ReplicateDraft, key: str, excess: float, reason: str) -> None:
    """Raises a flag where `excess` is positive; it is undefined where `excess` is."""
    draft.metrics[key] = math.nan if math.isnan(excess) else float(excess > 0)
    if math.isnan(excess):
        draft.notes[key] = "attackers could not be scored"
    elif excess > 0:
        draft.notes[key] = reason


def _add_attacker_details(
    draft: ReplicateDraft, kind: str, guesses: AttackerGuesses | None
) -> None:
    """Adds the problem's measures of an attacker's guesses below `privacy/` or `baseline/`."""
    if guesses is None:
        keys = [k for k in draft.problem.spec.extra_metrics if k.startswith(f"{kind}/attacker_")]
        draft.notes |= dict.fromkeys(keys, "attackers could not be scored")
        return
    rows, classes = known_rows(draft.release.released.test), draft.problem.spec.secret_classes
    prior = class_frequencies(known_rows(draft.release.original.attack).secret, classes)
    for name, estimate in draft.problem.attacker_details(guesses, rows, prior).items():
        draft.add(f"{kind}/{name}", estimate)


def _add_normalized_error(draft: ReplicateDraft) -> None:
    key, problem, release = "utility/normalized_error", draft.problem, draft.release
    if not problem.spec.copies_input:
        draft.notes[key] = "a release of this problem is not meant to resemble its record"
        return
    raw, test = release.original.test, release.released.test
    draft.add(key, normalized_error(problem, release.config, raw, test))


def _add_utility(draft: ReplicateDraft, baseline: Baseline, refitted: FittedUtility) -> None:
    """Accuracies of fresh utility networks, and the utility information that the release lost."""
    test = draft.release.released.test
    assert test.utility is not None
    label, group = test.utility.cpu().numpy(), group_of(test)
    known = (label != MISSING).astype(float)
    for key, fitted in (
        ("utility/refitted_accuracy", refitted),
        ("baseline/utility_accuracy", baseline.utility),
    ):
        right = (fitted.log_p.argmax(-1) == label).astype(float)
        draft.add(key, estimates.ratio(right, known, group))
        if not fitted.converged:
            reasons = [draft.notes.get(_NOT_CONVERGED, ""), f"steps ran out for {key}"]
            draft.metrics[_NOT_CONVERGED] = 1.0
            draft.notes[_NOT_CONVERGED] = "; ".join(filter(None, reasons))
    # The cross-entropy of any network bounds the conditional entropy from above, up to chance.
    rows = np.arange(len(label))
    lost = baseline.utility.log_p[rows, label] - refitted.log_p[rows, label]
    draft.add("utility/censored", estimates.ratio(lost * known, known, group))
