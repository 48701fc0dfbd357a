"""Whether measured trends agree with published ones, and on which interval that rests.

Replicates of different points with one seed share their random numbers, so a trend is measured
seed by seed: Kendall's tau-b of the metric along the axis among points that are otherwise
configured alike, averaged over such groups. The verdict rests on Student's interval of these
over seeds. Kendall, Biometrika 30 (1938).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sweeps.analysis.statistics import LEVEL, NORMAL, Interval, number, student
from sweeps.study.spec import Claim

Verdict = Literal["agrees", "contradicts", "inconclusive", "undefined"]
TOLERANCE = 0.1
"""Share of a group's mean within which a metric counts as constant."""

_LISTED = 6
_OPENING: Mapping[Verdict, str] = {
    "agrees": "The measured trend agrees",
    "contradicts": "The measured trend contradicts the claim",
    "inconclusive": "Inconclusive",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What a sweep says about a claim.

    Attributes:
        claim: The claim.
        verdict: `undefined` when there is no trend to measure; `inconclusive` when the interval
            allows either answer.
        trend: Kendall's tau-b, from -1 (falling) to 1 (rising); None when undefined.
        change: The metric's at the axis's last defined value minus its first; None when undefined.
        sentence: The verdict in words, with the numbers it rests on.
    """

    claim: Claim
    verdict: Verdict
    trend: Interval | None
    change: Interval | None
    sentence: str


@dataclass(frozen=True, slots=True)
class _Group:
    """Points configured alike but for the axis.

    Attributes:
        axis: The axis's values, rising, shape [points].
        values: The metric's, shape [seeds, points].
    """

    axis: NDArray[np.float64]
    values: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Sample:
    """What a trend is measured on.

    Attributes:
        groups: Groups of at least two points.
        pooled: Whether other fields differ within the one group, as in a random search.
        axis_values: How many different values the axis takes.
        undefined: Those of them at which the metric is undefined somewhere.
        left_out: How many points failed, lack a seed, or have no number on the axis.
    """

    groups: tuple[_Group, ...]
    pooled: bool
    axis_values: int
    undefined: tuple[float, ...]
    left_out: int

    @property
    def seeds(self) -> int:
        return len(self.groups[0].values)


def judge(claim: Claim, replicates: pd.DataFrame) -> Finding:
    """Put a claim to the test.

    `decreasing` and `increasing` agree (or are contradicted) when the interval of the trend lies
    on one side of 0 and chance alone would not bring so strong a trend from so few values.
    `constant` agrees when every point's interval lies within 10% of its group's mean, and is
    contradicted when the interval of some point, corrected for their number, lies beyond.

    Args:
        claim: The claim.
        replicates: One row per point and replicate, as `Result.replicates`.
    """
    sample = _sample(claim, replicates)
    if isinstance(sample, str):
        return Finding(claim, "undefined", None, None, f"Undefined: {sample}.")
    mean = student(_over_groups([_trends(g) for g in sample.groups]))
    # Student's interval knows no limits; tau does.
    trend = Interval(mean.mean, max(mean.low, -1.0), min(mean.high, 1.0))
    change = student(_over_groups([_changes(g) for g in sample.groups]))
    verdict, ground = _verdict(claim, sample, trend)
    text = _sentence(claim, sample, trend, change)
    return Finding(claim, verdict, trend, change, f"{_OPENING[verdict]}{ground}: {text}")


def _sample(claim: Claim, replicates: pd.DataFrame) -> _Sample | str:
    """The values a trend is measured on, or why there are none."""
    axis = f"config/{claim.axis}"
    for name in (axis, claim.metric):
        if name not in replicates.columns:
            return f"no replicate has {name}"
    rows = _matching(replicates, claim)
    if rows.empty:
        return "no point meets the claim's conditions"
    points = rows.drop_duplicates("point_id").set_index("point_id")
    position = pd.to_numeric(points[axis], errors="coerce").astype("float64")
    finished = rows.loc[rows["status"] == "finished"]
    hidden = finished.loc[finished[claim.metric].isna(), "point_id"].unique().tolist()
    table = finished.pivot(index="seed", columns="point_id", values=claim.metric)
    table = table.loc[:, table.notna().all() & position[table.columns].notna()]
    undefined = tuple(sorted(position[hidden].dropna().unique()))
    groups, pooled = _groups(points.assign(position=position).loc[table.columns], table, axis)
    if not groups:
        return _too_few(claim, position, undefined)
    left_out = len(points.index.difference(table.columns).difference(hidden))
    return _Sample(groups, pooled, position.nunique(), undefined, left_out)


def _matching(replicates: pd.DataFrame, claim: Claim) -> pd.DataFrame:
    """The rows that meet the claim's conditions, infinite metrics undefined."""
    kept = np.ones(len(replicates), dtype=bool)
    for name, value in claim.where.items():
        column = replicates.get(f"config/{name}", pd.Series(index=replicates.index, dtype=object))
        kept &= (column.isna() if value is None else column == value).to_numpy(dtype=bool)
    rows = replicates.loc[kept]
    values = rows[claim.metric].astype("float64")
    return rows.assign(**{claim.metric: values.where(np.isfinite(values))})


def _groups(
    points: pd.DataFrame, table: pd.DataFrame, axis: str
) -> tuple[tuple[_Group, ...], bool]:
    """Points configured alike; all in one where a search left most points alone."""
    fields = [str(c) for c in points.columns if str(c).startswith("config/") and c != axis]
    others = [field for field in fields if points[field].nunique(dropna=False) > 1]
    parts = [part for _, part in points.groupby(others, dropna=False)] if others else [points]
    alike = [part for part in parts if part["position"].nunique() > 1]
    pooled = 2 * sum(map(len, alike)) < len(points)
    chosen = [points] if pooled and points["position"].nunique() > 1 else alike
    ordered = [part.sort_values("position") for part in chosen]
    return tuple(
        _Group(p["position"].to_numpy(), table[p.index].to_numpy()) for p in ordered
    ), pooled


def _too_few(claim: Claim, position: pd.Series[float], undefined: tuple[float, ...]) -> str:
    if position.isna().all():
        return f"the values of {claim.axis} have no order"
    gap = f"; it is {_undefined(claim, undefined, position.nunique())}" if undefined else ""
    return f"{claim.metric} is known at fewer than two values of {claim.axis}{gap}"


def _trends(group: _Group) -> NDArray[np.float64]:
    """Kendall's tau-b of each seed; 0 where the metric does not move at all."""
    from scipy.stats import kendalltau

    found = [kendalltau(group.axis, row).statistic for row in group.values]
    return np.nan_to_num(np.array(found, dtype=np.float64))


def _changes(group: _Group) -> NDArray[np.float64]:
    """Each seed's mean at the axis's last value minus that at its first."""
    last = group.values[:, group.axis == group.axis[-1]].mean(axis=1)
    first = group.values[:, group.axis == group.axis[0]].mean(axis=1)
    return np.asarray(last - first)


def _over_groups(per_group: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.asarray(np.mean(per_group, axis=0))


def _verdict(claim: Claim, sample: _Sample, trend: Interval) -> tuple[Verdict, str]:
    """The verdict, and what more than the trend's interval it rests on."""
    if sample.seeds < 2:
        return "inconclusive", " (one replicate gives no interval)"
    if claim.trend == "constant":
        return _constancy(sample)
    sign = -1.0 if claim.trend == "decreasing" else 1.0
    if trend.low <= 0 <= trend.high:
        return "inconclusive", " (the interval of the trend holds 0)"
    if abs(trend.mean) < _by_chance(sample):
        return "inconclusive", " (so few values and replicates show such a trend by chance)"
    return ("agrees" if sign * trend.mean > 0 else "contradicts"), ""


def _by_chance(sample: _Sample) -> float:
    """How strong a trend is expected in 5% of cases where the axis does nothing.

    Without a trend tau has variance 2(2k+5)/(9k(k-1)) over k points; groups share their seeds, so
    they are taken as fully dependent.
    """
    sizes = [len(group.axis) for group in sample.groups]
    deviations = [math.sqrt(2 * (2 * k + 5) / (9 * k * (k - 1))) for k in sizes]
    return NORMAL * float(np.mean(deviations)) / math.sqrt(sample.seeds)


def _constancy(sample: _Sample) -> tuple[Verdict, str]:
    """Two one-sided tests for each point against 10% of its group's mean."""
    columns = np.concatenate([_departures(group) for group in sample.groups], axis=1).T
    largest = max((student(column) for column in columns), key=lambda i: abs(i.mean))
    ground = (
        f" (the largest departure from the mean is {largest} of it, within ±{TOLERANCE} sought)"
    )
    if all(max(-i.low, i.high) <= TOLERANCE for i in map(student, columns)):
        return "agrees", ground
    strict = [student(column, 1 - (1 - LEVEL) / len(columns)) for column in columns]
    beyond = any(i.low > TOLERANCE or i.high < -TOLERANCE for i in strict)
    return ("contradicts" if beyond else "inconclusive"), ground


def _departures(group: _Group) -> NDArray[np.float64]:
    """Each seed's departures from its own mean, as shares of the group's mean [seeds, points]."""
    scale = abs(float(group.values.mean())) or 1.0
    return np.asarray((group.values - group.values.mean(axis=1, keepdims=True)) / scale)


def _sentence(claim: Claim, sample: _Sample, trend: Interval, change: Interval) -> str:
    parts = [
        f"Kendall's tau of {claim.metric} along {claim.axis} is {trend} "
        f"(mean over {sample.seeds} replicates with its 95% interval; {_extent(sample)}); "
        f"{_ends(claim, sample)} it changes by {change}."
    ]
    if sample.undefined:
        parts.append(f"It is {_undefined(claim, sample.undefined, sample.axis_values)}.")
    if sample.left_out:
        parts.append(
            f"Points left out (failed, unfinished, no number on the axis): {sample.left_out}."
        )
    return " ".join(parts)


def _extent(sample: _Sample) -> str:
    if sample.pooled:
        return f"{len(sample.groups[0].axis)} points together, their other fields differing"
    sizes = sorted({len(group.axis) for group in sample.groups})
    values = f"{sizes[0]} values" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} values"
    count = len(sample.groups)
    return values if count == 1 else f"{values} in each of {count} groups configured alike"


def _ends(claim: Claim, sample: _Sample) -> str:
    ends = {(float(group.axis[0]), float(group.axis[-1])) for group in sample.groups}
    if len(ends) > 1:
        return f"from the first to the last value of {claim.axis}"
    first, last = ends.pop()
    return f"from {claim.axis} = {number(first)} to {number(last)}"


def _undefined(claim: Claim, values: tuple[float, ...], of: int) -> str:
    listed = ", ".join(map(number, values[:_LISTED])) + (", ..." if len(values) > _LISTED else "")
    return f"undefined at {len(values)} of the {of} values of {claim.axis} ({listed})"
