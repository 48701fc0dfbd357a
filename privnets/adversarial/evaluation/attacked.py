"""Evaluation of finished releases by fresh attackers.

Apart from `evaluator` because it loads scikit-learn, which an exact evaluation does not need and a
game does not wait for.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import replace
from operator import attrgetter

import numpy as np
import torch
from numpy.typing import NDArray

from privnets.adversarial.attackers.neural import FittedUtility, fit_utility
from privnets.adversarial.attackers.panel import (
    PanelResult,
    build_panel,
    could_overtake,
    discard_progress,
    score_releases,
)
from privnets.adversarial.evaluation.baselines import Baseline, Baselines
from privnets.adversarial.evaluation.evaluator import (
    ADVERSARY,
    CERTAIN_ERRORS,
    ReplicateDraft,
    add_accuracy,
    add_adversary,
    add_bound,
    failed_replicate,
    finish_replicate,
    group_of,
    normalized_error,
)
from privnets.adversarial.evidence import PARTS, AttackerGuesses, Release
from privnets.adversarial.metrics import RAW_KEY, under_labels
from privnets.adversarial.objectives import OBJECTIVES
from privnets.adversarial.problem import Problem, class_frequencies
from privnets.adversarial.records import MISSING, known_rows
from privnets.config import floor_key
from privnets.membership.utilities import TestOutputs
from privnets.points import Replicate
from privnets.references.scorers import NO_FLOOR, Answers, ScorerError, score_models
from privnets.statistics import estimates
from privnets.statistics.estimates import Estimate

_STRONGEST = "privacy/attacker_balanced_accuracy"
_NOT_CONVERGED = "flag/attacker_not_converged"
_NO_SCORES = "attackers could not be scored"


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
    raw = {RAW_KEY: baseline.attacker}
    if (rule := draft.problem.other_labels(draft.release.config)) is not None:
        raw[under_labels(RAW_KEY, rule)] = baseline.other_labels
    for key, estimate in raw.items():
        draft.metrics[key], draft.errors[key] = estimate
        if math.isnan(estimate[0]):
            draft.notes[key] = "attackers of the raw records could not be scored"
    add_adversary(draft)
    _add_control_flags(draft)
    _add_measures_of_guesses(draft, result.guesses, baseline.guesses)
    key, problem, release = "utility/normalized_error", draft.problem, draft.release
    if problem.spec.copies_input:
        views = release.original.test, release.released.test
        draft.add(key, normalized_error(problem, release.config, *views))
    else:
        draft.notes[key] = "a release of this problem is not meant to resemble its record"
    if not problem.spec.utility_classes:
        return finish_replicate(draft)
    add_accuracy(draft)
    censored = _add_utility(draft, baseline, refitted)
    _add_refitted(draft, refitted)
    try:
        _add_own_utilities(draft, refitted)
    except ScorerError as error:
        return failed_replicate(problem, release.config, str(error))
    _add_bound(draft, result, censored)
    return finish_replicate(draft)


def _add_control_flags(draft: ReplicateDraft) -> None:
    """Flags attackers that an adversary exceeds, or that learn nothing from raw records.

    An in-loop adversary at chance beside fresh attackers that still read the secret is noted. The
    releaser then follows an adversary that no longer guides it: more weight on privacy may hide
    less.
    """
    values, errors = draft.metrics, draft.errors
    ahead = values[ADVERSARY] - values[_STRONGEST]
    error = math.hypot(errors[ADVERSARY], errors.get(_STRONGEST, math.nan))
    reason = f"the in-loop adversary is better than the strongest attacker by {ahead:.4f}"
    _add_flag(draft, "flag/attacker_below_adversary", ahead - CERTAIN_ERRORS * error, reason)
    above = values[RAW_KEY] - values["floor/prior"]
    reason = f"the strongest attacker of raw records reaches {values[RAW_KEY]:.4f}, as by guessing"
    excess = CERTAIN_ERRORS * errors[RAW_KEY] - above
    release = draft.release
    splits = zip(PARTS, release.original.splits, release.released.splits, strict=True)
    if wrong := [p for p, raw, ours in splits if not torch.equal(raw.secret, ours.secret)]:
        # The success on raw records says nothing then, however private the release.
        differ = "differ from those of the raw records"
        excess, reason = 1.0, f"secrets of the {wrong[0]} split {differ}"
    _add_flag(draft, "flag/attacker_fails_on_raw_data", excess, reason)
    above = values[_STRONGEST] - values["floor/attainable"]
    error = math.hypot(errors.get(_STRONGEST, math.nan), errors.get("floor/attainable", math.nan))
    guess = values[ADVERSARY] - values["floor/prior"]
    if guess < CERTAIN_ERRORS * errors[ADVERSARY] and above > CERTAIN_ERRORS * error:
        draft.notes[ADVERSARY] = (
            "the in-loop adversary only guesses while fresh attackers are above their floor, so "
            "that more weight on privacy may hide less; give it more adversary_steps or noise_std"
        )


def _add_flag(draft: ReplicateDraft, key: str, excess: float, reason: str) -> None:
    """Raises a flag where `excess` is positive; it is undefined where `excess` is."""
    draft.metrics[key] = math.nan if math.isnan(excess) else float(excess > 0)
    if math.isnan(excess):
        draft.notes[key] = _NO_SCORES
    elif excess > 0:
        draft.notes[key] = reason


def _add_measures_of_guesses(
    draft: ReplicateDraft, released: AttackerGuesses | None, raw: AttackerGuesses | None
) -> None:
    """Adds the problem's and the objective's measures of the strongest attackers' guesses."""
    problem, config = draft.problem, draft.release.config
    rows, seen = known_rows(draft.release.released.test), known_rows(draft.release.original.attack)
    prior = class_frequencies(seen.secret, problem.spec.secret_classes)
    for kind, guesses in (("privacy", released), ("baseline", raw)):
        if guesses is None:
            keys = [k for k in problem.spec.extra_metrics if k.startswith(f"{kind}/attacker_")]
            draft.notes |= dict.fromkeys(keys, _NO_SCORES)
        else:
            for name, estimate in problem.attacker_details(guesses, rows, prior).items():
                draft.add(f"{kind}/{name}", estimate)
    objective = OBJECTIVES.get(config.objective)
    if released is None:
        draft.notes |= dict.fromkeys(objective.metrics, _NO_SCORES)
    else:
        measures = objective.measure(config, released, rows, prior)
        for key in objective.metrics:
            draft.add(key, measures[key])


