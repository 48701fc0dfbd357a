"""Fronts of noisy points: probabilities, groups that intervals cannot separate, hypervolumes.

The best of many noisy points looks better than it is. Draws of the true means (see
`privnets.statistics.bootstrap`) show which points may belong to the front.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import moocore
import numpy as np
from numpy.typing import NDArray

from privnets.statistics.bootstrap import PointSamples
from privnets.statistics.intervals import LEVEL, Array, Interval, student_quantile
from sweeps.analysis.pareto import Objectives

_MAX_COMPARED = 2**22  # pairs of points compared at once
_SURE_LEVEL = 0.9999


def front_contenders(samples: PointSamples, objectives: Objectives) -> NDArray[np.int64]:
    """Places of the points that may be on the front, those of finite means and known errors.

    Drops a point if another point's worst value is better than its best one in every objective.
    Worst and best values are the ends of 99.99% intervals.
    """
    usable = np.flatnonzero(samples.has_errors & np.isfinite(samples.summary.mean).all(axis=1))
    ends = samples.select(usable).summary.interval(_SURE_LEVEL)
    first, second = (_orient(end, objectives) for end in ends)
    best, worst = np.minimum(first, second), np.maximum(first, second)
    edge = worst[moocore.is_nondominated(worst)] if len(worst) else worst
    beaten = np.zeros(len(usable), dtype=bool)
    step = max(1, _MAX_COMPARED // max(len(edge), 1))
    for start in range(0, len(usable), step):
        part = best[start : start + step]
        is_worse = np.asarray((edge[None] < part[:, None]).all(axis=2))
        beaten[start : start + step] = is_worse.any(axis=1)
    return usable[~beaten]


def front_probabilities(samples: PointSamples, objectives: Objectives) -> Array:
    """Probability that each point is on the front of all points, shape [P].

    NaN where the error of an objective is unknown, or a mean is not finite.
    """
    counts, draws = np.zeros(len(samples.point_ids)), 0
    contenders = front_contenders(samples, objectives)
    for block in samples.select(contenders).draw_blocks() if len(contenders) else ():
        values = _orient(block, objectives)
        for drawn, rows in zip(values, _shortlists(values), strict=True):
            counts[contenders[rows[moocore.is_nondominated(drawn[rows], keep_weakly=True)]]] += 1
        draws += len(block)
    probabilities = counts / max(draws, 1)
    is_known = samples.has_errors & np.isfinite(samples.summary.mean).all(axis=1)
    return np.where(is_known, probabilities, math.nan)


def _shortlists(values: Array) -> Iterator[NDArray[np.int64]]:
    """Yields for each draw [draws, P, K] the places of the points that one good point leaves.

    It dominates the others, so that they are not on the draw's front. Smaller is better.
    """
    columns = np.moveaxis(values, 2, 0)
    spreads = np.ptp(values[0], axis=0)
    totals = sum(c / s if s else c for c, s in zip(columns, spreads.tolist(), strict=True))
    best = totals.argmin(axis=1)[:, None]
    left = totals == np.take_along_axis(totals, best, axis=1)
    for column in columns:
        left |= column < np.take_along_axis(column, best, axis=1)
    return map(np.flatnonzero, left)


def separate_groups(samples: PointSamples, objectives: Objectives) -> NDArray[np.int64]:
    """Numbers from 1 of groups of points that intervals cannot separate, shape [P].

    In order of the first objective, the best first, each point that has no group yet begins one.
    It takes in the later points from which the interval of the difference separates it in no
    objective. Points with unknown errors are alone.
    """
    values = _orient(samples.draw(), objectives)
    order = np.argsort(_orient(samples.summary.mean, objectives)[:, 0], kind="stable")
    groups = np.zeros(len(order), dtype=np.int64)
    is_known, number = samples.has_errors, 0
    for place in order.tolist():
        if groups[place]:
            continue
        number += 1
        groups[place] = number
        others = np.flatnonzero((groups == 0) & is_known)
        if is_known[place] and len(others):
            # A 95% interval of the difference leaves out 0 if nearly all draws lie on one side.
            pairs = values[:, [place]], values[:, others]
            sides = [compare(*pairs).mean(axis=0) for compare in (np.less, np.greater)]
            is_separate = (np.maximum(*sides) > (1 + LEVEL) / 2).any(axis=1)
            groups[others[~is_separate]] = number
    return groups


def hypervolume_draws(
    samples: PointSamples, objectives: Objectives, reference: Mapping[str, float]
) -> Array:
    """Hypervolume of each draw of the means, of points with finite objectives, shape [draws].

    NaN if the error of such a point is unknown. All points share the error of their test set, so
    that it does not average out. `reference` has a value for each objective, as for
    `sweeps.analysis.pareto.hypervolume`.
    """
    samples = samples.select(np.flatnonzero(np.isfinite(samples.summary.mean).all(axis=1)))
    if not samples.has_errors.all():
        return np.array([math.nan])
    contenders = samples.select(front_contenders(samples, objectives))
    groups = np.zeros(len(contenders.point_ids), dtype=np.int64)
    blocks = contenders.draw_blocks(groups, is_student=False)
    return np.concatenate([draw_volumes(block, objectives, reference) for block in blocks])


def draw_volumes(draws: Array, objectives: Objectives, reference: Mapping[str, float]) -> Array:
    """Hypervolume of each of the draws [draws, P, K], NaN with an unknown point; shape [draws]."""
    (corner,) = _orient(np.array([[reference[metric] for metric in objectives]]), objectives)
    if not draws.shape[1]:
        return np.zeros(len(draws))
    if np.isnan(draws).any():
        return np.full(len(draws), math.nan)
    values = _orient(draws, objectives)
    pairs = zip(values, _shortlists(values), strict=True)
    return np.array([moocore.hypervolume(drawn[rows], ref=corner) for drawn, rows in pairs])


def debiased_interval(estimate: float, draws: Array, freedom: float) -> Interval:
    """Student's interval of a quantity whose estimate from noisy means is biased.

    Draws differ from the estimate as the estimate differs from the truth. The best of noisy points
    looks too good, so draws lie above the estimate, and the truth below. Without known draws there
    is no interval.

    Args:
        estimate: The quantity at the means.
        draws: The quantity at draws of the true means without heavy tails, shape [draws].
        freedom: Degrees of freedom of the errors.
    """
    if np.isnan(draws).any():
        return Interval(estimate, math.nan, math.nan)
    centre = 2 * estimate - float(draws.mean())
    half = student_quantile(freedom, (1 + LEVEL) / 2) * float(draws.std())
    return Interval(centre, centre - half, centre + half)


def _orient(values: Array, objectives: Objectives) -> Array:
    """Values [..., K] with signs so that smaller is better."""
    signs = [-1.0 if direction == "max" else 1.0 for direction in objectives.values()]
    signed: Array = values * np.tile(signs, (values.shape[-2], 1))  # faster than short rows
    return signed
