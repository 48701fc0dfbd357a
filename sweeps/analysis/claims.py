"""Tests of published trends against measured ones.

Replicates of different points with one seed share their random numbers, so a trend is measured per
seed: Kendall's tau-b of the metric along a swept field, among points that agree in every other
field, averaged over such groups. The verdict rests on Student's interval over seeds. Kendall,
Biometrika 30 (1938).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privnets.summary import LEVEL
from sweeps.analysis.statistics import NORMAL_QUANTILE, Interval, t_interval
from sweeps.analysis.tables import varying_fields
from sweeps.analysis.text import format_number
from sweeps.study.spec import Claim

Verdict = Literal["agrees", "contradicts", "inconclusive", "undefined"]
TOLERANCE = 0.1
"""Share of a group's mean within which a metric counts as constant."""

_MAX_LISTED = 6
_OPENING: Mapping[Verdict, str] = {
    "agrees": "The measured trend agrees",
    "contradicts": "The measured trend contradicts the claim",
    "inconclusive": "Inconclusive",
}


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """Outcome of testing a claim on a sweep.

    Attributes:
        claim: The claim.
        verdict: `undefined` without a trend to measure.
        trend: Kendall's tau-b, from -1 (falling) to 1 (rising).
        change: Metric at the field's last defined value minus its first.
        sentence: The verdict in words, with the numbers it rests on.
    """

    claim: Claim
    verdict: Verdict
    trend: Interval | None
    change: Interval | None
    sentence: str


@dataclass(frozen=True, slots=True)
class _ClaimGroup:
    """Points that agree in every field but the claim's axis, in the order of this axis."""

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


@dataclass(frozen=True, slots=True)
class _ClaimSample:
    """Values on which a trend is measured.

    Attributes:
        groups: Groups of at least two points.
        pooled: Whether other fields differ within the one group, as in a random search.
        remarks: Sentences about points that were left out.
    """

    groups: list[_ClaimGroup]
    pooled: bool
    remarks: str

    @property
    def seeds(self) -> int:
        return len(self.groups[0].values)


def judge_claim(claim: Claim, replicates: pd.DataFrame) -> ClaimFinding:
    """Tests a claim on a sweep.

    `decreasing` and `increasing` agree (or are contradicted) if the interval of the trend lies on
    one side of 0 and so strong a trend is unlikely by chance. `constant` agrees if every point's
    interval lies within 10% of its group's mean. It is contradicted if the interval of some point,
    corrected for their number, lies beyond. `replicates` has a row per point and replicate.
    """
    sample = _claim_sample(claim, replicates)
    if isinstance(sample, str):
        return ClaimFinding(claim, "undefined", None, None, f"Undefined: {sample}.")
    mean = t_interval(np.mean([group.trends() for group in sample.groups], axis=0))
    # Student's interval is unlimited; tau is not.
    trend = Interval(mean.mean, max(mean.low, -1.0), min(mean.high, 1.0))
    change = t_interval(np.mean([group.changes() for group in sample.groups], axis=0))
    verdict, reason = _verdict(claim, sample, trend)
    text = _sentence(claim, sample, trend, change)
    return ClaimFinding(claim, verdict, trend, change, f"{_OPENING[verdict]}{reason}: {text}")


def _claim_sample(claim: Claim, replicates: pd.DataFrame) -> _ClaimSample | str:
    """The values on which a trend is measured, or the reason that there are none."""
    axis = f"config/{claim.axis}"
    for name in (axis, claim.metric):
        if name not in replicates.columns:
            return f"no replicate has {name}"
    rows = _matching_rows(replicates, claim)
    if rows.empty:
        return "no point meets the claim's conditions"
    points = rows.drop_duplicates("point_id").set_index("point_id")
    position = pd.to_numeric(points[axis], errors="coerce").astype("float64")
    finished = rows.loc[rows["status"] == "finished"]
    undefined_ids = finished.loc[finished[claim.metric].isna(), "point_id"].unique().tolist()
    table = finished.pivot(index="seed", columns="point_id", values=claim.metric)
    table = table.loc[:, table.notna().all() & position[table.columns].notna()]
    undefined = _undefined_at(claim, position, position[undefined_ids])
    groups, pooled = _groups(points.assign(position=position).loc[table.columns], table, axis)
    if position.isna().all():
        return f"the values of {claim.axis} have no order"
    if not groups:
        gap = f"; it is {undefined}" if undefined else ""
        return f"{claim.metric} is known at fewer than two values of {claim.axis}{gap}"
    remarks = f" It is {undefined}." if undefined else ""
    if excluded := len(points.index.difference(table.columns).difference(undefined_ids)):
        remarks += f" Points left out (failed, unfinished, no number on the axis): {excluded}."
    return _ClaimSample(groups, pooled, remarks)


