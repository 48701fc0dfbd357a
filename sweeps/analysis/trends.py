"""Trends of a metric along a swept field: measured per seed, and judged.

The trend of a seed is Kendall's tau-b of the metric along the field, among points that agree in
every other field, averaged over such groups (Biometrika 30, 1938). Its standard error within a
replicate is simulated from those of the metric, which count as independent between points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from privnets.summary import LEVEL, Array, Summary
from sweeps.analysis.statistics import NORMAL_QUANTILE, Interval
from sweeps.analysis.tables import varying_fields
from sweeps.analysis.text import format_count, format_number

Verdict = Literal["agrees", "disagrees", "cannot tell", "not posed"]
"""`not posed` where no result of this design could decide."""

TOLERANCE = 0.1
"""Share of a group's mean within which a metric counts as constant."""

ONE_REPLICATE = "One replicate does not show the spread of training"

_SEED, _DRAWS = 0, 200  # the standard error of a standard deviation is about 5% of it
_MAX_PAIRS = 2**22  # of points, in the draws that are measured together
_MAX_EXACT = 30  # points; beyond, Kendall's score is close to normal
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class TrendGroup:
    """Points that agree in every field but the axis, in the order of this axis.

    Attributes:
        axis: Value of each point, shape [points].
        values: The metric, shape [seeds, points]; for `trends` and `changes` also [..., seeds,
            points].
        errors: Its standard errors within replicates, 0 where unknown, shape [seeds, points].
    """

    axis: Array
    values: Array
    errors: Array

    def trends(self) -> Array:
        """Kendall's tau-b of each seed, shape [..., seeds]; 0 where the metric is constant."""
        score, pairs, changed = self._pairs()
        untied = np.sqrt(pairs * changed)
        return np.asarray(score / np.where(untied > 0, untied, 1.0))

    def scores(self) -> Array:
        """Kendall's score of each seed in shares of the pairs that differ on the axis."""
        score, pairs, _ = self._pairs()
        return np.asarray(score / pairs)

    def _pairs(self) -> tuple[Array, float, Array]:
        """Score of each seed, pairs that differ on the axis, and each seed's in the metric."""
        first, second = np.triu_indices(len(self.axis), 1)
        steps = np.sign(self.axis[second] - self.axis[first])
        changes = np.sign(self.values[..., second] - self.values[..., first])
        return changes @ steps, float((steps**2).sum()), (changes**2).sum(axis=-1)

    def changes(self) -> Array:
        """Each seed's mean at the axis's last value minus that at the first, shape [..., seeds]."""
        last = self.values[..., self.axis == self.axis[-1]].mean(axis=-1)
        first = self.values[..., self.axis == self.axis[0]].mean(axis=-1)
        return np.asarray(last - first)

    def departures(self) -> tuple[Array, Array]:
        """Deviations from a seed's mean, in shares of the group's mean; their errors.

        Both have the shape [seeds, points].
        """
        scale = abs(float(self.values.mean())) or 1.0
        count, squares = len(self.axis), self.errors**2
        squares = squares * (1 - 2 / count) + squares.sum(axis=1, keepdims=True) / count**2
        departures = self.values - self.values.mean(axis=1, keepdims=True)
        return departures / scale, np.sqrt(squares) / scale


