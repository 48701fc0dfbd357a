"""Early stopping: which points of a pack leave training before its end.

Multi-objective successive halving. At each rung, points are ordered by non-dominated rank and,
within a rank, by hypervolume contribution, as in SMS-EMOA (Beume, Naujoks, Emmerich, EJOR 181,
2007) and MO-ASHA (Schmucker et al., arXiv 2106.12639). Points beyond the best share may leave; they
do only if they are dominated with confidence.

Each pack is judged by itself, so that its result does not depend on other packs. If the replicates
of a point lie in several packs, some may be stopped and others not; the point then counts as
stopped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privnets.contract import Direction
from privnets.statistics.estimates import Estimate
from sweeps.planning.plan import Plan
from sweeps.store.codec import ReplicateKey

# Objectives are scaled so that the points of a rung span [0, 1]; volume is measured up to here.
_REFERENCE: Final = 1.1

Floats = NDArray[np.float64]
Estimates = Mapping[ReplicateKey, Mapping[str, Estimate]]
"""Interim estimates by metric, for each (point_id, seed)."""


@dataclass(frozen=True)
class StoppingRule:
    """Rule by which points leave their pack.

    Attributes:
        objectives: Metric to direction.
        rungs: Shares of training at which points may leave, in increasing order.
        reduction: Factor by which each rung reduces the number of points that are safe.
        confidence: Confidence with which a leaving point must be dominated, in (0, 1).
    """

    objectives: Mapping[str, Direction]
    rungs: tuple[float, ...]
    reduction: float
    confidence: float

    @classmethod
    def from_plan(cls, plan: Plan) -> StoppingRule | None:
        """Rule that the plan's study asks for; None if it asks for none."""
        spec = plan.study.early_stopping
        if spec is None:
            return None
        return cls(plan.objectives, spec.rungs, spec.reduction, spec.confidence)

    def safe_points(self, points: int, share: float) -> int:
        """Number of points of a pack that are safe at a rung, whatever earlier rungs decided."""
        passed_rungs = sum(rung <= share for rung in self.rungs)
        return math.ceil(round(points / self.reduction**passed_rungs, 9))


def dominated_points(estimates: Estimates, rule: StoppingRule, safe: int) -> dict[str, str]:
    """Points that should leave, each with the point that dominates it most clearly.

    A point's position is the mean over its replicates. It leaves if it is not among the best
    `safe` points, and a point of the estimated front is better in every objective with confidence.
    Points of the front never leave. A point that lacks an estimate neither leaves nor dominates.

    Confidence is by a paired test over the seeds that both points have, as replicates of one seed
    share their random draws: the mean difference must exceed its standard error times Student's
    quantile. The error is the one between the differences or, if larger, the one within replicates;
    with a single seed only the latter exists. Intersecting one-sided tests needs no correction for
    several objectives. For the choice among the points of the front, Bonferroni's is made. The
    confidence is per point and rung, and about the interim estimates, not about final metrics.

    Args:
        estimates: Interim estimates of every replicate that takes part.
        rule: Objectives and confidence.
        safe: Number of points that stay whatever their position.

    Returns:
        Point id to point id, whatever the order of replicates and the objectives' units.
    """
    positions = _positions(estimates, rule.objectives)
    if len(positions.points) <= safe:
        return {}
    ranks, order = _order(positions)
    front = [i for i in order if ranks[i] == 0]
    dominated = {}
    for i in (i for i in order[safe:] if ranks[i] > 0):
        margins = {j: _margin(positions, j, i, rule.confidence, len(front)) for j in front}
        clearest = max(front, key=lambda j: margins[j])
        if margins[clearest] > 0:
            dominated[positions.points[i]] = positions.points[clearest]
    return dominated


@dataclass(frozen=True, eq=False)
class _Positions:
    """Points side by side, every objective scaled and turned so that less is better.

    `values` and `errors` have shape [objectives] for each point and seed, `means` has shape
    [points, objectives].
    """

    points: Sequence[str]
    values: Sequence[Mapping[int, Floats]]
    errors: Sequence[Mapping[int, Floats]]
    means: Floats


def _positions(estimates: Estimates, objectives: Mapping[str, Direction]) -> _Positions:
    values: dict[str, dict[int, Floats]] = {}
    errors: dict[str, dict[int, Floats]] = {}
    signs = np.array([1.0 if direction == "min" else -1.0 for direction in objectives.values()])
    for point_id, seed in sorted(estimates):
        row = [estimates[point_id, seed][metric] for metric in objectives]
        values.setdefault(point_id, {})[seed] = signs * [estimate.value for estimate in row]
        errors.setdefault(point_id, {})[seed] = np.array([estimate.error for estimate in row])
    points = [p for p in values if _is_finite(values[p]) and _is_finite(errors[p])]
    means = np.array([sum(values[p].values()) / len(values[p]) for p in points])
    if not points:
        return _Positions((), (), (), means)
    span = np.ptp(means, axis=0)
    span[span == 0] = 1.0
    return _Positions(
        points,
        [{seed: value / span for seed, value in values[p].items()} for p in points],
        [{seed: error / span for seed, error in errors[p].items()} for p in points],
        (means - means.min(axis=0)) / span,
    )


def _is_finite(rows: Mapping[int, Floats]) -> bool:
    return all(math.isfinite(number) for row in rows.values() for number in row)


def _order(positions: _Positions) -> tuple[NDArray[np.int64], list[int]]:
    """Rank of each point, and the indices of all points from the best to the worst."""
    import moocore  # nodes that train without Ray need not have it

    # moocore requires two objectives; a single one, given twice, orders points as it does alone.
    means = np.tile(positions.means, 2) if positions.means.shape[1] == 1 else positions.means
    ranks = moocore.pareto_rank(means)
    volumes = np.zeros(len(ranks))
    for rank in np.unique(ranks):
        layer = ranks == rank
        volumes[layer] = moocore.hv_contributions(means[layer], ref=_REFERENCE)
    order = sorted(range(len(ranks)), key=lambda i: (ranks[i], -volumes[i], positions.points[i]))
    return ranks, order


def _margin(
    positions: _Positions, better: int, worse: int, confidence: float, comparisons: int
) -> float:
    """Smallest advantage of one point over another beyond its error; significant above 0."""
    from scipy.special import ndtri, stdtrit  # slow to import

    seeds = sorted(positions.values[better].keys() & positions.values[worse].keys())
    if not seeds:
        return -math.inf
    gaps = np.array([positions.values[worse][s] - positions.values[better][s] for s in seeds])
    within = [positions.errors[worse][s] ** 2 + positions.errors[better][s] ** 2 for s in seeds]
    variance, count = np.mean(within, axis=0), len(seeds)
    level = 1 - (1 - confidence) / comparisons
    quantile = ndtri(level)
    if count > 1:
        variance = np.maximum(variance, gaps.var(axis=0, ddof=1))
        quantile = stdtrit(count - 1, level)
    return float((gaps.mean(axis=0) - quantile * np.sqrt(variance / count)).min())
