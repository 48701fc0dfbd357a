"""Metrics along a swept field."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sweeps.analysis.pareto import Objectives
from sweeps.analysis.tables import METRIC_BOUNDS
from sweeps.analysis.text import format_setting, is_boolean, label_setting, shorten
from sweeps.report.figures.charts import (
    MAX_DETAILED_POINTS,
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

MAX_LINES = 12
"""Largest number of groups of points that lines join; more are drawn as points."""

_POSITION = "position on the axis"
_MAX_TICKS = 5


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
