"""Metrics along a swept field."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sweeps.analysis.formatting import format_setting, is_boolean, label_setting, shorten
from sweeps.analysis.pareto import Objectives
from sweeps.analysis.tables import METRIC_BOUNDS
from sweeps.report.figures.charts import (
    MAX_DETAILED_POINTS,
    SYMBOLS,
    Chart,
    ChartAxis,
    ChartPanel,
    ChartSeries,
    ColorScale,
    hover_texts,
    interval_errors,
    is_wide,
    metric_axis,
    ramp,
    view_limits,
)
from sweeps.report.figures.curves import field_numbers, label_settings

MAX_LINES = 12
"""Most groups of points that lines join; more are drawn as points."""

_POSITION = "position on the axis"
_MAX_TICKS = 5


@dataclass(frozen=True, slots=True)
class SweptField:
    """A swept field along which metrics are drawn.

    Attributes:
        name: The configuration field.
        others: The other swept fields in which points differ.
        log: Whether the field has a logarithmic axis.
    """

    name: str
    others: tuple[str, ...]
    log: bool


def field_chart(
    points: pd.DataFrame, swept: SweptField, metrics: Sequence[str], objectives: Objectives
) -> Chart:
    """Metrics along a swept field with 95% intervals, joined where the other fields agree.

    Args:
        points: Finished points, as `Result.points`.
        swept: The swept field.
        metrics: One panel each; the bound of a metric is a dotted line.
        objectives: Metric to `min` or `max`, for the titles.
    """
    values = points[f"config/{swept.name}"]
    positions, axis, ordered = field_positions(values, swept.name, log=swept.log)
    order = pd.to_numeric(values, errors="coerce").sort_values(kind="stable").index
    placed = points.assign(**{_POSITION: positions}).loc[order]
    groups = list(_groups(placed, swept.others))
    panels = []
    for metric in metrics:
        bound = METRIC_BOUNDS.get(metric, "")
        levels = placed[bound].tolist() if bound in placed else ()
        if len(groups) > MAX_LINES:
            series = [_cloud(placed, swept, metric)]
        else:
            series = list(_lines(groups, swept, metric, joined=ordered))
        panels.append(ChartPanel(axis, metric_axis(placed, metric, objectives, levels), series))
    return Chart(panels, panel_height=330)


def field_positions(
    values: pd.Series[Any], name: str, *, log: bool
) -> tuple[pd.Series[float], ChartAxis, bool]:
    """Positions of a field's values on an axis.

    Numbers lie at their value, or by rank if one is infinite. On a logarithmic axis zeros lie a
    decade left of the smallest positive value. Values that are not all numbers are categories.

    Returns:
        The position of each value, the axis, and whether the values are ordered.
    """
    numbers = pd.to_numeric(values, errors="coerce").astype("float64")
    if numbers.isna().any() or values.map(is_boolean).any():
        ranked = numbers.fillna(math.inf).sort_values(kind="stable").index
        words = list(dict.fromkeys(values.loc[ranked].map(format_setting)))
        ticks = list(range(len(words))), [shorten(word) for word in words]
        limits = (-0.5, len(words) - 0.5)
        positions = values.map(format_setting).map(words.index).astype("float64")
        return positions, ChartAxis(name, limits=limits, ticks=ticks), False
    if np.isinf(numbers).any():
        distinct = sorted(numbers.unique())
        labels = [label_setting(value) for value in distinct]
        axis = ChartAxis(name, ticks=(list(range(len(distinct))), labels))
        return numbers.rank(method="dense") - 1, axis, True
    log = log and bool((numbers > 0).any()) and not (numbers < 0).any()
    positions, zero_ticks = _zero_beside(numbers) if log else (numbers, None)
    view = view_limits(np.array(positions), np.array(positions), log=log)
    return positions, ChartAxis(name, log, view, zero_ticks), True


def _zero_beside(
    numbers: pd.Series[float],
) -> tuple[pd.Series[float], tuple[list[float], list[str]] | None]:
    if (numbers > 0).all():
        return numbers, None
    positive = numbers[numbers > 0]
    low, high = math.floor(math.log10(positive.min())), math.ceil(math.log10(positive.max()))
    step = max(1, math.ceil((high - low) / _MAX_TICKS))
    decades = [10.0**power for power in range(low, high + 1, step)]
    zero = float(positive.min()) / 10
    return numbers.where(numbers > 0, zero), (
        [zero, *decades],
        ["0", *(f"{decade:g}" for decade in decades)],
    )


def _groups(placed: pd.DataFrame, others: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Points that agree in the other fields, with these settings in words."""
    if not others:
        yield "", placed
        return
    for values, part in placed.groupby([f"config/{other}" for other in others], dropna=False):
        yield label_settings(dict(zip(others, values, strict=True))), part


def _lines(
    groups: Sequence[tuple[str, pd.DataFrame]], swept: SweptField, metric: str, *, joined: bool
) -> Iterator[ChartSeries]:
    bound = METRIC_BOUNDS.get(metric, "")
    colors = ramp(len(groups))
    for index, (name, points) in enumerate(groups):
        x = points[_POSITION]
        yield ChartSeries(
            x,
            points[metric],
            name,
            colors[index],
            line="solid" if joined else "",
            symbol=SYMBOLS[index % len(SYMBOLS)],
            size=7,
            y_errors=interval_errors(points, metric),
            hover=hover_texts(points, (swept.name, *swept.others), [metric]),
        )
        if joined and bound in points and points[bound].notna().any():
            hover = [f"{bound}: {value:.4g}" for value in points[bound]]
            color = colors[index]
            yield ChartSeries(x, points[bound], "", color, line="dot", width=1, hover=hover)


def _cloud(placed: pd.DataFrame, swept: SweptField, metric: str) -> ChartSeries:
    many = len(placed) > MAX_DETAILED_POINTS
    return ChartSeries(
        placed[_POSITION],
        placed[metric],
        scale=_color_scale(placed, swept.others),
        symbol="circle",
        size=6,
        y_errors=interval_errors(placed, metric),
        hover=None if many else hover_texts(placed, (swept.name, *swept.others), [metric]),
    )


def _color_scale(placed: pd.DataFrame, others: Sequence[str]) -> ColorScale | None:
    """Colors by the first of the other fields that is a number."""
    for other in others:
        numbers = field_numbers(placed, other)
        if np.isfinite(numbers).all():
            return ColorScale(numbers, other, log=is_wide(numbers))
    return None
