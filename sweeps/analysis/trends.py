"""Trends of a metric along a swept field: measured per seed, and judged.

The trend of a seed is Spearman's rank correlation of the metric with the field, among points that
agree in every other field, averaged over such groups. Its standard error within a replicate is
simulated from those of the metric, which count as independent between points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from privnets.statistics.intervals import LEVEL, Array, Interval, student_quantile
from privnets.statistics.replicates import Summary
from sweeps.analysis.tables import varying_fields
from sweeps.analysis.text import format_count, format_number

Verdict = Literal["agrees", "disagrees", "cannot tell", "not posed"]
"""`not posed` where no result of this design could decide."""

TOLERANCE = 0.1
"""Share of a group's mean within which a metric counts as constant."""

MIN_VALUES, MIN_SEEDS = 5, 4
"""Values of a field, and replicates, that a trend needs."""

_SEED, _DRAWS = 0, 200  # the standard error of a standard deviation is about 5% of it

ONE_REPLICATE = "One replicate does not show the spread of training"


@dataclass(frozen=True, slots=True)
class Effect:
    """Size of the effect of a field on a metric.

    Attributes:
        change: Mean at the last value of the axis minus that at the first, with its interval.
        ends: First and last value of the axis; None if they differ between groups.
        is_averaged: Whether it is a mean over groups of points that differ in other fields.
        is_beyond_chance: Whether the interval of the change leaves out 0, or that of the departure
            of some point from its group's mean does, corrected for the number of points.
    """

    change: Interval
    ends: tuple[float, float] | None
    is_averaged: bool
    is_beyond_chance: bool


@dataclass(frozen=True, slots=True)
class TrendGroup:
    """Points that agree in every field but the axis, in the order of this axis.

    Attributes:
        axis: Value of each point, shape [points].
        values: The metric, shape [seeds, points]; for `trends` also [..., seeds, points].
        errors: Its standard errors within replicates, 0 where unknown, shape [seeds, points].
    """

    axis: Array
    values: Array
    errors: Array

    def trends(self) -> Array:
        """Spearman's correlation of each seed, [..., seeds]; 0 where the metric is constant."""
        from scipy.stats import rankdata  # slow to load

        place, ranks = (rankdata(each, axis=-1) for each in (self.axis, self.values))
        place, ranks = (each - each.mean(axis=-1, keepdims=True) for each in (place, ranks))
        scale = np.sqrt((ranks**2).sum(axis=-1) * (place**2).sum())
        return np.asarray(ranks @ place / np.where(scale > 0, scale, 1.0))

    def levels(self) -> Array:
        """Values drawn towards a seed's mean until they vary as they would without their errors."""
        mean = self.values.mean(axis=1, keepdims=True)
        variance = self.values.var(axis=1, ddof=1, keepdims=True)
        noise = (self.errors**2).mean(axis=1, keepdims=True)
        share = 1 - np.divide(noise, variance, out=np.ones_like(noise), where=variance > noise)
        return np.asarray(mean + np.sqrt(share) * (self.values - mean))

    def changes(self) -> tuple[Array, Array]:
        """Each seed's mean at the last value of the axis minus that at the first; its error."""
        last, first = (self.axis == self.axis[end] for end in (-1, 0))
        change = self.values[:, last].mean(axis=1) - self.values[:, first].mean(axis=1)
        squares = [(self.errors[:, end] ** 2).sum(axis=1) / end.sum() ** 2 for end in (last, first)]
        return change, np.sqrt(sum(squares))

    def departures(self) -> tuple[Array, Array]:
        """Deviations from a seed's mean, in shares of the group's mean; their errors.

        Both have the shape [seeds, points].
        """
        scale = abs(float(self.values.mean())) or 1.0
        count, squares = len(self.axis), self.errors**2
        squares = squares * (1 - 2 / count) + squares.sum(axis=1, keepdims=True) / count**2
        departures = self.values - self.values.mean(axis=1, keepdims=True)
        return departures / scale, np.sqrt(squares) / scale


def mean_trend(groups: Sequence[TrendGroup]) -> tuple[Array, Array]:
    """Mean over groups of each seed's trend, and its error within the replicate, shape [seeds].

    Points of several groups with one value of the axis may err alike, as they see the same test
    records: their errors are drawn as one.
    """
    mean = np.mean([group.trends() for group in groups], axis=0)
    if not any(group.errors.any() for group in groups):
        return mean, np.zeros_like(mean)
    places = np.unique(np.concatenate([group.axis for group in groups]))
    draws = np.random.default_rng(_SEED).normal(size=(_DRAWS, len(mean), len(places)))
    drawn = []
    for group in groups:
        errors = group.errors * draws[..., np.searchsorted(places, group.axis)]
        drawn.append(replace(group, values=group.levels() + errors).trends())
    return mean, np.std(np.mean(drawn, axis=0), axis=0)


