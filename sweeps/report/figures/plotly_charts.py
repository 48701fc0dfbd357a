"""Charts drawn by Plotly, to explore on pages. Every text is escaped here."""

from __future__ import annotations

import html
import math
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from sweeps.report.figures.charts import (
    MAX_DETAILED_POINTS,
    Chart,
    ChartAxis,
    ChartSeries,
    ColorScale,
    Errors,
    cut_ends,
)

_AXIS = {
    "gridcolor": "rgba(128,128,128,.25)",
    "zeroline": False,
    "automargin": True,
    "title": {"standoff": 8, "font": {"size": 13}},
}
_THEME = go.layout.Template(
    layout={
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {"align": "left"},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "#8a939c"},
        "xaxis": _AXIS,
        "yaxis": _AXIS,
    }
)
_ABOVE = {"orientation": "h", "yref": "container", "y": 1, "yanchor": "top", "x": 0}
_BESIDE = {"orientation": "v", "yref": "paper", "y": 1, "yanchor": "top", "x": 1.02}
_LEGEND_ROW = 24
_DAY_MILLISECONDS = 86_400_000


def plotly_figure(chart: Chart) -> go.Figure:
    """A chart as a Plotly figure with hover texts and one legend."""
    rows, columns = chart.shape
    figure = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=[escape(panel.title) for panel in chart.panels],
        horizontal_spacing=0.24 / max(columns, 2),
        vertical_spacing=95 / (chart.panel_height * rows) if rows > 1 else 0,
    )
    named: set[str] = set()
    for index, panel in enumerate(chart.panels):
        cell = {"row": index // columns + 1, "col": index % columns + 1}
        for series in (*panel.series, *cut_ends(panel)):
            trace = _trace(series)
            trace.showlegend = bool(series.name and len(series.x) and trace.name not in named)
            trace.legendgroup = trace.name
            trace.visible = "legendonly" if series.hidden else None
            named |= {trace.name} if trace.showlegend else set()
            if series.scale is not None:
                trace.marker.showscale = index == 0
            figure.add_trace(trace, **cell)
        figure.update_xaxes(**_axis(panel.x), **cell)
        figure.update_yaxes(**_axis(panel.y), **cell)
        if panel.square:
            figure.update_yaxes(scaleanchor=f"x{index + 1 if index else ''}", **cell)
    title_lines = max(panel.title.count("\n") + bool(panel.title) for panel in chart.panels)
    top = 20 + 20 * title_lines
    if not chart.side_legend:
        letters = sum(len(name) + 8 for name in named)
        top += 20 + _LEGEND_ROW * math.ceil(letters / 130)
    return figure.update_layout(
        template=_THEME,
        height=top + 60 + chart.panel_height * rows,
        margin={"l": 70, "r": 40, "t": top, "b": 60},
        legend=_BESIDE if chart.side_legend else _ABOVE,
        modebar={"orientation": "h" if chart.side_legend else "v"},
    ).update_annotations(font={"size": 13})


def plotly_page(chart: Chart) -> str:
    """A chart as a page that opens without a network."""
    figure = plotly_figure(chart).update_layout(paper_bgcolor="white", plot_bgcolor="white")
    body = figure.to_html(include_plotlyjs=False, full_html=False, config={"displaylogo": False})
    head = f'<meta charset="utf-8"><title>Figure</title><script>{plotly_script()}</script>'
    return f'<!DOCTYPE html><html lang="en"><head>{head}</head><body>{body}</body></html>'


@cache
def plotly_script() -> str:
    """Basic bundle of plotly.js 4.1.1 (MIT licence), which draws lines and markers."""
    path = resources.files("sweeps.report") / "templates" / "plotly-basic.min.js"
    return path.read_text(encoding="utf-8")


def escape(text: str) -> str:
    """A text that Plotly shows as it is, with its line breaks."""
    return html.escape(text).replace("\n", "<br>")


def _trace(series: ChartSeries) -> go.Scatter:
    many = len(series.x) > MAX_DETAILED_POINTS
    modes = ["lines"] * bool(series.line) + ["markers"] * bool(series.symbol)
    trace = go.Scatter(
        x=series.x,
        y=series.y,
        name=escape(series.name),
        mode="+".join(modes) or "lines",
        line={
            "color": series.color,
            "width": series.width if series.line else 0,
            "dash": series.line or "solid",
            "shape": series.step or "linear",
        },
        opacity=series.opacity,
        customdata=list(series.places) or None,
        error_x=None if many else _error_bars(series.x_errors, series),
        error_y=None if many else _error_bars(series.y_errors, series),
        **_hover(series),
        **_fill(series),
    )
    if series.symbol:
        trace.marker = _marker(series)
        trace.cliponaxis = False
    return trace


def _marker(series: ChartSeries) -> dict[str, Any]:
    names = (f"{series.symbol}-open", series.symbol)
    symbols = (
        names[not series.hollow]
        if isinstance(series.hollow, bool)
        else np.where(series.hollow, *names).tolist()
    )
    marker: dict[str, Any] = {"symbol": symbols, "size": series.size, "color": series.color}
    if series.hollow is True:
        marker["line"] = {"width": 2}
    return marker | (_colors(series.scale) if series.scale is not None else {})


def _colors(scale: ColorScale) -> dict[str, Any]:
    title = f"log10 {scale.label}" if scale.log else scale.label
    return {
        "color": np.log10(scale.values) if scale.log else scale.values,
        "colorscale": "Plasma",
        "colorbar": {
            "title": {"text": escape(title), "side": "right"},
            "thickness": 12,
            "len": 0.6,
            "yanchor": "bottom",
            "y": 0,
        },
    }


def _error_bars(errors: Errors | None, series: ChartSeries) -> dict[str, Any] | None:
    if errors is None:
        return None
    below, above = errors
    return {"array": above, "arrayminus": below, "color": series.color, "thickness": 1, "width": 2}


def _hover(series: ChartSeries) -> dict[str, Any]:
    if series.hover is None:
        name = f"{escape(series.name)}<br>" if series.name else ""
        return {"hovertemplate": name + "(%{x}, %{y:.4g})<extra></extra>"}
    if not len(series.hover):
        return {"hoverinfo": "skip"}
    texts = [escape(text) for text in series.hover]
    return {"text": texts, "hovertemplate": "%{text}<extra></extra>"}


def _fill(series: ChartSeries) -> dict[str, Any]:
    if not series.fill:
        return {}
    red, green, blue = (int(series.color[start : start + 2], 16) for start in (1, 3, 5))
    if series.fill == "shade":
        return {"fill": "toself", "fillcolor": f"rgba({red},{green},{blue},.25)"}
    pattern = {"shape": "/", "size": 7, "solidity": 0.15, "fgcolor": series.color}
    return {"fill": "toself", "fillcolor": "rgba(0,0,0,0)", "fillpattern": pattern}


def _axis(axis: ChartAxis) -> dict[str, Any]:
    settings: dict[str, Any] = {"title_text": escape(axis.label)}
    if axis.limits is not None:
        settings["range"] = [math.log10(end) if axis.log else end for end in axis.limits]
    if axis.log:
        settings |= {"type": "log", "exponentformat": "power", "tickfont": {"size": 11}}
        if axis.limits is not None and axis.limits[1] >= 100 * axis.limits[0]:
            settings["dtick"] = 1
    if axis.ticks is not None:
        positions, labels = axis.ticks
        texts = [escape(label) for label in labels]
        settings |= {"tickmode": "array", "tickvals": list(positions), "ticktext": texts}
    if axis.date:
        days = {"tickformat": "%a<br>%d %b<br>%Y", "dtick": _DAY_MILLISECONDS, "tickangle": 0}
        settings |= {"type": "date", **days}
    return settings
