"""Evaluation of finished releases: utility, bounds and artifacts, as replicates."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.adversarial.attackers.scores import balanced_accuracy
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evidence import PARTS, AttackView, Evidence, Release
from privnets.adversarial.metrics import BELOW_BOUND, metric_keys
from privnets.adversarial.problem import Problem, Splits
from privnets.adversarial.records import MISSING, Pool, known_rows, raw_evidence, select_exposure
from privnets.adversarial.trained_releaser import RELEASER_FILE, save_releaser
from privnets.adversarial.training.batches import RepeatedRelease
from privnets.adversarial.training.game import Game
from privnets.points import Replicate, ScoredRecords
from privnets.statistics import estimates
from privnets.statistics.estimates import Estimate

CERTAIN_ERRORS = 3.0  # standard errors that chance exceeds at 1 of 750 replicates
_ROUNDING = 1e-9  # nats, of exact informations
ADVERSARY = "diagnostic/adversary_balanced_accuracy"
_PROBED = 64  # records whose second release shows whether releases are random
_NO_RECORDS = np.array([], dtype=np.int64)


def release_records(game: Game, member: int, pool: Pool, splits: Splits) -> Release:
    """Lets one member of a finished game release the records that its evaluation needs."""
    config = game.configs[member]
    if config.evaluation == "exact":  # no attacker trains on the release
        splits = replace(splits, attack=_NO_RECORDS, validation=_NO_RECORDS, other_test=None)
    releaser = game.record_releaser(member)
    is_random = releaser.is_random(splits.attack[:_PROBED]) if len(splits.attack) else False

    def expose(records: NDArray[np.int64], part: str) -> AttackView:
        z = releaser.release(records, part) if len(records) else None
        return select_exposure(pool, records, z)

    released = Evidence(
        *(expose(getattr(splits, part), part) for part in PARTS),
        other_test=None if splits.other_test is None else expose(splits.other_test, "other test"),
        is_random=is_random,
        redraw=RepeatedRelease(releaser, splits.attack) if is_random else None,
    )
    original, test = raw_evidence(pool, splits), released.test
    raw_utility = None
    if config.evaluation == "attackers":  # an exact evaluation does not use it
        on_raw, on_release = (
            game.infer_from_raw_data(member, each) for each in (original.test, test)
        )
        raw_utility = None if on_raw is None or on_release is None else (on_raw, on_release)
    return Release(
        config=config,
        original=original,
        released=released,
        parameters=game.parameters(member),
        curves=game.curves(member),
        adversary=game.infer("adversary", member, test),
        utility=None if test.utility is None else game.infer("utility", member, test),
        raw_utility=raw_utility,
    )


def evaluate_exactly(problem: Problem, releases: Sequence[Release]) -> Iterator[Replicate | None]:
    """Evaluates releases of one structure by exact information, without any attacker.

    Yields:
        One replicate per release, in order; None wherever the work may pause.
    """
    references = yield from problem.reference_metrics([release.config for release in releases])
    for release, reference in zip(releases, references, strict=True):
        draft = ReplicateDraft(problem, release, reference)
        add_adversary(draft)
        add_accuracy(draft)
        total = sum(draft.metrics[key] for key in ("exact/leakage", "exact/censored"))
        bound = problem.dependence_bound(release.config)
        add_bound(draft, bound, total - max(bound, 0.0), 0.0)
        yield finish_replicate(draft)


def normalized_error(
    problem: Problem, config: AdversarialConfig, original: AttackView, released: AttackView
) -> Estimate:
    """Squared error relative to the squared records, in original units (arXiv 2310.18241)."""
    offset, scale = problem.original_units(config)
    error = _record_sums((scale * (released.z - original.z)).double().square(), released)
    power = _record_sums((offset + scale * original.z).double().square(), released)
    return estimates.ratio(error, power, group_of(released))


def utility_accuracy(log_p: Tensor, released: AttackView) -> Estimate:
    """Accuracy of the utility network that was trained with the releaser, by its outputs [n, C]."""
    assert released.utility is not None
    right = (log_p.argmax(-1) == released.utility).double().cpu().numpy()
    known = (released.utility != MISSING).double().cpu().numpy()
    return estimates.ratio(right, known, group_of(released))


def failed_replicate(problem: Problem, config: AdversarialConfig, reason: str) -> Replicate:
    """A replicate without results, and the reason."""
    metrics = dict.fromkeys(metric_keys(problem, config), math.nan)
    return Replicate(config.seed, metrics, failure=reason, finished_at=time.time())


class ReplicateDraft:
    """Metrics of a replicate while its release is evaluated; NaN until they are known."""

    def __init__(self, problem: Problem, release: Release, reference: Mapping[str, float]) -> None:
        """Starts with the problem's own measures and references, and other keys undefined."""
        self.problem, self.release = problem, release
        details = problem.release_details(release)
        undefined = dict.fromkeys(metric_keys(problem, release.config), math.nan)
        self.metrics: dict[str, float] = {**undefined, **reference, **details.metrics}
        self.errors: dict[str, float] = {**details.errors}
        self.notes: dict[str, str] = {**details.notes}
        self.curves, self.artifacts = dict(release.curves), details.artifacts

    def add(self, key: str, estimate: Estimate) -> None:
        """Adds a metric with its standard error."""
        self.metrics[key], self.errors[key] = estimate.value, estimate.error