def limit_trend(trend: Interval, groups: Sequence[TrendGroup]) -> Interval:
    """The interval of a mean trend within [-1, 1], and with a width.

    Seeds of equal trends would give an interval without one. Their spread counts as at least that
    of one seed in which two neighbours of one group change places.
    """
    seeds, points = len(groups[0].values), max(len(group.axis) for group in groups)
    swap = 12 / (points * (points**2 - 1)) / len(groups)
    quantile = float(student_quantile(max(seeds - 1, 1), (1 + LEVEL) / 2))
    width = quantile * swap / seeds if seeds > 1 else 2.0
    low, high = min(trend.low, trend.value - width), max(trend.high, trend.value + width)
    return Interval(trend.value, max(low, -1.0), min(high, 1.0))


def mean_change(groups: Sequence[TrendGroup]) -> tuple[Array, Array]:
    """Mean over groups of each seed's change along the axis, and its error, shape [seeds]."""
    changes, errors = zip(*(group.changes() for group in groups), strict=True)
    return np.mean(changes, axis=0), np.sqrt(np.sum(np.square(errors), axis=0)) / len(groups)


def group_points(
    points: pd.DataFrame,
    values: pd.DataFrame,
    errors: pd.DataFrame,
    position: pd.Series[float],
    column: str,
) -> tuple[list[TrendGroup], bool]:
    """Groups of at least two points of equal configuration, and whether all points are one group.

    They are if most would be alone in theirs, as in a random search.

    Args:
        points: Configurations, a row per point.
        values: The metric, a row per seed and a column per measured point.
        errors: Standard errors of `values`, NaN without one.
        position: Number of each point on the axis.
        column: Column of `points` that holds the axis.
    """
    points = points.assign(position=position).loc[values.columns]
    others = [f"config/{field}" for field in varying_fields(points) if f"config/{field}" != column]
    parts = [part for _, part in points.groupby(others, dropna=False)] if others else [points]
    groups = [part for part in parts if part["position"].nunique() > 1]
    pooled = 2 * sum(map(len, groups)) < len(points)
    chosen = [points] if pooled and points["position"].nunique() > 1 else groups
    ordered = [part.sort_values("position") for part in chosen]
    known = errors.fillna(0.0)
    return [
        TrendGroup(p["position"].to_numpy(), values[p.index].to_numpy(), known[p.index].to_numpy())
        for p in ordered
    ], pooled


def judge_trend(claimed: str, groups: Sequence[TrendGroup], trend: Interval) -> tuple[Verdict, str]:
    """Verdict on a trend that is claimed to be increasing or decreasing; its reason.

    Args:
        claimed: The claimed direction.
        groups: Groups with common seeds.
        trend: Mean over groups and seeds, with its interval.
    """
    values, seeds = max(len(np.unique(g.axis)) for g in groups), len(groups[0].values)
    if values < MIN_VALUES or seeds < MIN_SEEDS:
        return "not posed", (
            f"A trend needs {MIN_VALUES} values and {MIN_SEEDS} replicates, and has "
            f"{format_count(values, 'value')} and {format_count(seeds, 'replicate')}"
        )
    if trend.low <= 0 <= trend.high:
        return "cannot tell", "The interval of the trend contains 0"
    rises = trend.value > 0
    verdict: Verdict = "agrees" if rises == (claimed == "increasing") else "disagrees"
    return verdict, f"The interval of the trend lies {'above' if rises else 'below'} 0"


def judge_constancy(departures: Summary) -> tuple[Verdict, str]:
    """Two one-sided tests for each point against 10% of its group's mean.

    Args:
        departures: Means over seeds of `TrendGroup.departures`, shape [points, 1].
    """
    (low, high), level = departures.interval(), 1 - (1 - LEVEL) / len(departures.mean)
    largest = int(np.abs(departures.mean).argmax())
    ends = (float(values[largest, 0]) for values in (departures.mean, low, high))
    limit = f"at most ±{TOLERANCE} is constant"
    reason = f"The largest departure is {Interval(*ends)} of the mean; {limit}"
    if (low >= -TOLERANCE).all() and (high <= TOLERANCE).all():
        return "agrees", reason
    low, high = departures.interval(level)
    beyond = (low > TOLERANCE).any() or (high < -TOLERANCE).any()
    return ("disagrees" if beyond else "cannot tell"), reason


def describe_extent(groups: Sequence[TrendGroup], pooled: bool) -> str:
    """Numbers of points and groups in words."""
    if pooled:
        return f"{len(groups[0].axis)} points together, their other fields differing"
    sizes = sorted({len(group.axis) for group in groups})
    values = f"{sizes[0]} values" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} values"
    count = len(groups)
    return values if count == 1 else f"{values} in each of {count} groups of equal configuration"


def measure_effect(groups: Sequence[TrendGroup], change: Interval, departures: Summary) -> Effect:
    """Size of an effect; `departures` are as for `judge_constancy`."""
    ends = {(float(group.axis[0]), float(group.axis[-1])) for group in groups}
    low, high = departures.interval(1 - (1 - LEVEL) / len(departures.mean))
    departs = bool(((low > 0) | (high < 0)).any())
    is_beyond_chance = departs or change.low > 0 or change.high < 0
    return Effect(change, ends.pop() if len(ends) == 1 else None, len(groups) > 1, is_beyond_chance)


def describe_ends(axis: str, effect: Effect) -> str:
    """First and last value of the axis in words."""
    if effect.ends is None:
        return f"from the first to the last value of {axis}"
    first, last = effect.ends
    return f"from {axis} = {format_number(first)} to {format_number(last)}"