def _add_utility(draft: ReplicateDraft, baseline: Baseline, refitted: FittedUtility) -> Estimate:
    """Accuracies of fresh utility networks, and the utility information that the release lost.

    Every network's cross-entropy bounds the conditional entropy from above, up to chance. So the
    best network on releases estimates I(U;Q), and the best of all I(U;X), which is at least as
    large: the loss is never negative. Its error is that of the difference to the best on raw
    records.
    """
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

    def score(log_p: NDArray[np.float64]) -> Estimate:
        return estimates.ratio(log_p[np.arange(len(label)), label] * known, known, group)

    on_raw, on_release = score(baseline.utility.log_p), score(refitted.log_p)
    raw, released = [on_raw], [on_release]
    if draft.release.raw_utility is not None:
        for scores, log_p in zip((raw, released), draft.release.raw_utility, strict=True):
            scores.append(score(log_p.double().cpu().numpy()))
    if draft.release.utility is not None:
        released.append(score(draft.release.utility.double().cpu().numpy()))
    value = attrgetter("value")
    seen, kept = max(raw, key=value), max(released, key=value)
    unfinished = [
        key
        for key, fitted, lead in (
            ("utility/refitted_accuracy", refitted, on_release - kept),
            ("baseline/utility_accuracy", baseline.utility, on_raw - max(seen, kept, key=value)),
        )
        if could_overtake(lead, fitted.remaining_gain)
    ]
    if unfinished:
        reason = f"steps ran out before they could overtake: {', '.join(unfinished)}"
        reasons = [draft.notes.get(_NOT_CONVERGED, ""), reason]
        draft.metrics[_NOT_CONVERGED] = 1.0
        draft.notes[_NOT_CONVERGED] = "; ".join(filter(None, reasons))
    lost = replace(seen - kept, value=max(seen.value - kept.value, 0.0))
    draft.add("utility/censored", lost)
    return lost


