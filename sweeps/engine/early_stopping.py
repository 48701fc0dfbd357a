"""Early stopping within a pack: which points leave it before the end.

Multi-objective successive halving. At each rung, points are ordered by non-dominated rank and,
within a rank, by hypervolume contribution, as SMS-EMOA does (Beume, Naujoks, Emmerich, EJOR 181,
2007) and as MO-ASHA does for successive halving (Schmucker et al., arXiv 2106.12639). Those beyond
the best share may leave; they do only if dominated with confidence.

A pack is judged by itself, so that what it comes to does not depend on others. Of a point whose
replicates lie in several packs some may be stopped and some not; it then counts as stopped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from privnets.contract import Direction, InterimEstimate
from sweeps.planning.plan import Plan
from sweeps.store.checkpoints import ReplicateKey

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Objectives are scaled so that a rung's points span [0, 1]; volume counts up to here.
_REFERENCE: Final = 1.1


@dataclass(frozen=True)
class StoppingRule:
    """When points leave their pack.

    Attributes:
        objectives: Metric to direction.
        rungs: Shares of training at which it is decided, rising.
        reduction: Of the points a rung leaves room for one in so many of those before.
        confidence: That a point which leaves is dominated.
    """

    objectives: Mapping[str, Direction]
    rungs: tuple[float, ...]
    reduction: float
    confidence: float

    @classmethod
    def from_plan(cls, plan: Plan) -> StoppingRule | None:
        """As a plan's study asks for; None if it does not."""
        asked = plan.study.early_stopping
        if asked is None:
            return None
        return cls(plan.objectives, asked.rungs, asked.reduction, asked.confidence)

    def room(self, points: int, share: float) -> int:
        """How many of a pack's points are safe at a rung, whatever those before it decided."""
        passed = sum(rung <= share for rung in self.rungs)
        return math.ceil(round(points / self.reduction**passed, 9))


def leaving(
    estimates: Mapping[ReplicateKey, Mapping[str, InterimEstimate]],
    stopping: StoppingRule,
    room: int,
) -> dict[str, str]:
    """Which points are to leave, and which dominates each.

    A point stands where the mean over its replicates does. It leaves if it is not among the best
    `room`, and some point of the estimated front is better in every objective with confidence:
    the mean difference over the seeds that both have (paired, as replicates of one seed share
    their draws) exceeds its standard error times Student's quantile. The error is that between
    the differences or, if larger, that within replicates; of a single seed only the latter is
    known. An intersection of one-sided tests needs no correction for the number of objectives;
    the choice among the front's points has Bonferroni's. The confidence is per point and rung,
    in what the estimates stand for, not in what the points would come to at the end.

    Points of the front never leave, nor do those that lack an estimate, which dominate none either.

    Args:
        estimates: (point_id, seed) of every member that takes part, to its estimates.
        stopping: Objectives and confidence.
        room: How many points stay however they compare.

    Returns:
        Point to the point that dominates it most clearly; it depends neither on the order of
        members nor on the objectives' units.
    """
    field = _field(estimates, stopping.objectives)
    if len(field.points) <= room:
        return {}
    rank, order = _ordered(field)
    front = [i for i in order if rank[i] == 0]
    found = {}
    for i in (i for i in order[room:] if rank[i] > 0):
        margins = {j: _margin(field, j, i, stopping.confidence, len(front)) for j in front}
        clearest = max(front, key=lambda j: margins[j])
        if margins[clearest] > 0:
            found[field.points[i]] = field.points[clearest]
    return found


@dataclass(frozen=True, eq=False)
class _Field:
    """Points side by side, every objective scaled and turned so that less is better.

    Attributes:
        points: Their ids, sorted.
        values: For each point, seed to estimated values, shape [objectives].
        errors: For each point, seed to their standard errors.
        means: Over each point's seeds, shape [points, objectives].
    """

    points: Sequence[str]
    values: Sequence[Mapping[int, NDArray[np.float64]]]
    errors: Sequence[Mapping[int, NDArray[np.float64]]]
    means: NDArray[np.float64]


def _field(
    estimates: Mapping[ReplicateKey, Mapping[str, InterimEstimate]],
    objectives: Mapping[str, Direction],
) -> _Field:
    import numpy as np

    values: dict[str, dict[int, NDArray[np.float64]]] = {}
    errors: dict[str, dict[int, NDArray[np.float64]]] = {}
    signs = np.array([1.0 if direction == "min" else -1.0 for direction in objectives.values()])
    for point_id, seed in sorted(estimates):
        known = [estimates[point_id, seed][metric] for metric in objectives]
        values.setdefault(point_id, {})[seed] = signs * [each.value for each in known]
        errors.setdefault(point_id, {})[seed] = np.array([each.error for each in known])
    points = [p for p in values if _told(values[p]) and _told(errors[p])]
    means = np.array([sum(values[p].values()) / len(values[p]) for p in points])
    if not points:
        return _Field((), (), (), means)
    span = np.ptp(means, axis=0)
    span[span == 0] = 1.0
    low = means.min(axis=0)
    return _Field(
        points,
        [{seed: value / span for seed, value in values[p].items()} for p in points],
        [{seed: error / span for seed, error in errors[p].items()} for p in points],
        (means - low) / span,
    )


def _told(rows: Mapping[int, NDArray[np.float64]]) -> bool:
    return all(math.isfinite(number) for row in rows.values() for number in row)


def _ordered(field: _Field) -> tuple[NDArray[np.int64], list[int]]:
    """Each point's rank, and the points' places from the best to the worst."""
    import moocore
    import numpy as np

    # moocore wants two objectives; one given twice orders points as it does alone.
    means = np.tile(field.means, 2) if field.means.shape[1] == 1 else field.means
    rank = moocore.pareto_rank(means)
    share = np.zeros(len(rank))
    for layer in np.unique(rank):
        members = rank == layer
        share[members] = moocore.hv_contributions(means[members], ref=_REFERENCE)
    order = sorted(range(len(rank)), key=lambda i: (rank[i], -share[i], field.points[i]))
    return rank, order


def _margin(field: _Field, better: int, worse: int, confidence: float, rivals: int) -> float:
    """By how much a point is better than another in every objective, beyond doubt if above 0."""
    import numpy as np
    from scipy.special import ndtri, stdtrit

    seeds = field.values[better].keys() & field.values[worse].keys()
    if not seeds:
        return -math.inf
    gaps = np.array([field.values[worse][s] - field.values[better][s] for s in sorted(seeds)])
    within = [field.errors[worse][s] ** 2 + field.errors[better][s] ** 2 for s in sorted(seeds)]
    variance, count = np.mean(within, axis=0), len(seeds)
    level = 1 - (1 - confidence) / rivals
    quantile = ndtri(level)
    if count > 1:
        variance = np.maximum(variance, gaps.var(axis=0, ddof=1))
        quantile = stdtrit(count - 1, level)
    return float((gaps.mean(axis=0) - quantile * np.sqrt(variance / count)).min())