def _matching_rows(replicates: pd.DataFrame, claim: Claim) -> pd.DataFrame:
    """The rows that meet the claim's conditions, with NaN for infinite metrics."""
    matches = np.ones(len(replicates), dtype=bool)
    for name, value in claim.where.items():
        column = replicates.get(f"config/{name}", pd.Series(index=replicates.index, dtype=object))
        matches &= (column.isna() if value is None else column == value).to_numpy(dtype=bool)
    rows = replicates.loc[matches]
    values = rows[claim.metric].astype("float64")
    return rows.assign(**{claim.metric: values.where(np.isfinite(values))})


def _groups(points: pd.DataFrame, table: pd.DataFrame, axis: str) -> tuple[list[_ClaimGroup], bool]:
    """Groups of equal configuration; one of all points if most would be alone in theirs."""
    others = [f"config/{field}" for field in varying_fields(points) if f"config/{field}" != axis]
    parts = [part for _, part in points.groupby(others, dropna=False)] if others else [points]
    groups = [part for part in parts if part["position"].nunique() > 1]
    pooled = 2 * sum(map(len, groups)) < len(points)
    chosen = [points] if pooled and points["position"].nunique() > 1 else groups
    ordered = [part.sort_values("position") for part in chosen]
    return [
        _ClaimGroup(p["position"].to_numpy(), table[p.index].to_numpy()) for p in ordered
    ], pooled


def _verdict(claim: Claim, sample: _ClaimSample, trend: Interval) -> tuple[Verdict, str]:
    """The verdict, and a reason other than the trend's interval."""
    if sample.seeds < 2:
        return "inconclusive", " (one replicate gives no interval)"
    if claim.trend == "constant":
        return _constancy(sample)
    if trend.low <= 0 <= trend.high:
        return "inconclusive", " (the interval of the trend contains 0)"
    if abs(trend.mean) < _chance_trend(sample):
        return "inconclusive", " (so few values and replicates show such a trend by chance)"
    rises = trend.mean > 0
    return ("agrees" if rises == (claim.trend == "increasing") else "contradicts"), ""


def _chance_trend(sample: _ClaimSample) -> float:
    """The trend that is exceeded in 5% of cases if the axis has no effect.

    Without a trend tau has variance 2(2k+5)/(9k(k-1)) over k points. Groups share their seeds and
    count as fully dependent.
    """
    sizes = [len(group.axis) for group in sample.groups]
    deviations = [math.sqrt(2 * (2 * k + 5) / (9 * k * (k - 1))) for k in sizes]
    return NORMAL_QUANTILE * float(np.mean(deviations)) / math.sqrt(sample.seeds)


def _constancy(sample: _ClaimSample) -> tuple[Verdict, str]:
    """Two one-sided tests for each point against 10% of its group's mean."""
    columns = np.concatenate([group.departures() for group in sample.groups], axis=1).T
    intervals = [t_interval(column) for column in columns]
    largest = max(intervals, key=lambda interval: abs(interval.mean))
    reason = f" (the largest departure is {largest} of the mean; at most ±{TOLERANCE} is constant)"
    if all(max(-i.low, i.high) <= TOLERANCE for i in intervals):
        return "agrees", reason
    strict = [t_interval(column, 1 - (1 - LEVEL) / len(columns)) for column in columns]
    beyond = any(i.low > TOLERANCE or i.high < -TOLERANCE for i in strict)
    return ("contradicts" if beyond else "inconclusive"), reason


def _sentence(claim: Claim, sample: _ClaimSample, trend: Interval, change: Interval) -> str:
    return (
        f"Kendall's tau of {claim.metric} along {claim.axis} is {trend} "
        f"(mean over {sample.seeds} replicates with its 95% interval; {_extent(sample)}); "
        f"{_ends(claim, sample)} it changes by {change}.{sample.remarks}"
    )


def _extent(sample: _ClaimSample) -> str:
    if sample.pooled:
        return f"{len(sample.groups[0].axis)} points together, their other fields differing"
    sizes = sorted({len(group.axis) for group in sample.groups})
    values = f"{sizes[0]} values" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} values"
    count = len(sample.groups)
    return values if count == 1 else f"{values} in each of {count} groups of equal configuration"


def _ends(claim: Claim, sample: _ClaimSample) -> str:
    ends = {(float(group.axis[0]), float(group.axis[-1])) for group in sample.groups}
    if len(ends) > 1:
        return f"from the first to the last value of {claim.axis}"
    first, last = ends.pop()
    return f"from {claim.axis} = {format_number(first)} to {format_number(last)}"


def _undefined_at(claim: Claim, every: pd.Series[float], undefined: pd.Series[float]) -> str:
    """The values of the axis at which the metric is undefined somewhere; empty without one."""
    values = sorted(undefined.dropna().unique())
    listed = ", ".join(map(format_number, values[:_MAX_LISTED]))
    more = ", ..." if len(values) > _MAX_LISTED else ""
    share = f"{len(values)} of the {every.nunique()} values of {claim.axis}"
    return f"undefined at {share} ({listed}{more})" if values else ""