def _add_bound(draft: ReplicateDraft, result: PanelResult, censored: Estimate) -> None:
    """Adds the bound on leakage and censored utility, and the gap above it.

    Where a record shows both labels, K is measured as leakage is, by the law that attackers learn
    and on the records that score them. So the error of these records cancels in part.
    """
    bound, leaked = draft.problem.dependence_bound(draft.release.config), result.leakage
    if leaked is None:
        add_bound(draft, bound, math.nan, math.nan)
        return
    gap, error = leaked.value - max(bound, 0.0), leaked.error
    if draft.problem.spec.shows_labels and result.label_leakage is not None:
        bound = result.label_leakage.value
        beyond = leaked - result.label_leakage if bound > 0 else leaked
        gap, error = beyond.value, beyond.error
    # The sum of both errors is at least the error of the sum.
    add_bound(draft, bound, gap + censored.value, error + censored.error)


def _add_refitted(draft: ReplicateDraft, refitted: FittedUtility) -> None:
    """Further utilities of the fresh network, and those of a model that knows only the shares."""
    test, attack = draft.release.released.test, draft.release.original.attack
    assert test.utility is not None
    assert attack.utility is not None
    label, log_p = test.utility.cpu(), torch.from_numpy(refitted.log_p).double()[None]
    outputs = TestOutputs(
        label.clamp_min(0).double(), (label != MISSING)[None], log_p.argmax(-1), log_p
    )
    group = group_of(test)
    origin = np.arange(len(label)) if group is None else group
    known = attack.utility.cpu()
    trivial = outputs.of_trivial_model(known[known != MISSING])
    for prefix, judged in (("utility/", outputs), ("floor/utility_", trivial)):
        for name in judged.utilities:
            key, statistic = f"{prefix}refitted_{name}", judged.statistic(name)
            if key not in draft.metrics or key == "utility/refitted_accuracy":
                continue
            if isinstance(statistic, str):
                draft.notes[key] = statistic
                continue
            value, influence = statistic
            estimate = Estimate.of_records(float(value[0]), influence[0].numpy(), origin)
            draft.add(key, estimate)
            if key == "floor/utility_refitted_accuracy":
                draft.add("floor/utility_accuracy", estimate)


def _add_own_utilities(draft: ReplicateDraft, refitted: FittedUtility) -> None:
    """Scores of the fresh network by the user's scorers, and those of the trivial model.

    Raises:
        ScorerError: If a scorer fails.
    """
    if not (metrics := draft.release.config.metrics):
        return
    test, attack = draft.release.released.test, draft.release.original.attack
    assert test.utility is not None
    assert attack.utility is not None
    label, seen = test.utility.cpu().numpy(), attack.utility.cpu().numpy()
    known, group, labels = label != MISSING, group_of(test), draft.problem.utility_labels
    origin = np.arange(len(label)) if group is None else np.unique(group, return_inverse=True)[1]
    p = np.exp(refitted.log_p[known].astype(float))
    answers = Answers(labels[label[known]], labels[p.argmax(-1)], labels, p)
    values, floors = score_models(
        metrics, [(answers, origin[known])], labels[seen[seen != MISSING]]
    )
    for key in values:
        draft.metrics[key], draft.errors[key] = values[key]
        if key in floors:
            draft.metrics[floor_key(key)], draft.errors[floor_key(key)] = floors[key]
        else:
            draft.notes[floor_key(key)] = NO_FLOOR
