"""Trade-off curves to explore: what an attacker gets against what is useful."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from sweeps.analysis.formatting import setting_as_number
from sweeps.analysis.pareto import Objectives
from sweeps.analysis.statistics import Interval
from sweeps.analysis.tables import METRIC_FLOORS
from sweeps.report.figures.curves import CurveSet, TradeoffCurve
from sweeps.report.figures.panels import (
    BASELINE,
    REACHED,
    RING,
    UNDER,
    Level,
    Panel,
    baselines,
    flagged,
    floors,
    look,
    raw_marks,
    reached,
)
from sweeps.report.figures.plots import DOMINATED, THEME, bars, scaled, title, words

_COLUMNS = 2


def tradeoff_figure(curves: CurveSet, panels: Sequence[Panel], objectives: Objectives) -> go.Figure:
    """The curves with 95% intervals on both axes; each point's configuration on hover.

    Args:
        curves: Every finished point, by curve.
        panels: As `tradeoff_panels` gives, at least one.
        objectives: Metric to `min` or `max`, for the titles.
    """
    columns = min(len(panels), _COLUMNS)
    rows = math.ceil(len(panels) / columns)
    figure = make_subplots(rows=rows, cols=columns, horizontal_spacing=0.12)
    for index, panel in enumerate(panels):
        where = {"row": index // columns + 1, "col": index % columns + 1}
        for trace in _traces(curves, panel):
            shown = index == 0 and trace.showlegend is not False
            figure.add_trace(trace.update(showlegend=shown), **where)
        across, up = _axis(panel, panel.x, panel.ends), _axis(panel, panel.y, panel.heights)
        figure.update_xaxes(title_text=title(panel.x, objectives), **across, **where)
        figure.update_yaxes(title_text=title(panel.y, objectives), **up, **where)
    legend = {"orientation": "v", "yref": "paper", "y": 1, "x": 1.02, "yanchor": "top"}
    height = max(100 + 420 * rows, 560)
    layout = {"legend": legend, "margin": {"t": 40, "r": 20}, "modebar": {"orientation": "h"}}
    return figure.update_layout(template=THEME, height=height, **layout)


def _axis(panel: Panel, metric: str, ends: Sequence[float]) -> dict[str, Any]:
    settings = scaled(panel.points, metric)
    log = settings["type"] == "log"
    return {**settings, "range": [math.log10(end) if log else end for end in ends]}


def _traces(curves: CurveSet, panel: Panel) -> Iterator[go.Scatter]:
    for level in floors(panel, curves.fields):
        yield from _floor(level, panel)
    for level in baselines(panel, curves.fields):
        yield _baseline(level, panel)
    if curves.joined:
        yield from (_curve(curves, curve, panel) for curve in curves.curves)
    else:
        yield _cloud(curves, panel)
    first = reached(curves, panel)
    if len(first):
        yield _ring(first, panel)
    if flagged(panel.points).any():
        yield _legend_only(UNDER, {"symbol": "circle-open", "size": 9, "color": DOMINATED})
    yield from _raw(panel)


def _floor(level: Level, panel: Panel) -> Iterator[go.Scatter]:
    left, right = panel.ends
    low, high = level.value.low, level.value.high
    if high > low:
        yield go.Scatter(
            x=[left, right, right, left],
            y=[low, low, high, high],
            fill="toself",
            mode="lines",
            line={"width": 0},
            fillcolor="rgba(134,142,150,.25)",
            showlegend=False,
            hoverinfo="skip",
        )
    yield _across(level, panel, "floor", {"color": DOMINATED, "width": 2, "dash": "dot"})


def _baseline(level: Level, panel: Panel) -> go.Scatter:
    line = {"color": BASELINE, "width": 1.5, "dash": "dash"}
    return _across(level, panel, "attacker on raw data", line)


def _across(level: Level, panel: Panel, name: str, line: Mapping[str, Any]) -> go.Scatter:
    return go.Scatter(
        x=list(panel.ends),
        y=[level.value.mean] * 2,
        mode="lines",
        name=html.escape(level.named(name)),
        line=dict(line),
        hovertemplate=f"{html.escape(name + level.where)}: {level.value}<extra></extra>",
    )


def _raw(panel: Panel) -> Iterator[go.Scatter]:
    marks = raw_marks(panel)
    if not marks:
        return
    yield go.Scatter(
        x=[x.mean for x, _ in marks],
        y=[y.mean for _, y in marks],
        error_x=_around([x for x, _ in marks]),
        error_y=_around([y for _, y in marks]),
        mode="markers",
        name="raw data",
        marker={"symbol": "star", "size": 13, "color": BASELINE},
        text=[f"raw data<br>{html.escape(panel.x)}: {x}<br>attacker: {y}" for x, y in marks],
        hovertemplate="%{text}<extra></extra>",
        cliponaxis=False,
    )


def _around(found: Sequence[Interval]) -> dict[str, Any]:
    down = np.nan_to_num([one.mean - one.low for one in found])
    up = np.nan_to_num([one.high - one.mean for one in found])
    return {"array": up, "arrayminus": down, "thickness": 1, "width": 2}


def _curve(curves: CurveSet, curve: TradeoffCurve, panel: Panel) -> go.Scatter:
    points, looks = panel.of(curve), look(curves, curve)
    symbol = looks.symbol[0]
    return go.Scatter(
        x=points[panel.x],
        y=points[panel.y],
        error_x=bars(points, panel.x),
        error_y=bars(points, panel.y),
        mode="lines+markers",
        name=html.escape(curve.label or "release"),
        line={"color": looks.color, "width": 1.8, "dash": looks.dash[0]},
        marker={
            "symbol": [f"{symbol}-open" if flag else symbol for flag in flagged(points)],
            "size": 8,
            "color": looks.color,
        },
        text=_hover(points, curves, panel),
        hovertemplate="%{text}<extra></extra>",
    )


def _cloud(curves: CurveSet, panel: Panel) -> go.Scatter:
    points = panel.points
    return go.Scatter(
        x=points[panel.x],
        y=points[panel.y],
        error_x=_grey(bars(points, panel.x)),
        error_y=_grey(bars(points, panel.y)),
        mode="markers",
        name=f"releases ({len(points)})",
        marker={
            "symbol": ["circle-open" if flag else "circle" for flag in flagged(points)],
            "size": 8,
            **_shading(points, curves.along),
        },
        text=_hover(points, curves, panel),
        hovertemplate="%{text}<extra></extra>",
    )


def _grey(found: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if found is None else {**found, "color": DOMINATED}


def _shading(points: pd.DataFrame, field: str | None) -> dict[str, Any]:
    """Colours by a field, logarithmic where it spans two decades."""
    numbers = np.array(
        [] if field is None else points[f"config/{field}"].map(setting_as_number).tolist()
    )
    if not len(numbers) or not np.isfinite(numbers).all():
        return {"color": DOMINATED}
    log = numbers.min() > 0 and numbers.max() >= 100 * numbers.min()
    name = html.escape(f"log10 {field}" if log else f"{field}")
    return {
        "color": np.log10(numbers) if log else numbers,
        "colorscale": "Plasma",
        "colorbar": {
            "title": {"text": name, "side": "right"},
            "thickness": 12,
            "len": 0.5,
            "y": 0.3,
        },
    }


def _hover(points: pd.DataFrame, curves: CurveSet, panel: Panel) -> list[str]:
    metrics = [m for m in (panel.x, panel.y, METRIC_FLOORS.get(panel.y, "")) if m in points]
    return [words(row, curves.fields, metrics) for row in points.to_dict("records")]


def _ring(first: pd.DataFrame, panel: Panel) -> go.Scatter:
    return go.Scatter(
        x=first[panel.x],
        y=first[panel.y],
        mode="markers",
        name=REACHED.replace("\n", "<br>"),
        marker={"symbol": "circle-open", "size": 18, "color": RING, "line": {"width": 2}},
        hoverinfo="skip",
    )


def _legend_only(name: str, marker: Mapping[str, Any]) -> go.Scatter:
    shown = name.replace("\n", "<br>")
    return go.Scatter(x=[None], y=[None], mode="markers", name=shown, marker=dict(marker))
