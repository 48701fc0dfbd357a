"""Evaluation of finished releases: attackers, utility, bounds and artifacts, as replicates."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.adversarial.attackers.neural import FittedUtility, fit_utility
from privnets.adversarial.attackers.panel import (
    PanelResult,
    build_panel,
    discard_progress,
    score_releases,
)
from privnets.adversarial.attackers.scores import balanced_accuracy
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evaluation import estimates
from privnets.adversarial.evaluation.baselines import Baseline, Baselines
from privnets.adversarial.evaluation.estimates import Estimate
from privnets.adversarial.metrics import BELOW_BOUND, metric_keys
from privnets.adversarial.problem import Problem, Splits
from privnets.adversarial.records import (
    MISSING,
    PARTS,
    AttackerGuesses,
    Evidence,
    Exposure,
    Pool,
    Release,
    class_frequencies,
    known_rows,
    raw_evidence,
    select_exposure,
)
from privnets.adversarial.trained_releaser import RELEASER_FILE, save_releaser
from privnets.adversarial.training.game import Game
from privnets.points import Replicate, ScoredRecords

_CERTAIN_ERRORS = 3.0  # standard errors that chance exceeds at 1 of 750 replicates
_ROUNDING = 1e-9  # nats, of exact informations
_STRONGEST = "privacy/attacker_balanced_accuracy"
_ADVERSARY = "diagnostic/adversary_balanced_accuracy"
_RAW = "baseline/attacker_balanced_accuracy"
_NOT_CONVERGED = "flag/attacker_not_converged"
_PROBED = 64  # records whose second release shows whether releases are random
_NO_RECORDS = np.array([], dtype=np.int64)


def release_records(game: Game, member: int, pool: Pool, splits: Splits) -> Release:
    """Lets one member of a finished game release the records that its evaluation needs."""
    config = game.configs[member]
    if config.evaluation == "exact":  # no attacker trains on the release
        splits = replace(splits, attack=_NO_RECORDS, validation=_NO_RECORDS)
    releaser, exposures = game.record_releaser(member), []
    for part in PARTS:
        records = getattr(splits, part)
        z = releaser.release(records, part) if len(records) else None
        exposures.append(select_exposure(pool, records, z))
    test = exposures[-1]
    is_random = releaser.is_random(splits.attack[:_PROBED]) if len(splits.attack) else False
    redraw = partial(releaser.release, splits.attack)
    original = raw_evidence(pool, splits)
    raw, released = (game.infer_from_raw_data(member, each) for each in (original.test, test))
    return Release(
        config=config,
        original=original,
        released=Evidence(*exposures, is_random=is_random, redraw=redraw if is_random else None),
        parameters=game.parameters(member),
        curves=game.curves(member),
        adversary=game.infer("adversary", member, test),
        utility=None if test.utility is None else game.infer("utility", member, test),
        raw_utility=None if raw is None or released is None else (raw, released),
    )


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
    drafts = [_Draft(problem, *pair) for pair in zip(releases, references, strict=True)]
    pending = enumerate(zip(drafts, refitted, strict=True))
    for result in results:
        if result is None:
            yield None
        else:
            place, (draft, utility) = next(pending)
            baseline = yield from discard_progress(baselines.get(place))
            yield _attacked_replicate(draft, baseline, utility, result)


def evaluate_exactly(problem: Problem, releases: Sequence[Release]) -> Iterator[Replicate | None]:
    """Evaluates releases of one structure by exact information, without any attacker.

    Yields:
        One replicate per release, in order; None wherever the work may pause.
    """
    references = yield from problem.reference_metrics([release.config for release in releases])
    for release, reference in zip(releases, references, strict=True):
        draft = _Draft(problem, release, reference)
        _add_adversary(draft)
        _add_accuracy(draft)
        yield _finish(draft, ("exact/leakage", "exact/censored"))


def normalized_error(
    problem: Problem, config: AdversarialConfig, original: Exposure, released: Exposure
) -> Estimate:
    """Squared error relative to the squared records, in original units (arXiv 2310.18241)."""
    offset, scale = problem.original_units(config)
    error = _record_sums((scale * (released.z - original.z)).double().square(), released)
    power = _record_sums((offset + scale * original.z).double().square(), released)
    return estimates.ratio(error, power, _group(released))


def utility_accuracy(log_p: Tensor, released: Exposure) -> Estimate:
    """Accuracy of the utility network that was trained with the releaser, by its outputs [n, C]."""
    assert released.utility is not None
    right = (log_p.argmax(-1) == released.utility).double().cpu().numpy()
    known = (released.utility != MISSING).double().cpu().numpy()
    return estimates.ratio(right, known, _group(released))


def failed_replicate(problem: Problem, config: AdversarialConfig, reason: str) -> Replicate:
    """A replicate without results, and the reason."""
    metrics = dict.fromkeys(metric_keys(problem, config), math.nan)
    return Replicate(config.seed, metrics, failure=reason, finished_at=time.time())


class _Draft:
    """Metrics of a replicate while its release is evaluated; NaN until they are known."""

    def __init__(self, problem: Problem, release: Release, reference: Mapping[str, float]) -> None:
        self.problem, self.release = problem, release
        undefined = dict.fromkeys(metric_keys(problem, release.config), math.nan)
        self.metrics: dict[str, float] = {**undefined, **reference}
        self.errors: dict[str, float] = {}
        self.notes: dict[str, str] = {}
        self.curves = dict(release.curves)

    def add(self, key: str, estimate: Estimate) -> None:
        self.metrics[key], self.errors[key] = estimate.value, estimate.error


def _attacked_replicate(
    draft: _Draft, baseline: Baseline, refitted: FittedUtility, result: PanelResult
) -> Replicate:
    draft.metrics.update(result.metrics)
    draft.errors.update(result.standard_errors)
    draft.notes.update(result.notes)
    draft.curves.update(result.curves)
    draft.metrics[_RAW], draft.errors[_RAW] = baseline.attacker
    if math.isnan(baseline.attacker[0]):
        draft.notes[_RAW] = "attackers of the raw records could not be scored"
    _add_adversary(draft)
    _add_control_flags(draft)
    _add_attacker_details(draft, "privacy", result.guesses)
    _add_attacker_details(draft, "baseline", baseline.guesses)
    _add_normalized_error(draft)
    if not draft.problem.spec.utility_classes:
        return _finish(draft)
    _add_accuracy(draft)
    _add_utility(draft, baseline, refitted)
    return _finish(draft, ("privacy/leakage", "utility/censored"))


def _finish(draft: _Draft, informations: Sequence[str] = ()) -> Replicate:
    """Adds the problem's own measures, then the bound on the sum of two informations, by key."""
    release, details = draft.release, draft.problem.release_details(draft.release)
    draft.metrics.update(details.metrics)
    draft.errors.update(details.errors)
    draft.notes.update(details.notes)
    if informations:
        _add_bound(draft, informations)
    releaser = save_releaser(draft.problem, release.config, release.parameters)
    return Replicate(
        seed=release.config.seed,
        metrics=draft.metrics,
        standard_errors=draft.errors,
        notes=draft.notes,
        curves=draft.curves,
        artifacts={RELEASER_FILE: releaser, **details.artifacts},
        finished_at=time.time(),
        scored_on=_scored_records(draft),
    )


