"""Charts of metrics: the Pareto front with its files, and metrics along a field."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from privnets.contract import Direction
from sweeps.analysis.flags import is_flagged
from sweeps.analysis.obfuscation import is_obfuscated
from sweeps.analysis.pareto import Objectives, comparable_points
from sweeps.analysis.results import is_only_searched
from sweeps.analysis.tables import METRIC_BOUNDS, floor_of, varying_fields
from sweeps.analysis.text import (
    field_label,
    format_number,
    format_setting,
    is_boolean,
    label_setting,
    metric_label,
    shorten,
)
from sweeps.report.figures.charts import (
    BLUE,
    BOUND,
    GREY,
    KNOB_RATIO,
    MAX_DETAILED_POINTS,
    ORANGE,
    PURPLE,
    SEARCHED,
    SYMBOLS,
    Chart,
    ChartAxis,
    ChartPanel,
    ChartSeries,
    axis_pairs,
    hover_texts,
    is_wide,
    metric_axis,
    points_series,
    ramp,
    view_limits,
)
from sweeps.report.figures.curves import (
    TradeoffCurve,
    field_scale,
    group_points,
    label_settings,
    most_varied,
    obfuscation_curves,
)
from sweeps.report.figures.plotly_charts import plotly_page
from sweeps.report.figures.png_charts import IMAGE_KINDS, draw_chart, figure_file
from sweeps.report.figures.tradeoff import (
    level_series,
    obfuscation_series,
    setting_texts,
    upright_floors,
)

MAX_LINES = 12
"""Largest number of groups of points that lines join; more are drawn as points."""

_POINTS: Mapping[str, dict[str, Any]] = {
    "Pareto front": {"color": ORANGE, "symbol": "circle", "size": 9},
    SEARCHED: {"color": GREY, "symbol": "circle", "size": 5, "opacity": 0.5},
    "dominated": {"color": GREY, "symbol": "circle", "size": 6, "opacity": 0.7},
    "flagged": {"color": GREY, "symbol": "circle", "size": 8, "hollow": True},
}
_BOUND: dict[str, Any] = {"color": BLUE, "symbol": "diamond", "hollow": True, "size": 10}
_RANK = "rank, best first"
_POSITION = "position on the axis"
_MAX_TICKS, _MAX_VALUE_TICKS = 5, 8
_STEPS: Mapping[Direction, Literal["hv", "vh"]] = {"min": "hv", "max": "vh"}


def front_chart(
    points: pd.DataFrame,
    front: pd.DataFrame,
    objectives: Objectives,
    attained: pd.DataFrame | None = None,
    axes: tuple[str, str] | None = None,
) -> Chart:
    """The front among all points, with 95% intervals and theoretical bounds.

    Each pair of objectives has a panel; a single objective is drawn by rank. Points with a raised
    flag are hollow; those that a search did not confirm are small and have no intervals. `attained`
    is the median attainment surface of two objectives. Trivial obfuscations are dashed curves.
    `axes` are two other metrics, x and y.
    """
    rows, _ = comparable_points(points, objectives, include_flagged=True)
    names, pairs = list(objectives), axis_pairs(objectives)
    if len(names) == 1:
        rank = rows[names[0]].rank(method="first", ascending=objectives[names[0]] == "min")
        rows, pairs = rows.assign(**{_RANK: rank}), [(_RANK, names[0])]
    pairs = pairs if axes is None else [axes]
    best, flagged = rows["point_id"].isin(front["point_id"]), is_flagged(rows)
    searching = is_only_searched(rows) & ~best & ~flagged
    # Only the front's bounds are drawn; others would stretch the axes.
    bounds = rows.columns.intersection([*METRIC_BOUNDS.values()])
    rows = rows.assign(**{bound: rows[bound].where(best) for bound in bounds})
    fields = varying_fields(points)
    parts = {
        SEARCHED: rows.loc[searching],
        "dominated": rows.loc[~best & ~flagged & ~searching & ~is_obfuscated(rows)],
        "flagged": rows.loc[~best & flagged],
        "Pareto front": rows.loc[best],
    }
    knob = most_varied(rows.loc[~is_obfuscated(rows)], fields)
    texts = setting_texts(rows.loc[best], [knob] if knob else [])
    is_noise = is_obfuscated(rows.loc[best])
    texts = ["" if noise else text for text, noise in zip(texts, is_noise, strict=False)]
    named = f", {field_label(knob)} beside" if texts else ""
    # Where nothing else is swept, the knob is what tells the other points apart.
    beside = {"Pareto front": texts}
    if fields == [knob]:
        beside["dominated"] = setting_texts(parts["dominated"], fields)
    panels = []
    for x, y in pairs:
        x_axis, y_axis = (_front_axis(rows, metric, objectives) for metric in (x, y))
        series: list[ChartSeries] = []
        if len(rows):
            series += level_series(rows, x_axis.limits or (0, 1), y, fields)
            series += upright_floors(rows, y_axis.limits or (0, 1), x, fields)
        if len(names) == 2 and {x, y} == set(names):
            if attained is not None:
                name = "attained by half the replicates"
                edge = front_edge(attained, x, y, objectives, name, PURPLE, "dash")
                series.append(replace(edge, hidden=True))
            name = "edge of the front"
            series.append(
                front_edge(parts["Pareto front"], x, y, objectives, name, ORANGE, "solid")
            )
        series += [
            _points(part, x, y, objectives, fields, name, beside.get(name, ()))
            for name, part in parts.items()
            if len(part) or name in ("dominated", "Pareto front")
        ]
        series[-1] = replace(
            series[-1],
            name=f"{series[-1].name}{named}",
            hollow=flagged[best].tolist(),
        )
        series += obfuscation_series(obfuscation_curves(rows), (x, y, rows))
        series += _bounds(rows.loc[best], x, y)
        panels.append(ChartPanel(x_axis, y_axis, series))
    return Chart(panels, columns=3, panel_height=420)


def _front_axis(rows: pd.DataFrame, metric: str, objectives: Objectives) -> ChartAxis:
    """Axis that shows all points but those that a search tried far from what it confirmed."""
    searching, shown = is_only_searched(rows), rows.loc[~is_only_searched(rows)]
    floors = shown[floor_of(metric)].tolist() if floor_of(metric) in shown else []
    pale = rows.loc[searching, metric].tolist()
    if metric.startswith("privacy/"):
        return metric_axis(shown, metric, objectives, floors, pale=pale)
    return metric_axis(shown, metric, objectives, pale=[*pale, *floors])


def save_chart(chart: Chart, path: Path) -> None:
    """Writes a chart as `.html`, to explore offline, or as a file of `IMAGE_KINDS`, to print."""
    kind = IMAGE_KINDS.get(path.suffix.lower())
    if kind is not None:
        path.write_bytes(figure_file(draw_chart(chart), kind))
    else:
        path.write_text(plotly_page(chart), encoding="utf-8")


def _points(
    rows: pd.DataFrame,
    x: str,
    y: str,
    objectives: Objectives,
    fields: list[str],
    name: str,
    texts: Sequence[str],
) -> ChartSeries:
    detailed = len(rows) <= MAX_DETAILED_POINTS
    hover = hover_texts(rows, fields, list(objectives)) if detailed else None
    series = points_series(rows, x, y, hover, name=f"{name} ({len(rows)})", **_POINTS[name])
    series = replace(series, texts=texts)
    return replace(series, x_errors=None, y_errors=None) if name == SEARCHED else series


def front_edge(
    corners: pd.DataFrame, x: str, y: str, objectives: Objectives, name: str, color: str, dash: str
) -> ChartSeries:
    """Boundary of the dominated area; its steps run through dominated places."""
    ordered = corners.sort_values([x, y])
    step = _STEPS[objectives[x]]
    return ChartSeries(ordered[x], ordered[y], name, color, line=dash, step=step, hover=[])


def _bounds(front: pd.DataFrame, x: str, y: str) -> Iterator[ChartSeries]:
    """Theoretical bounds of the metrics of both axes."""
    x_bound, y_bound = METRIC_BOUNDS.get(x, ""), METRIC_BOUNDS.get(y, "")
    for bound, across, up in ((x_bound, x_bound, y), (y_bound, x, y_bound)):
        if bound in front and front[bound].notna().any():
            hover = [f"{metric_label(bound)}: {format_number(value)}" for value in front[bound]]
            yield ChartSeries(front[across], front[up], BOUND, hover=hover, **_BOUND)


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
        points: Finished points, as `Result.points`; those that a search did not confirm are small
            and have no intervals.
        fields: The swept field, then the other swept fields in which points differ.
        metrics: One panel each; the bound of a metric is a dotted line.
        objectives: Metric to `min` or `max`, for the titles.
        log: Whether the field has a logarithmic axis.
    """
    values = points[f"config/{fields[0]}"]
    positions, axis, ordered = field_positions(values, fields[0], log=log)
    order = pd.to_numeric(values, errors="coerce").sort_values(kind="stable").index
    placed = points.assign(**{_POSITION: positions}).loc[order]
    searching = is_only_searched(placed)
    searched, measured = placed.loc[searching], placed.loc[~searching]
    groups = group_points(measured, fields[1:])
    panels = []
    for metric in metrics:
        series = []
        if len(searched):
            name = f"{SEARCHED} ({len(searched)})"
            cloud = _cloud(searched, fields, metric, name=name, **_POINTS[SEARCHED])
            series.append(replace(cloud, y_errors=None))
        if len(groups) > MAX_LINES:
            style: dict[str, Any] = {"symbol": "circle", "size": 6}
            scale = field_scale(measured, fields[1:])
            series.append(_cloud(measured, fields, metric, scale=scale, **style))
        else:
            series += _lines(groups, fields, metric, joined=ordered)
        panels.append(ChartPanel(axis, metric_axis(placed, metric, objectives), series))
    return Chart(panels, panel_height=330)


