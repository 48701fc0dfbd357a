"""Charts drawn by Plotly, to explore on pages. Every text is escaped here."""

from __future__ import annotations

import base64
import html
import json
import math
from functools import cache
from importlib import resources
from typing import Any, TypeAlias

import numpy as np
import plotly.graph_objects as go
from plotly.colors import make_colorscale, sequential
from plotly.utils import PlotlyJSONEncoder

from sweeps.report.figures.charts import (
    MAX_DETAILED_POINTS,
    Chart,
    ChartAxis,
    ChartSeries,
    ColorScale,
    Errors,
    cut_ends,
    is_in_view,
)

_AXIS = {
    "gridcolor": "rgba(128,128,128,.25)",
    "zeroline": False,
    "automargin": True,
    "title": {"standoff": 8, "font": {"size": 13}},
}
_THEME = {
    "layout": {
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {"align": "left"},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "#8a939c"},
        "xaxis": _AXIS,
        "yaxis": _AXIS,
    }
}
_ABOVE = {"orientation": "h", "yref": "container", "y": 1, "yanchor": "top", "x": 0}
_BESIDE = {"orientation": "v", "yref": "paper", "y": 1, "yanchor": "top", "x": 1.02}
_LEGEND_ROW = 24
_DAY_MILLISECONDS = 86_400_000


Description: TypeAlias = dict[str, Any]
"""Part of a figure in the terms of plotly.js."""


def plotly_figure(chart: Chart) -> go.Figure:
    """A chart as a Plotly figure with hover texts and one legend."""
    return go.Figure(describe_figure(chart))


def figure_json(description: Description) -> str:
    """A figure as JSON; arrays of numbers are in base64, which is shorter and exact."""
    return json.dumps(description, cls=_FigureEncoder)


def describe_figure(chart: Chart) -> Description:
    """Data and layout of `plotly_figure`, without the objects of Plotly, which are slow."""
    traces: list[Description] = []
    titles: list[Description] = []
    layout: Description = {}
    named: set[str] = set()
    for index, panel in enumerate(chart.panels):
        number = str(index + 1) if index else ""
        for series in (*panel.series, *cut_ends(panel)):
            trace = _trace(series)
            name = trace["name"]
            is_shown = series.name and len(series.x) and is_in_view(panel, series)
            trace["showlegend"] = bool(is_shown and name not in named)
            named |= {name} if trace["showlegend"] else set()
            if series.scale is not None:
                trace["marker"]["showscale"] = index == 0
            traces.append(trace | {"xaxis": f"x{number}", "yaxis": f"y{number}"})
        x, y = _place(chart, index)
        layout[f"xaxis{number}"] = _axis(panel.x) | {"domain": x, "anchor": f"y{number}"}
        layout[f"yaxis{number}"] = _axis(panel.y) | {"domain": y, "anchor": f"x{number}"}
        if panel.square:
            layout[f"yaxis{number}"]["scaleanchor"] = f"x{number}"
        if panel.title:
            titles.append(_title(panel.title, sum(x) / 2, y[1]))
    title_lines = max(panel.title.count("\n") + bool(panel.title) for panel in chart.panels)
    top = 20 + 20 * title_lines
    if not chart.side_legend:
        letters = sum(len(name) + 8 for name in named)
        top += 20 + _LEGEND_ROW * math.ceil(letters / 165)
    layout |= {
        "template": _THEME,
        "height": top + 60 + chart.panel_height * chart.shape[0],
        "margin": {"l": 70, "r": 40, "t": top, "b": 60},
        "legend": _BESIDE if chart.side_legend else _ABOVE,
        "modebar": {"orientation": "h" if chart.side_legend else "v"},
    }
    return {"data": traces, "layout": layout | ({"annotations": titles} if titles else {})}


def _place(chart: Chart, index: int) -> tuple[list[float], list[float]]:
    """Horizontal and vertical interval of a panel, in shares of the figure; rows go down."""
    rows, columns = chart.shape
    row, column = divmod(index, columns)
    gap = 0.24 / max(columns, 2)
    width = (1 - gap * (columns - 1)) / columns
    gap_below = 95 / (chart.panel_height * rows)
    height = (1 - gap_below * (rows - 1)) / rows
    left, bottom = column * (width + gap), (rows - 1 - row) * (height + gap_below)
    return [left, min(left + width, 1.0)], [bottom, min(bottom + height, 1.0)]


