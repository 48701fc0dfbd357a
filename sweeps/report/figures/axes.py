"""Figures of metrics along a swept field."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from sweeps.analysis.formatting import format_setting, shorten
from sweeps.analysis.pareto import Objectives
from sweeps.analysis.tables import METRIC_BOUNDS, row_config, row_interval
from sweeps.report.figures.curves import sign
from sweeps.report.figures.plots import FRONT, MANY, THEME, bars, scale, scaled, title

MOST_LINES = 12
"""Beyond so many groups of points that agree in the other fields, no lines join them."""

_PLACE = "place on the axis"
_COLUMNS = 2
_MOST_TICKS = 5
_SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up")


@dataclass(frozen=True, slots=True)
class SweptAxis:
    """A swept field to draw metrics along.

    Attributes:
        field: The configuration field.
        others: The other swept fields in which points differ.
        log: Whether the field is drawn on a logarithmic axis.
    """

    field: str
    others: tuple[str, ...]
    log: bool


@dataclass(frozen=True, slots=True)
class _Group:
    """Points that agree in the other swept fields, and how they are told from others."""

    label: str
    color: str
    symbol: str
    points: pd.DataFrame


def axis_figure(
    points: pd.DataFrame, axis: SweptAxis, metrics: Sequence[str], objectives: Objectives
) -> go.Figure:
    """Metrics along a swept field with 95% intervals, joined where the other fields agree.

    Args:
        points: Finished points, as `Result.points`.
        axis: The swept field.
        metrics: A panel for each; a bound is dotted beside the metric that it bounds.
        objectives: Metric to `min` or `max`, for the titles.
    """
    rows, columns = math.ceil(len(metrics) / _COLUMNS), min(len(metrics), _COLUMNS)
    figure = make_subplots(
        rows=rows, cols=columns, horizontal_spacing=0.12, vertical_spacing=0.25 / rows
    )
    positions, layout = place(points[f"config/{axis.field}"], log=axis.log)
    placed = points.assign(**{_PLACE: positions}).loc[_order(points[f"config/{axis.field}"])]
    joined = layout["type"] != "category"
    for index, metric in enumerate(metrics):
        where = {"row": index // _COLUMNS + 1, "col": index % _COLUMNS + 1}
        for trace in _traces(placed, axis, metric, joined=joined, first=index == 0):
            figure.add_trace(trace, **where)
        figure.update_xaxes(title_text=html.escape(axis.field), **layout, **where)
        scale_of_y = scaled(placed, metric)
        figure.update_yaxes(title_text=title(metric, objectives), **scale_of_y, **where)
    return figure.update_layout(template=THEME, height=100 + 360 * rows)


def place(values: pd.Series[Any], *, log: bool) -> tuple[pd.Series[Any], dict[str, Any]]:
    """Where a field's values lie on an axis.

    By size, or by logarithm when asked for and none is negative; zeros then lie a decade left of
    the smallest positive value. With an infinite value all are spaced by rank. Values that are
    not all numbers are categories.

    Returns:
        Each value's place, and plotly's settings for the axis.
    """
    numbers = pd.to_numeric(values, errors="coerce").astype("float64")
    if numbers.isna().any() or values.map(lambda value: isinstance(value, bool | np.bool_)).any():
        return _categories(values)
    if np.isinf(numbers).any():
        return _ranked(numbers)
    if not log or not (numbers > 0).any() or (numbers < 0).any():
        return numbers, {"type": "linear"}
    if (numbers > 0).all():
        wide = numbers.max() >= 100 * numbers.min()
        return numbers, {"type": "log", "dtick": 1} if wide else {"type": "log"}
    return _beside_zero(numbers)


def _categories(values: pd.Series[Any]) -> tuple[pd.Series[Any], dict[str, Any]]:
    words = values.map(format_setting)
    found = {html.escape(word): html.escape(shorten(word)) for word in words}
    layout: dict[str, Any] = {"type": "category"}
    if list(found) != list(found.values()):
        layout |= {"tickmode": "array", "tickvals": list(found), "ticktext": list(found.values())}
    return words.map(html.escape), layout


def _ranked(numbers: pd.Series[float]) -> tuple[pd.Series[float], dict[str, Any]]:
    """Evenly spaced by rank, as infinity is no place on a scale."""
    known = sorted(numbers.unique())
    ticks = {"tickvals": list(range(len(known))), "ticktext": [sign(value) for value in known]}
    places = {value: float(rank) for rank, value in enumerate(known)}
    return numbers.map(places), {"type": "linear", "tickmode": "array", **ticks}


def _order(values: pd.Series[Any]) -> pd.Index[Any]:
    """Rows by size; what is no number comes last and stays in its order."""
    return pd.to_numeric(values, errors="coerce").sort_values(kind="stable").index


def _beside_zero(numbers: pd.Series[float]) -> tuple[pd.Series[float], dict[str, Any]]:
    positive = numbers[numbers > 0]
    low, high = math.floor(math.log10(positive.min())), math.ceil(math.log10(positive.max()))
    step = max(1, math.ceil((high - low) / _MOST_TICKS))
    decades = [10.0**power for power in range(low, high + 1, step)]
    zero = float(positive.min()) / 10
    ticks = {
        "type": "log",
        "tickmode": "array",
        "tickvals": [zero, *decades],
        "ticktext": ["0", *(f"{decade:g}" for decade in decades)],
    }
    return numbers.where(numbers > 0, zero), ticks


def _traces(
    placed: pd.DataFrame, axis: SweptAxis, metric: str, *, joined: bool, first: bool
) -> Iterator[go.Scatter]:
    parts = list(_parts(placed, axis.others))
    if len(parts) > MOST_LINES:
        yield _cloud(placed, axis, metric, first=first)
        return
    bound = METRIC_BOUNDS.get(metric, "")
    for group in _groups(parts, axis.others):
        yield _line(group, axis, metric, joined=joined, first=first)
        if bound in placed and joined and placed[bound].notna().any():
            yield _bound(group, bound)


def _parts(
    placed: pd.DataFrame, others: Sequence[str]
) -> Iterator[tuple[tuple[Any, ...], pd.DataFrame]]:
    if not others:
        yield (), placed
        return
    yield from placed.groupby([f"config/{other}" for other in others], dropna=False)


def _groups(
    parts: Sequence[tuple[tuple[Any, ...], pd.DataFrame]], others: Sequence[str]
) -> Iterator[_Group]:
    # The middle of the scale is legible on a light page and on a dark one.
    shares = np.linspace(0.25, 0.8, len(parts))
    colors = sample_colorscale("Viridis", shares) if len(parts) > 1 else [FRONT]
    for index, (values, points) in enumerate(parts):
        label = ", ".join(f"{o} = {sign(v)}" for o, v in zip(others, values, strict=True))
        symbol = _SYMBOLS[index % len(_SYMBOLS)]
        yield _Group(html.escape(label), colors[index], symbol, points)


def _line(group: _Group, axis: SweptAxis, metric: str, *, joined: bool, first: bool) -> go.Scatter:
    return go.Scatter(
        x=group.points[_PLACE],
        y=group.points[metric],
        error_y=bars(group.points, metric),
        mode="lines+markers" if joined else "markers",
        name=group.label,
        legendgroup=group.label,
        showlegend=first and bool(group.label),
        line={"color": group.color, "width": 1.5},
        marker={"symbol": group.symbol, "size": 7},
        text=_words(group.points, axis, metric),
        hovertemplate="%{text}<extra></extra>",
    )


def _bound(group: _Group, bound: str) -> go.Scatter:
    return go.Scatter(
        x=group.points[_PLACE],
        y=group.points[bound],
        mode="lines",
        legendgroup=group.label,
        showlegend=False,
        line={"color": group.color, "width": 1, "dash": "dot"},
        hovertemplate=f"{bound}: %{{y:.4g}}<extra></extra>",
    )


def _cloud(placed: pd.DataFrame, axis: SweptAxis, metric: str, *, first: bool) -> go.Scatter:
    many = len(placed) > MANY
    kind = go.Scattergl if many else go.Scatter
    return kind(
        x=placed[_PLACE],
        y=placed[metric],
        error_y=None if many else bars(placed, metric),
        mode="markers",
        showlegend=False,
        marker={"size": 6, **_shades(placed, axis.others, shown=first)},
        text=None if many else _words(placed, axis, metric),
        hovertemplate="(%{x}, %{y:.4g})<extra></extra>" if many else "%{text}<extra></extra>",
    )


def _shades(placed: pd.DataFrame, others: Sequence[str], *, shown: bool) -> dict[str, Any]:
    """Colours by the first of the other fields that is a number."""
    for other in others:
        values = pd.to_numeric(placed[f"config/{other}"], errors="coerce").astype("float64")
        if values.notna().all():
            log = scale(placed, f"config/{other}") == "log"
            name = html.escape(f"log10 {other}" if log else other)
            return {
                "color": np.log10(values) if log else values,
                "colorscale": "Viridis",
                "showscale": shown,
                "colorbar": {"title": {"text": name, "side": "right"}, "thickness": 12},
            }
    return {"color": FRONT}


def _words(points: pd.DataFrame, axis: SweptAxis, metric: str) -> list[str]:
    fields = (axis.field, *axis.others)
    texts = []
    for row in points.to_dict("records"):
        config = row_config(row)
        lines = [f"{field} = {format_setting(config[field])}" for field in fields]
        lines.insert(0, f"{metric}: {row_interval(row, metric).plus_minus}")
        texts.append("<br>".join(map(html.escape, lines)))
    return texts
