"""Charts of metrics: the Pareto front with its files, metrics along a field, and ROC curves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from plotly.colors import qualitative

from privnets.contract import Direction
from privnets.points import TradeoffPoint
from sweeps.analysis.flags import is_flagged
from sweeps.analysis.pareto import Objectives, comparable_points
from sweeps.analysis.tables import METRIC_BOUNDS, varying_fields
from sweeps.analysis.text import (
    format_number,
    format_setting,
    is_boolean,
    label_setting,
    shorten,
)
from sweeps.report.figures.charts import (
    BLUE,
    GREY,
    MAX_DETAILED_POINTS,
    ORANGE,
    PURPLE,
    SYMBOLS,
    Chart,
    ChartAxis,
    ChartPanel,
    ChartSeries,
    hover_texts,
    metric_axis,
    points_series,
    ramp,
    view_limits,
)
from sweeps.report.figures.curves import TradeoffCurve, field_scale, group_points, label_settings
from sweeps.report.figures.plotly_charts import plotly_figure
from sweeps.report.figures.png_charts import chart_png

MAX_LINES = 12
"""Largest number of groups of points that lines join; more are drawn as points."""

_POINTS: Mapping[str, dict[str, Any]] = {
    "Pareto front": {"color": ORANGE, "symbol": "circle", "size": 9},
    "dominated": {"color": GREY, "symbol": "circle", "size": 6, "opacity": 0.7},
    "flagged": {"color": GREY, "symbol": "circle", "size": 8, "hollow": True},
}
_BOUND: dict[str, Any] = {"color": BLUE, "symbol": "diamond", "hollow": True, "size": 10}
_RANK = "rank, best first"
_POSITION = "position on the axis"
_MAX_TICKS = 5
_ROC_PREFIX, _LOWEST_RATE = "roc/", 1e-3
_STEPS: Mapping[Direction, Literal["hv", "vh"]] = {"min": "hv", "max": "vh"}


def front_chart(
    points: pd.DataFrame,
    front: pd.DataFrame,
    objectives: Objectives,
    attained: pd.DataFrame | None = None,
) -> Chart:
    """The front among all points, with 95% intervals and theoretical bounds.

    Each pair of objectives has a panel; a single objective is drawn by rank. Points with a raised
    flag are hollow. `attained` is the median attainment surface of two objectives.
    """
    rows, _ = comparable_points(points, objectives, include_flagged=True)
    names = list(objectives)
    pairs = list(itertools.combinations(names, 2))
    if len(names) == 1:
        rank = rows[names[0]].rank(method="first", ascending=objectives[names[0]] == "min")
        rows, pairs = rows.assign(**{_RANK: rank}), [(_RANK, names[0])]
    best, flagged = rows["point_id"].isin(front["point_id"]), is_flagged(rows)
    fields = varying_fields(points)
    panels = []
    for x, y in pairs:
        series = []
        if attained is not None:
            name = "attained by half the replicates"
            series.append(_edge(attained, objectives, name, PURPLE, "dash"))
        dominated, left_out = rows.loc[~best & ~flagged], rows.loc[~best & flagged]
        series.append(_points(dominated, x, y, objectives, fields, "dominated"))
        if len(left_out):
            series.append(_points(left_out, x, y, objectives, fields, "flagged"))
        if len(names) == 2:
            series.append(_edge(rows.loc[best], objectives, "edge of the front", ORANGE, "solid"))
        shown = _points(rows.loc[best], x, y, objectives, fields, "Pareto front")
        series.append(replace(shown, hollow=flagged[best].tolist()))
        series += _bounds(rows.loc[best], x, y)
        x_axis, y_axis = (metric_axis(rows, metric, objectives) for metric in (x, y))
        panels.append(ChartPanel(x_axis, y_axis, series))
    return Chart(panels, columns=3, panel_height=420)


def save_front(chart: Chart, path: Path) -> None:
    """Writes the chart of a front as `.html`, to explore offline, or `.png`, to print."""
    if path.suffix.lower() == ".png":
        path.write_bytes(chart_png(chart))
    else:
        figure = plotly_figure(chart).update_layout(paper_bgcolor="white", plot_bgcolor="white")
        figure.write_html(path, include_plotlyjs=True, config={"displaylogo": False})


def _points(
    rows: pd.DataFrame, x: str, y: str, objectives: Objectives, fields: list[str], name: str
) -> ChartSeries:
    hover = hover_texts(rows, fields, list(objectives))
    return points_series(rows, x, y, hover, name=f"{name} ({len(rows)})", **_POINTS[name])


def _edge(
    corners: pd.DataFrame, objectives: Objectives, name: str, color: str, dash: str
) -> ChartSeries:
    """Boundary of the dominated area; its steps run through dominated places."""
    x, y = objectives
    ordered = corners.sort_values([x, y])
    step = _STEPS[objectives[x]]
    return ChartSeries(ordered[x], ordered[y], name, color, line=dash, step=step, hover=[])


def _bounds(front: pd.DataFrame, x: str, y: str) -> Iterator[ChartSeries]:
    """Theoretical bounds of the metrics of both axes."""
    x_bound, y_bound = METRIC_BOUNDS.get(x, ""), METRIC_BOUNDS.get(y, "")
    for bound, across, up in ((x_bound, x_bound, y), (y_bound, x, y_bound)):
        if bound in front and front[bound].notna().any():
            hover = [f"{bound}: {format_number(value)}" for value in front[bound]]
            name = f"{bound}, which theory allows"
            yield ChartSeries(front[across], front[up], name, hover=hover, **_BOUND)


def field_chart(
    points: pd.DataFrame,
    fields: Sequence[str],
    metrics: Sequence[str],
    objectives: Objectives,
    *,
    log: bool,
) -> Chart:
    """Metrics along a swept field with 95% intervals, joined where the other fields agree.

    Args:
        points: Finished points, as `Result.points`.
        fields: The swept field, then the other swept fields in which points differ.
        metrics: One panel each; the bound of a metric is a dotted line.
        objectives: Metric to `min` or `max`, for the titles.
        log: Whether the field has a logarithmic axis.
    """
    values = points[f"config/{fields[0]}"]
    positions, axis, ordered = field_positions(values, fields[0], log=log)
    order = pd.to_numeric(values, errors="coerce").sort_values(kind="stable").index
    placed = points.assign(**{_POSITION: positions}).loc[order]
    groups = group_points(placed, fields[1:])
    panels = []
    for metric in metrics:
        if len(groups) > MAX_LINES:
            series = [_cloud(placed, fields, metric)]
        else:
            series = list(_lines(groups, fields, metric, joined=ordered))
        panels.append(ChartPanel(axis, metric_axis(placed, metric, objectives), series))
    return Chart(panels, panel_height=330)


def field_positions(
    values: pd.Series[Any], name: str, *, log: bool
) -> tuple[pd.Series[float], ChartAxis, bool]:
    """Positions of a field's values on an axis, the axis, and whether the values are ordered.

    Numbers lie at their value, or by rank if one is infinite. On a logarithmic axis zeros lie a
    decade left of the smallest positive value. Values that are not all numbers are categories.
    """
    numbers = pd.to_numeric(values, errors="coerce").astype("float64")
    if numbers.isna().any() or values.map(is_boolean).any():
        words = list(dict.fromkeys(values.loc[numbers.sort_values().index].map(format_setting)))
        axis = _ranked_axis(name, [shorten(word) for word in words])
        return values.map(format_setting).map(words.index).astype("float64"), axis, False
    if np.isinf(numbers).any():
        axis = _ranked_axis(name, [label_setting(value) for value in sorted(numbers.unique())])
        return numbers.rank(method="dense") - 1, axis, True
    log = log and bool((numbers > 0).any()) and not (numbers < 0).any()
    positions, ticks = _zero_beside(numbers) if log else (numbers, None)
    limits = view_limits(np.array(positions), np.array(positions), log=log)
    return positions, ChartAxis(name, log, limits, ticks), True


def _ranked_axis(name: str, labels: list[str]) -> ChartAxis:
    """Axis with labels at 0, 1, 2 and so on."""
    return ChartAxis(name, limits=(-0.5, len(labels) - 0.5), ticks=(range(len(labels)), labels))


def _zero_beside(
    numbers: pd.Series[float],
) -> tuple[pd.Series[float], tuple[list[float], list[str]] | None]:
    """Positions and ticks of a logarithmic axis with a place for zeros."""
    if (numbers > 0).all():
        return numbers, None
    positive = numbers[numbers > 0]
    low, high = math.floor(math.log10(positive.min())), math.ceil(math.log10(positive.max()))
    step = max(1, math.ceil((high - low) / _MAX_TICKS))
    decades = [10.0**power for power in range(low, high + 1, step)]
    zero = float(positive.min()) / 10
    labels = ["0", *(f"{decade:g}" for decade in decades)]
    return numbers.where(numbers > 0, zero), ([zero, *decades], labels)


def _lines(
    groups: Sequence[TradeoffCurve], fields: Sequence[str], metric: str, *, joined: bool
) -> Iterator[ChartSeries]:
    """A line for each group, and one for the bound of the metric."""
    bound = METRIC_BOUNDS.get(metric, "")
    symbols = itertools.cycle(SYMBOLS)
    for (settings, points), color in zip(groups, ramp(len(groups)), strict=True):
        style = {"color": color, "line": "solid" if joined else "", "symbol": next(symbols)}
        hover, name = hover_texts(points, fields, [metric]), label_settings(settings)
        yield points_series(points, _POSITION, metric, hover, name=name, size=7, **style)
        if joined and bound in points and points[bound].notna().any():
            hover = [f"{bound}: {value:.4g}" for value in points[bound]]
            x, y = points[_POSITION], points[bound]
            yield ChartSeries(x, y, "", color, line="dot", width=1, hover=hover)


def _cloud(placed: pd.DataFrame, fields: Sequence[str], metric: str) -> ChartSeries:
    """Points of too many groups, colored by the first of the other fields that is a number."""
    detailed = len(placed) <= MAX_DETAILED_POINTS
    hover = hover_texts(placed, fields, [metric]) if detailed else None
    style: dict[str, Any] = {"symbol": "circle", "size": 6}
    scale = field_scale(placed, fields[1:])
    return points_series(placed, _POSITION, metric, hover, scale=scale, **style)


def roc_chart(points: Sequence[TradeoffPoint], titles: Mapping[str, str]) -> Chart | None:
    """True- against false-positive rate of each attack, one panel per point; None without curves.

    Curves under `roc/` have true-positive rates at false-positive rates in thousandths. Both axes
    are logarithmic, as small rates matter most (Carlini et al., arXiv 2112.03570); rates of zero
    are not drawn. `titles` has the panel's title of each `point_id`.
    """
    names = sorted({key for p in points for key in p.curves if key.startswith(_ROC_PREFIX)})
    colors = dict(zip(names, qualitative.Plotly * len(names), strict=False))
    limits, ends = (_LOWEST_RATE, 10**0.02), [_LOWEST_RATE, 1]
    x_axis, y_axis = (
        ChartAxis(f"{kind}-positive rate", True, limits) for kind in ("false", "true")
    )
    panels = []
    for point in points:
        series = [ChartSeries(ends, ends, "chance", line="dash", width=1, hover=[])]
        for name in sorted(colors.keys() & point.curves.keys()):
            curve, attack = point.curves[name], name.removeprefix(_ROC_PREFIX)
            rates = [step / 1000 for step in curve.steps]
            series.append(ChartSeries(rates, curve.values, attack, colors[name], line="solid"))
        if len(series) > 1:
            panels.append(ChartPanel(x_axis, y_axis, series, titles[point.point_id]))
    return Chart(panels) if panels else None