def _title(text: str, x: float, y: float) -> Description:
    place = {"x": x, "xanchor": "center", "xref": "paper"}
    place |= {"y": y, "yanchor": "bottom", "yref": "paper"}
    return {"text": escape(text), "showarrow": False, "font": {"size": 13}, **place}


class _FigureEncoder(PlotlyJSONEncoder):  # type: ignore[misc]
    """Plotly's encoder, with arrays of numbers in the form that plotly.js calls typed arrays."""

    def default(self, value: Any) -> Any:
        array = np.asarray(value)
        if array.dtype.kind != "f" or array.ndim != 1 or not array.size:
            return super().default(value)
        numbers = base64.b64encode(array.tobytes()).decode()
        return {"dtype": f"f{array.dtype.itemsize}", "bdata": numbers}


def plotly_page(chart: Chart) -> str:
    """A chart as a page that opens without a network."""
    figure = plotly_figure(chart)
    figure.update_layout(paper_bgcolor="white", plot_bgcolor="white")
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


def _trace(series: ChartSeries) -> Description:
    many = len(series.x) > MAX_DETAILED_POINTS
    modes = ["lines"] * bool(series.line) + ["markers"] * bool(series.symbol)
    modes += ["text"] * bool(series.texts)
    name = escape(series.name)
    settings = {
        "customdata": list(series.places) or None,
        "error_x": None if many else _error_bars(series.x_errors, series),
        "error_y": None if many else _error_bars(series.y_errors, series),
        "visible": "legendonly" if series.hidden else None,
        "marker": _marker(series) if series.symbol else None,
        "cliponaxis": False if series.symbol else None,
        "text": list(map(escape, series.texts)) or None,
        "textposition": ("middle left" if series.texts_left else "bottom right")
        if series.texts
        else None,
        "textfont": {"color": series.color, "size": 11} if series.texts else None,
    }
    return {
        "type": "scatter",
        "x": series.x,
        "y": series.y,
        "name": name,
        "legendgroup": name,
        "mode": "+".join(modes) or "lines",
        "line": {
            "color": series.color,
            "width": series.width if series.line else 0,
            "dash": series.line or "solid",
            "shape": series.step or "linear",
        },
        "opacity": series.opacity,
        **{key: value for key, value in settings.items() if value is not None},
        **_hover(series),
        **_fill(series),
    }


def _marker(series: ChartSeries) -> Description:
    names = (f"{series.symbol}-open", series.symbol)
    symbols = (
        names[not series.hollow]
        if isinstance(series.hollow, bool)
        else np.where(series.hollow, *names).tolist()
    )
    marker: Description = {"symbol": symbols, "size": series.size, "color": series.color}
    if series.hollow is True:
        marker["line"] = {"width": 2}
    return marker | (_colors(series.scale) if series.scale is not None else {})


def _colors(scale: ColorScale) -> Description:
    title = f"log10 {scale.label}" if scale.log else scale.label
    return {
        "color": np.log10(scale.values) if scale.log else scale.values,
        "colorscale": make_colorscale(sequential.Plasma),  # plotly.js has no such name
        "colorbar": {
            "title": {"text": escape(title), "side": "right"},
            "thickness": 12,
            "len": 0.6,
            "yanchor": "bottom",
            "y": 0,
        },
    }


def _error_bars(errors: Errors | None, series: ChartSeries) -> Description | None:
    if errors is None:
        return None
    below, above = errors
    return {"array": above, "arrayminus": below, "color": series.color, "thickness": 1, "width": 2}


def _hover(series: ChartSeries) -> Description:
    if series.hover is None:
        name = f"{escape(series.name)}<br>" if series.name else ""
        return {"hovertemplate": name + "(%{x}, %{y:.4g})<extra></extra>"}
    if not len(series.hover):
        return {"hoverinfo": "skip"}
    texts = [escape(text) for text in series.hover]
    return {"hovertext": texts, "hovertemplate": "%{hovertext}<extra></extra>"}


def _fill(series: ChartSeries) -> Description:
    if not series.fill:
        return {}
    red, green, blue = (int(series.color[start : start + 2], 16) for start in (1, 3, 5))
    if series.fill == "shade":
        return {"fill": "toself", "fillcolor": f"rgba({red},{green},{blue},.25)"}
    pattern = {"shape": "/", "size": 7, "solidity": 0.15, "fgcolor": series.color}
    return {"fill": "toself", "fillcolor": "rgba(0,0,0,0)", "fillpattern": pattern}


def _axis(axis: ChartAxis) -> Description:
    settings: Description = {"title": {"text": escape(axis.label)}}
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
