"""Trade-off curves: the strongest attacker against utility, with floor and raw data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sweeps.analysis.formatting import format_number, label_setting
from sweeps.analysis.pareto import Objectives
from sweeps.analysis.statistics import Interval
from sweeps.analysis.tables import (
    INTERVAL_SUFFIXES,
    METRIC_FLOORS,
    RAW_DATA_VALUES,
    Row,
    raw_data_interval,
    row_interval,
)
from sweeps.report.figures.charts import (
    DASHES,
    GREY,
    RED,
    SYMBOLS,
    Chart,
    ChartAxis,
    ChartPanel,
    ChartSeries,
    ColorScale,
    Errors,
    hover_texts,
    is_wide,
    legend_entry,
    metric_axis,
    points_series,
    ramp,
)
from sweeps.report.figures.curves import CurveSet, TradeoffCurve, curve_samples, field_numbers

STRONGEST = "privacy/attacker_balanced_accuracy"
BELOW_FLOOR_FLAG = "flag/attacker_below_floor"
FIRST_AT_FLOOR = "first whose interval\nreaches the floor"
UNDER_TRAINED = "attacker under its floor:\nunder-trained"

_MAX_PANELS = 4
_SAME_LEVEL = 0.01
_RING = "#868e96"


@dataclass(frozen=True, slots=True)
class MetricLevel:
    """A value that many points share.

    Attributes:
        value: Mean, with the widest of the points' intervals.
        suffix: Settings of these points in words, if other points have another level.
    """

    value: Interval
    suffix: str


def tradeoff_pairs(curves: CurveSet, objectives: Objectives) -> list[tuple[str, str, pd.DataFrame]]:
    """Each pair of a utility and a privacy objective to draw, with points where both are finite.

    A privacy metric is drawn if it has a floor or a raw-data value for comparison.
    """
    references = {*METRIC_FLOORS, *RAW_DATA_VALUES}
    privacy = [m for m in objectives if m.startswith("privacy/") and m in references]
    utility = [m for m in objectives if m.startswith("utility/")]
    all_points = curves.points
    pairs = []
    for y, x in itertools.product(privacy, utility):
        if {x, y} <= set(all_points.columns):
            finite = np.isfinite(all_points[[x, y]].to_numpy(dtype=np.float64)).all(axis=1)
            if finite.any():
                pairs.append((x, y, all_points.loc[finite]))
    return pairs[:_MAX_PANELS]


def tradeoff_chart(
    curves: CurveSet, pairs: Sequence[tuple[str, str, pd.DataFrame]], objectives: Objectives
) -> Chart:
    """A panel for each pair: curves with 95% intervals, floors and raw data.

    Args:
        curves: Points by curve.
        pairs: From `tradeoff_pairs`.
        objectives: Metric to `min` or `max`.
    """
    panels = [_panel(curves, points, x, y, objectives) for x, y, points in pairs]
    return Chart(panels, panel_height=440, side_legend=True)


def is_under_trained(row: Row) -> bool:
    """Whether a replicate is flagged and the attacker's interval, if any, lies under the floor.

    At full privacy half of the replicates lie under the floor by chance.
    """
    flagged = float(row.get(BELOW_FLOOR_FLAG, 0.0)) > 0
    attacked, floor = row_interval(row, STRONGEST), row_interval(row, METRIC_FLOORS[STRONGEST])
    return flagged and not attacked.high >= floor.mean


def _panel(
    curves: CurveSet, points: pd.DataFrame, x: str, y: str, objectives: Objectives
) -> ChartPanel:
    rows = points.to_dict("records")
    x_axis, y_axis = (
        metric_axis(points, metric, objectives, _reference_values(rows, metric))
        for metric in (x, y)
    )
    series = [*_level_series(points, x_axis, y, curves.fields)]
    if curves.joined:
        series += [_curve_series(curves, curve, points, x, y) for curve in curves.curves]
    else:
        series.append(_cloud_series(curves, points, x, y))
    series += _marks(curves, points, x, y)
    series += _raw_data_series(rows, x, y, log=x_axis.log)
    return ChartPanel(x_axis, y_axis, series)


def _reference_values(rows: Sequence[Row], metric: str) -> list[float]:
    floor = METRIC_FLOORS.get(metric, "")
    return [
        value
        for row in rows
        for value in (raw_data_interval(row, metric).mean, row_interval(row, floor).mean)
    ]


def _level_series(
    points: pd.DataFrame, x_axis: ChartAxis, y: str, fields: Sequence[str]
) -> Iterator[ChartSeries]:
    """Floors and raw-data values as horizontal lines, with bands for their intervals."""
    ends = list(x_axis.limits or (0.0, 1.0))
    raw = RAW_DATA_VALUES.get(y)
    for metric, name, color, dash in (
        (METRIC_FLOORS.get(y, ""), "floor", GREY, "dot"),
        (raw if isinstance(raw, str) else "", "attacker on raw data", RED, "dash"),
    ):
        for level in metric_levels(points, y, metric, fields):
            value, label = level.value, f"{name}{level.suffix}: {format_number(level.value.mean)}"
            if name == "floor" and value.high > value.low:
                band = [value.low, value.low, value.high, value.high]
                corners = [*ends, *reversed(ends)]
                yield ChartSeries(corners, band, color=color, hover=[], fill="shade")
            hover = [f"{name}{level.suffix}: {value}"] * 2
            yield ChartSeries(ends, [value.mean] * 2, label, color, line=dash, hover=hover)


def metric_levels(
    points: pd.DataFrame, y: str, metric: str, fields: Sequence[str]
) -> list[MetricLevel]:
    """Different values of a metric; values closer than 1% of the range of `y` count as one."""
    if metric not in points:
        return []
    step = _SAME_LEVEL * (float(np.ptp(points[y])) or abs(float(points[y].iloc[0])))
    known = points.loc[points[metric].notna()].sort_values(metric)
    groups = [group for _, group in known.groupby((known[metric].diff() > step).cumsum())]
    ends = [metric + suffix for suffix in INTERVAL_SUFFIXES]
    intervals = [
        Interval(
            float(group[metric].mean()),
            float(group.get(ends[0], pd.Series([math.nan])).min()),
            float(group.get(ends[1], pd.Series([math.nan])).max()),
        )
        for group in groups
    ]
    return list(map(MetricLevel, intervals, _suffixes(groups, fields)))


def _suffixes(groups: Sequence[pd.DataFrame], fields: Sequence[str]) -> list[str]:
    """The settings of each group, in one field whose values no two groups share, if any."""
    for field in fields:
        values = [sorted({*map(label_setting, group[f"config/{field}"])}) for group in groups]
        every = [value for own in values for value in own]
        if len(groups) > 1 and len(every) == len(set(every)):
            return [f", {field} = {' or '.join(own)}" for own in values]
    return [""] * len(groups)


def _hover(curves: CurveSet, points: pd.DataFrame, x: str, y: str) -> list[str]:
    metrics = [metric for metric in (x, y, METRIC_FLOORS.get(y, "")) if metric in points]
    return hover_texts(points, curves.fields, metrics)


def _curve_series(
    curves: CurveSet, curve: TradeoffCurve, points: pd.DataFrame, x: str, y: str
) -> ChartSeries:
    own = curve.points.loc[curve.points["point_id"].isin(points["point_id"])]
    symbol = curve.style if curves.styles > 1 else curve.color
    return points_series(
        own,
        x,
        y,
        _hover(curves, own, x, y),
        name=curve.label or "release",
        color=ramp(curves.colors)[curve.color],
        line=DASHES[curve.style % len(DASHES)],
        width=1.8,
        symbol=SYMBOLS[symbol % len(SYMBOLS)],
        hollow=_under_trained(own),
    )


def _cloud_series(curves: CurveSet, points: pd.DataFrame, x: str, y: str) -> ChartSeries:
    scale = None
    if curves.along is not None:
        numbers = field_numbers(points, curves.along)
        if np.isfinite(numbers).all():
            scale = ColorScale(numbers, curves.along, log=is_wide(numbers))
    return points_series(
        points,
        x,
        y,
        _hover(curves, points, x, y),
        name=f"releases ({len(points)})",
        scale=scale,
        symbol="circle",
        hollow=_under_trained(points),
    )


def _under_trained(points: pd.DataFrame) -> list[bool]:
    return [is_under_trained(row) for row in points.to_dict("records")]


def _marks(curves: CurveSet, points: pd.DataFrame, x: str, y: str) -> Iterator[ChartSeries]:
    """Rings around the first points at the floor, and the meaning of hollow markers."""
    samples = [sample for curve in curves.curves for sample in curve_samples(curve, y)]
    at_floor = [sample.point_id for sample in samples if sample.role == "full privacy"]
    ringed = points.loc[points["point_id"].isin(at_floor)]
    ring: dict[str, Any] = {"symbol": "circle", "hollow": True, "color": _RING}
    if len(ringed):
        yield ChartSeries(ringed[x], ringed[y], FIRST_AT_FLOOR, size=18, hover=[], **ring)
    if any(_under_trained(points)):
        yield legend_entry(UNDER_TRAINED, **ring)


def _raw_data_series(rows: Sequence[Row], x: str, y: str, *, log: bool) -> Iterator[ChartSeries]:
    """Stars at the utility and privacy of raw data, once for values that look alike."""
    pairs: dict[tuple[str, str], tuple[Interval, Interval]] = {}
    for row in rows:
        across, up = raw_data_interval(row, x), raw_data_interval(row, y)
        if math.isfinite(across.mean + up.mean) and (across.mean > 0 or not log):
            pairs.setdefault((f"{across.mean:.2g}", f"{up.mean:.2g}"), (across, up))
    if not pairs:
        return
    xs, ys = zip(*pairs.values(), strict=True)
    yield ChartSeries(
        [one.mean for one in xs],
        [one.mean for one in ys],
        "raw data",
        RED,
        symbol="star",
        size=14,
        x_errors=_errors(xs),
        y_errors=_errors(ys),
        hover=[f"raw data\n{x}: {a}\nattacker: {b}" for a, b in zip(xs, ys, strict=True)],
    )


def _errors(intervals: Sequence[Interval]) -> Errors:
    below = np.array([one.mean - one.low for one in intervals])
    above = np.array([one.high - one.mean for one in intervals])
    return np.nan_to_num(below), np.nan_to_num(above)