def _scored_records(draft: _Draft) -> ScoredRecords:
    test, group = draft.release.released.test, _group(draft.release.released.test)
    size = len(test.z) if group is None else len(np.unique(group))
    name, overlap = draft.problem.test_set(draft.release.config) or (None, 1.0)
    return ScoredRecords(name, size, overlap)


def _add_adversary(draft: _Draft) -> None:
    """Balanced accuracy of the game's adversary on test: a diagnostic, not a privacy metric."""
    test, log_p = draft.release.released.test, draft.release.adversary
    rows, guess = known_rows(test), log_p.argmax(-1).view(len(test.secret), -1).cpu().numpy()
    decision = guess[rows.record, rows.step]
    draft.add(_ADVERSARY, balanced_accuracy(decision, rows, log_p.shape[-1]))


def _add_control_flags(draft: _Draft) -> None:
    """Flags attackers that an adversary exceeds, or that learn nothing from raw records."""
    values, errors = draft.metrics, draft.errors
    ahead = values[_ADVERSARY] - values[_STRONGEST]
    error = math.hypot(errors[_ADVERSARY], errors.get(_STRONGEST, math.nan))
    reason = f"the in-loop adversary is better than the strongest attacker by {ahead:.4f}"
    _add_flag(draft, "flag/attacker_below_adversary", ahead - _CERTAIN_ERRORS * error, reason)
    above = values[_RAW] - values["floor/prior"]
    reason = f"the strongest attacker of raw records reaches {values[_RAW]:.4f}, as by guessing"
    excess = _CERTAIN_ERRORS * errors[_RAW] - above
    if split := _mislabelled_split(draft.release):
        excess, reason = 1.0, f"secrets of the {split} split differ from those of the raw records"
    _add_flag(draft, "flag/attacker_fails_on_raw_data", excess, reason)