def field_positions(
    values: pd.Series[Any], name: str, *, log: bool
) -> tuple[pd.Series[float], ChartAxis, bool]:
    """Positions of a field's values on an axis, the axis, and whether the values are ordered.

    Numbers lie at their value, or by rank if one is infinite. On a logarithmic axis zeros lie a
    decade left of the smallest positive value. Values that are not all numbers are categories.
    """
    label = field_label(name)
    numbers = pd.to_numeric(values, errors="coerce").astype("float64")
    if numbers.isna().any() or values.map(is_boolean).any():
        words = list(dict.fromkeys(values.loc[numbers.sort_values().index].map(format_setting)))
        axis = _ranked_axis(label, [shorten(word) for word in words])
        return values.map(format_setting).map(words.index).astype("float64"), axis, False
    if np.isinf(numbers).any():
        axis = _ranked_axis(label, [label_setting(value) for value in sorted(numbers.unique())])
        return numbers.rank(method="dense") - 1, axis, True
    positive = np.array(numbers[numbers > 0])
    log = (log or is_wide(positive, KNOB_RATIO)) and len(positive) > 0 and not (numbers < 0).any()
    positions, ticks = _zero_beside(numbers) if log else (numbers, None)
    if log and numbers.nunique() <= _MAX_VALUE_TICKS:
        places = [float(position) for position in sorted(positions.unique())]
        ticks = places, [format_setting(value) for value in sorted(numbers.unique())]
    limits = view_limits(np.array(positions), log=log)
    return positions, ChartAxis(label, log, limits, ticks), True


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
            hover = [f"{BOUND}: {value:.4g}" for value in points[bound]]
            x, y = points[_POSITION], points[bound]
            yield ChartSeries(x, y, "", color, line="dot", width=1, hover=hover)


def _cloud(placed: pd.DataFrame, fields: Sequence[str], metric: str, **style: Any) -> ChartSeries:
    """Points without lines."""
    detailed = len(placed) <= MAX_DETAILED_POINTS
    hover = hover_texts(placed, fields, [metric]) if detailed else None
    return points_series(placed, _POSITION, metric, hover, **style)