def finish_replicate(draft: ReplicateDraft) -> Replicate:
    """The replicate, with its releaser."""
    release, test = draft.release, draft.release.released.test
    releaser = save_releaser(draft.problem, release.config, release.parameters)
    group = group_of(test)
    size = len(test.z) if group is None else len(np.unique(group))
    name, overlap = draft.problem.test_set(release.config) or (None, 1.0)
    return Replicate(
        seed=release.config.seed,
        metrics=draft.metrics,
        standard_errors=draft.errors,
        notes=draft.notes,
        curves=draft.curves,
        artifacts={RELEASER_FILE: releaser, **draft.artifacts},
        finished_at=time.time(),
        scored_on=ScoredRecords(name, size, overlap),
    )


def add_adversary(draft: ReplicateDraft) -> None:
    """Balanced accuracy of the game's adversary on test: a diagnostic, not a privacy metric."""
    test, log_p = draft.release.released.test, draft.release.adversary
    rows, guess = known_rows(test), log_p.argmax(-1).view(len(test.secret), -1).cpu().numpy()
    decision = guess[rows.record, rows.step]
    draft.add(ADVERSARY, balanced_accuracy(decision, rows, log_p.shape[-1]))


def add_accuracy(draft: ReplicateDraft) -> None:
    """Adds the test accuracy of the utility network that was trained with the releaser."""
    assert draft.release.utility is not None
    draft.add(
        "utility/accuracy", utility_accuracy(draft.release.utility, draft.release.released.test)
    )


def add_bound(draft: ReplicateDraft, bound: float, gap: float, error: float) -> None:
    """Adds the bound K of I(S;Q) + I(U;X|Q) >= K (ICLR 2019, Lemma 3.1), and the gap above it.

    All in nats; K is NaN if unknown. The gap is leakage and censored utility together, less K or 0.
    A gap clearly below 0 proves that attackers or utility networks are too weak.
    """
    draft.metrics |= {"bound/release": bound, "bound/gap": gap}
    draft.errors["bound/gap"] = error
    if math.isnan(bound):
        keys = ("bound/release", "bound/gap", BELOW_BOUND)
        draft.notes |= dict.fromkeys(keys, "the problem knows no bound")
    elif math.isnan(gap):
        draft.notes |= dict.fromkeys(("bound/gap", BELOW_BOUND), "leakage is undefined")
    else:
        is_below = gap < -CERTAIN_ERRORS * error - _ROUNDING
        draft.metrics[BELOW_BOUND] = float(is_below)
        if is_below:
            draft.notes[BELOW_BOUND] = (
                f"leakage and censored utility are together {-gap:.4f} +- {error:.4f} nats below "
                f"the bound {bound:.4f}, so that at least one is understated"
            )


def _record_sums(values: Tensor, test: AttackView) -> NDArray[np.float64]:
    """Sums over each record's observed numbers, shape [n]."""
    if test.present is not None:
        values = torch.where(test.present[..., None].expand_as(values), values, 0.0)
    sums: NDArray[np.float64] = values.flatten(1).sum(1).cpu().numpy()
    return sums


def group_of(test: AttackView) -> NDArray[np.int64] | None:
    """Common origin of test records, shape [n]; None if all are independent."""
    return None if test.group is None else test.group.cpu().numpy()