def _mislabelled_split(release: Release) -> str | None:
    """First split whose attackers have other secrets than those of raw records; None if equal.

    The success on raw records then says nothing about these attackers, however private the release.
    """
    splits = zip(PARTS, release.original.splits, release.released.splits, strict=True)
    return next((p for p, raw, ours in splits if not torch.equal(raw.secret, ours.secret)), None)


def _add_flag(draft: _Draft, key: str, excess: float, reason: str) -> None:
    """Raises a flag where `excess` is positive; it is undefined where `excess` is."""
    draft.metrics[key] = math.nan if math.isnan(excess) else float(excess > 0)
    if math.isnan(excess):
        draft.notes[key] = "attackers could not be scored"
    elif excess > 0:
        draft.notes[key] = reason


def _add_attacker_details(draft: _Draft, kind: str, guesses: AttackerGuesses | None) -> None:
    """Adds the problem's measures of an attacker's guesses below `privacy/` or `baseline/`."""
    if guesses is None:
        keys = [k for k in draft.problem.spec.extra_metrics if k.startswith(f"{kind}/attacker_")]
        draft.notes |= dict.fromkeys(keys, "attackers could not be scored")
        return
    rows, classes = known_rows(draft.release.released.test), draft.problem.spec.secret_classes
    prior = class_frequencies(known_rows(draft.release.original.attack).secret, classes)
    for name, estimate in draft.problem.attacker_details(guesses, rows, prior).items():
        draft.add(f"{kind}/{name}", estimate)


def _add_normalized_error(draft: _Draft) -> None:
    key, problem, release = "utility/normalized_error", draft.problem, draft.release
    if not problem.spec.copies_input:
        draft.notes[key] = "a release of this problem is not meant to resemble its record"
        return
    raw, test = release.original.test, release.released.test
    draft.add(key, normalized_error(problem, release.config, raw, test))


def _add_accuracy(draft: _Draft) -> None:
    assert draft.release.utility is not None
    draft.add(
        "utility/accuracy", utility_accuracy(draft.release.utility, draft.release.released.test)
    )


def _add_utility(draft: _Draft, baseline: Baseline, refitted: FittedUtility) -> None:
    """Accuracies of fresh utility networks, and the utility information that the release lost."""
    test = draft.release.released.test
    assert test.utility is not None
    label, group = test.utility.cpu().numpy(), _group(test)
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


def _add_bound(draft: _Draft, informations: Sequence[str]) -> None:
    """Gap of two informations, nats, above I(S;Q) + I(U;X|Q) >= K (ICLR 2019, Lemma 3.1).

    A gap clearly below 0 proves that attackers or utility networks are too weak.
    """
    test = draft.release.original.test
    assert test.utility is not None
    secret, utility = test.secret.cpu().numpy(), test.utility.cpu().numpy()
    bound = draft.problem.dependence_bound(draft.release.config, secret, utility)
    total = sum(draft.metrics[key] for key in informations)
    # The sum of both errors is at least the error of the sum; exact informations have none.
    gap, error = total - max(bound, 0.0), sum(draft.errors.get(key, 0.0) for key in informations)
    draft.metrics |= {"bound/release": bound, "bound/gap": gap}
    draft.errors["bound/gap"] = error
    if math.isnan(bound):
        keys = ("bound/release", "bound/gap", BELOW_BOUND)
        draft.notes |= dict.fromkeys(keys, "the problem knows no bound")
    elif math.isnan(total):
        draft.notes |= dict.fromkeys(("bound/gap", BELOW_BOUND), "leakage is undefined")
    else:
        is_below = gap < -_CERTAIN_ERRORS * error - _ROUNDING
        draft.metrics[BELOW_BOUND] = float(is_below)
        if is_below:
            draft.notes[BELOW_BOUND] = (
                f"{' and '.join(informations)} are together {-gap:.4f} +- {error:.4f} nats below "
                f"the bound {bound:.4f}, so that at least one is understated"
            )


def _record_sums(values: Tensor, test: Exposure) -> NDArray[np.float64]:
    """Sums over each record's observed numbers, shape [n]."""
    if test.present is not None:
        values = torch.where(test.present[..., None].expand_as(values), values, 0.0)
    sums: NDArray[np.float64] = values.flatten(1).sum(1).cpu().numpy()
    return sums


def _group(test: Exposure) -> NDArray[np.int64] | None:
    return None if test.group is None else test.group.cpu().numpy()