def mean_with_errors(
    groups: Sequence[TrendGroup], measure: Callable[[TrendGroup], Array]
) -> tuple[Array, Array]:
    """Mean over groups of what is measured in each; its standard errors within replicates.

    Args:
        groups: Groups with common seeds.
        measure: Returns a value of each seed.

    Returns:
        Means and errors, each of shape [seeds].
    """
    mean = np.mean([measure(group) for group in groups], axis=0)
    if not any(group.errors.any() for group in groups):
        return mean, np.zeros_like(mean)
    random = np.random.default_rng(_SEED)
    means, errors = (
        np.concatenate([each.ravel() for each in of_groups])
        for of_groups in ([g.values for g in groups], [g.errors for g in groups])
    )
    ends = np.cumsum([group.values.size for group in groups])
    size = max(1, _MAX_PAIRS // sum(g.values.size * len(g.axis) for g in groups))
    measured = []
    for start in range(0, _DRAWS, size):  # parts, for the memory of pairs of points
        count = min(size, _DRAWS - start)
        drawn = random.normal(means, errors, (count, ends[-1]))
        parts = zip(groups, np.split(drawn, ends[:-1], axis=1), strict=True)
        draws = [replace(g, values=part.reshape(-1, *g.values.shape)) for g, part in parts]
        measured.append(np.mean([measure(each) for each in draws], axis=0))
    return mean, np.std(np.concatenate(measured), axis=0)


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

    Seeds are independent: the error of common test records moves all points of a curve alike, and
    ranks do not change.

    Args:
        claimed: The claimed direction.
        groups: Groups with common seeds.
        trend: Mean over groups and seeds of Kendall's tau, with its interval.
    """
    seeds = len(groups[0].values)
    chance = _chance_score(groups, seeds)
    if chance >= 1 - _ROUNDING:
        return "not posed", (
            f"Chance alone may order {_count_values(groups)} in {format_count(seeds, 'replicate')} "
            "perfectly; add values or replicates"
        )
    if seeds < 2:
        return "cannot tell", ONE_REPLICATE
    if trend.low <= 0 <= trend.high:
        return "cannot tell", "The interval of the trend contains 0"
    score = float(np.mean([group.scores() for group in groups]))
    if abs(score) <= chance + _ROUNDING:
        return (
            "cannot tell",
            "With so few values and replicates, chance alone may show such a trend",
        )
    rises = trend.mean > 0
    verdict: Verdict = "agrees" if rises == (claimed == "increasing") else "disagrees"
    return verdict, f"The interval of the trend lies {'above' if rises else 'below'} 0"


def _count_values(groups: Sequence[TrendGroup]) -> str:
    return format_count(max(len(np.unique(group.axis)) for group in groups), "value")


def _chance_score(groups: Sequence[TrendGroup], units: int) -> float:
    """The score that is exceeded in at most 5% of cases if the axis has no effect.

    Groups share their seeds and count as fully dependent, so their quantiles are averaged. Equal
    values of the metric make a score less extreme.
    """
    return float(np.mean([_score_quantile(group.axis, units) for group in groups]))


def _score_quantile(axis: Array, units: int) -> float:
    """Quantile at `LEVEL` of the size of the mean of independent scores of random orders.

    Scores are shares, as in `TrendGroup.scores`. The distribution is exact for up to 30 points.
    """
    ties: list[int] = np.unique(axis, return_counts=True)[1].tolist()
    points = len(axis)
    pairs = (points**2 - sum(tie**2 for tie in ties)) // 2
    if points > _MAX_EXACT:
        cubes = sum(tie * (tie - 1) * (2 * tie + 5) for tie in ties)
        variance = (points * (points - 1) * (2 * points + 5) - cubes) / 18
        return NORMAL_QUANTILE * math.sqrt(variance / units) / pairs
    probability = _discordance_probabilities(ties)
    size = units * pairs + 1
    summed = np.fft.irfft(np.fft.rfft(probability, 2 * size) ** units, 2 * size)[:size]
    # With d discordant pairs in all, the mean score is 1 - 2 d / (units * pairs).
    tails = 2 * np.cumsum(summed)[: (size + 1) // 2]
    extreme = int(np.searchsorted(tails, 1 - LEVEL + _ROUNDING, side="right"))
    return 1 - 2 * extreme / (size - 1)


def _discordance_probabilities(ties: Sequence[int]) -> Array:
    """Probability of each number of discordant pairs under random orders without an effect.

    Their generating function is a q-multinomial coefficient (Andrews, The Theory of Partitions,
    1976, theorem 3.6).

    Args:
        ties: Number of points at each value of the axis.
    """
    counts, points = [1], 0
    for tie in ties:
        for place in range(1, tie + 1):
            points += 1
            product = [*counts, *([0] * points)]  # times (1 - q^points)
            for power, count in enumerate(counts):
                product[power + points] -= count
            for power in range(place, len(product)):  # divided by (1 - q^place)
                product[power] += product[power - place]
            counts = product[: len(product) - place]
    total = sum(counts)
    return np.array([count / total for count in counts])


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


def describe_ends(axis: str, groups: Sequence[TrendGroup]) -> str:
    """First and last value of the axis in words."""
    ends = {(float(group.axis[0]), float(group.axis[-1])) for group in groups}
    if len(ends) > 1:
        return f"from the first to the last value of {axis}"
    first, last = ends.pop()
    return f"from {axis} = {format_number(first)} to {format_number(last)}"
