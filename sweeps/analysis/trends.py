"""Trends of a metric along a swept field: measured per seed, and judged.

The trend of a seed is Kendall's tau-b of the metric along the field, among points that agree in
every other field, averaged over such groups (Biometrika 30, 1938).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privnets.summary import LEVEL
from sweeps.analysis.statistics import NORMAL_QUANTILE, Interval, t_interval
from sweeps.analysis.tables import varying_fields
from sweeps.analysis.text import format_number

Verdict = Literal["agrees", "disagrees", "cannot tell"]
TOLERANCE = 0.1
"""Share of a group's mean within which a metric counts as constant."""

ONE_REPLICATE = "One replicate does not show the spread of training"


@dataclass(frozen=True, slots=True)
class TrendGroup:
    """Points that agree in every field but the axis, in the order of this axis."""

    axis: NDArray[np.float64]  # shape [points]
    values: NDArray[np.float64]  # the metric, shape [seeds, points]

    def trends(self) -> NDArray[np.float64]:
        """Kendall's tau-b of each seed; 0 where the metric is constant."""
        first, second = np.triu_indices(len(self.axis), 1)
        steps = np.sign(self.axis[second] - self.axis[first])
        changes = np.sign(self.values[:, second] - self.values[:, first])
        untied = np.sqrt((steps**2).sum() * (changes**2).sum(axis=1))
        return np.asarray((changes @ steps) / np.where(untied > 0, untied, 1.0))

    def changes(self) -> NDArray[np.float64]:
        """Each seed's mean at the axis's last value minus its mean at the first."""
        last = self.values[:, self.axis == self.axis[-1]].mean(axis=1)
        first = self.values[:, self.axis == self.axis[0]].mean(axis=1)
        return np.asarray(last - first)

    def departures(self) -> NDArray[np.float64]:
        """Each seed's deviations from its mean, in shares of the group's mean [seeds, points]."""
        scale = abs(float(self.values.mean())) or 1.0
        return np.asarray((self.values - self.values.mean(axis=1, keepdims=True)) / scale)


def group_points(
    points: pd.DataFrame, values: pd.DataFrame, position: pd.Series[float], column: str
) -> tuple[list[TrendGroup], bool]:
    """Groups of at least two points of equal configuration, and whether all points are one group.

    They are if most would be alone in theirs, as in a random search.

    Args:
        points: Configurations, a row per point.
        values: The metric, a row per seed and a column per measured point.
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
    return [
        TrendGroup(p["position"].to_numpy(), values[p.index].to_numpy()) for p in ordered
    ], pooled


def judge_trend(claimed: str, groups: Sequence[TrendGroup], trend: Interval) -> tuple[Verdict, str]:
    """Verdict on a trend that is claimed to be increasing, decreasing or constant; its reason."""
    seeds = len(groups[0].values)
    if seeds < 2:
        return "cannot tell", ONE_REPLICATE
    if claimed == "constant":
        return _constancy(groups)
    if trend.low <= 0 <= trend.high:
        return "cannot tell", "The interval of the trend contains 0"
    if abs(trend.mean) < _chance_trend(groups):
        return "cannot tell", "So few values and replicates show such a trend by chance"
    rises = trend.mean > 0
    verdict: Verdict = "agrees" if rises == (claimed == "increasing") else "disagrees"
    return verdict, f"The interval of the trend lies {'above' if rises else 'below'} 0"


def _chance_trend(groups: Sequence[TrendGroup]) -> float:
    """The trend that is exceeded in 5% of cases if the axis has no effect.

    Without a trend tau has variance 2(2k+5)/(9k(k-1)) over k points. Groups share their seeds and
    count as fully dependent.
    """
    sizes = [len(group.axis) for group in groups]
    deviations = [math.sqrt(2 * (2 * k + 5) / (9 * k * (k - 1))) for k in sizes]
    return NORMAL_QUANTILE * float(np.mean(deviations)) / math.sqrt(len(groups[0].values))


def _constancy(groups: Sequence[TrendGroup]) -> tuple[Verdict, str]:
    """Two one-sided tests for each point against 10% of its group's mean."""
    columns = np.concatenate([group.departures() for group in groups], axis=1).T
    intervals = [t_interval(column) for column in columns]
    largest = max(intervals, key=lambda interval: abs(interval.mean))
    reason = f"The largest departure is {largest} of the mean; at most ±{TOLERANCE} is constant"
    if all(max(-i.low, i.high) <= TOLERANCE for i in intervals):
        return "agrees", reason
    strict = [t_interval(column, 1 - (1 - LEVEL) / len(columns)) for column in columns]
    beyond = any(i.low > TOLERANCE or i.high < -TOLERANCE for i in strict)
    return ("disagrees" if beyond else "cannot tell"), reason


def describe_extent(groups: Sequence[TrendGroup], pooled: bool) -> str:
    """Numbers of points and groups in words."""
    if pooled:
        return f"{len(groups[0].axis)} points together, their other fields differing"
    sizes = sorted({len(group.axis) for group in groups})
    values = f"{sizes[0]} values" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} values"
    count = len(groups)
    return values if count == 1 else f"{values} in each of {count} groups of equal configuration"


def describe_ends(axis: str, groups: Sequence[TrendGroup]) -> str:
    """First and last value of the axis in words."""
    ends = {(float(group.axis[0]), float(group.axis[-1])) for group in groups}
    if len(ends) > 1:
        return f"from the first to the last value of {axis}"
    first, last = ends.pop()
    return f"from {axis} = {format_number(first)} to {format_number(last)}"
