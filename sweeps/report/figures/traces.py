"""Figures in the terms of Plotly: traces, axes, and panels with one legend.

A figure is a mapping of Plotly's `data` and `layout`. Pages hold it as JSON, `png` draws it by
Matplotlib. Every text is escaped here.
"""

from __future__ import annotations

import base64
import html
import json
import math
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike, NDArray
from plotly.colors import make_colorscale, sequential
from plotly.utils import PlotlyJSONEncoder

ORANGE, GREY, BLUE, RED = "#e8590c", "#7a848e", "#1c7ed6", "#c2255c"
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon")
DASHES = ("solid", "dash", "dot", "dashdot")
MAX_DETAILED_POINTS = 1000
"""A trace of more points is drawn without intervals."""

FLOOR, BASELINE, BOUND = "floor: no release", "baseline: raw data", "bound: theory"
TRIVIAL = "floor: trivial model"
"""Names of reference values in every figure."""

SEARCHED = "searching, not confirmed"
"""Name of the points that a search tried, beside those that it confirmed."""

CUT, BEYOND = "interval goes on", "beyond the edge"
"""Names of the arrows at intervals that an edge cuts, and at points that lie beyond it."""

Description: TypeAlias = dict[str, Any]
"""Part of a figure, or a whole one, in the terms of plotly.js."""

Errors = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Lengths of intervals below and above points."""

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
_PLASMA = make_colorscale(sequential.Plasma)  # plotly.js has no such name
_ARROWS = {"x": ("triangle-left", "triangle-right"), "y": ("triangle-down", "triangle-up")}
_TEXT_ROOM = 0.04, 0.027
"""Shares of a panel's width and height within which texts beside points cover each other."""

_DAY = {"type": "date", "tickformat": "%a<br>%d %b<br>%Y", "dtick": 86_400_000, "tickangle": 0}


def trace(
    x: Any,
    y: Any,
    name: str = "",
    color: str = GREY,
    *,
    line: str = "",
    step: str = "linear",
    width: float = 1.5,
    symbol: str = "",
    size: float = 8,
    hollow: bool | Sequence[bool] = False,
    errors: tuple[Errors | None, Errors | None] = (None, None),
    hover: Sequence[str] | None = None,
    texts: Sequence[str] = (),
    shade: bool = False,
    **settings: Any,
) -> Description:
    """Points that are drawn alike.

    Args:
        x: Horizontal positions; datetimes on a date axis.
        y: Vertical positions; NaN interrupts a line.
        name: Legend entry; equal names have one entry.
        color: As `#rrggbb`.
        line: Dash of the line through the points; empty for none.
        step: Shape of the line: `linear`, or `hv` and `vh` for steps.
        width: Width of the line in pixels.
        symbol: Marker; empty for none.
        size: Size of markers in pixels.
        hollow: Whether markers are hollow, for all or for each point.
        errors: Intervals of `x` and of `y`.
        hover: Text of each point; None shows its position, an empty list nothing.
        texts: Text beside each point; none if empty.
        shade: Whether the polygon through the points is filled.
        settings: Other settings of Plotly's scatter trace.
    """
    modes = {"lines": line, "markers": symbol, "text": len(texts)}
    own: Description = {
        "type": "scatter",
        "x": x,
        "y": y,
        "name": escape(name),
        "legendgroup": escape(name),
        "mode": "+".join(mode for mode, is_used in modes.items() if is_used) or "lines",
        "line": {"color": color, "width": width * bool(line), "dash": line or "solid"},
    }
    own["line"]["shape"] = step
    if symbol:
        names = (symbol, f"{symbol}-open")
        each = [names[bool(is_open)] for is_open in np.atleast_1d(hollow)]
        marker = {"symbol": each[0] if isinstance(hollow, bool) else each}
        own["marker"] = marker | {"size": size, "color": color, "line": {"width": 2}}
        if hollow is not True:
            del own["marker"]["line"]
        own["cliponaxis"] = False
    for key, ends in zip(("error_x", "error_y"), errors, strict=True):
        if ends is not None and len(x) <= MAX_DETAILED_POINTS:
            own[key] = {"arrayminus": ends[0], "array": ends[1], "color": color}
            own[key] |= {"thickness": 1, "width": 2}
    if len(texts):
        own |= {"text": [*map(escape, texts)], "textfont": {"color": color, "size": 11}}
        own["textposition"] = "bottom right"
    if shade:
        red, green, blue = (int(color[start : start + 2], 16) for start in (1, 3, 5))
        own |= {"fill": "toself", "fillcolor": f"rgba({red},{green},{blue},.25)"}
    if hover is None:
        position = "(%{x}, %{y:.4g})<extra></extra>"
        own["hovertemplate"] = f"{escape(name)}<br>{position}" if name else position
    elif len(hover):
        own |= {"hovertext": [*map(escape, hover)], "hovertemplate": "%{hovertext}<extra></extra>"}
    else:
        own["hoverinfo"] = "skip"
    return own | settings


def legend_entry(name: str, **style: Any) -> Description:
    """A trace without points that explains a symbol in the legend."""
    return trace([math.nan], [math.nan], name, hover=[], **style)


def axis(
    label: str,
    *,
    log: bool = False,
    limits: tuple[float, float] | None = None,
    ticks: tuple[Sequence[float], Sequence[str]] | None = None,
    date: bool = False,
) -> Description:
    """Axis of a panel, with limits and ticks (positions, labels) in its own units."""
    settings: Description = {"title": {"text": escape(label)}}
    if limits is not None:
        settings["range"] = [math.log10(end) if log else end for end in limits]
    if log:
        settings |= {"type": "log", "exponentformat": "power", "tickfont": {"size": 11}}
        if limits is not None and limits[1] >= 100 * limits[0]:
            settings["dtick"] = 1
    if ticks is not None:
        settings |= {"tickmode": "array", "tickvals": [*ticks[0]]}
        settings["ticktext"] = [*map(escape, ticks[1])]
    return settings | (_DAY if date else {})


def axis_limits(own: Description) -> tuple[float, float] | None:
    """Limits of an axis in its own units; None if Plotly chooses them."""
    if "range" not in own:
        return None
    low, high = own["range"]
    return (10**low, 10**high) if own.get("type") == "log" else (low, high)


class Plot(NamedTuple):
    """Axes of a panel and its traces in drawing order; `square` gives both axes one scale."""

    x: Description
    y: Description
    traces: Sequence[Description]
    title: str = ""
    square: bool = False


def panel_figure(
    panels: Sequence[Plot],
    *,
    columns: int = 2,
    panel_height: int = 380,
    side_legend: bool = False,
) -> Description:
    """Panels, row by row, with one legend above or at the side; heights are in pixels."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    gap, gap_below = 0.24 / max(columns, 2), 95 / (panel_height * rows)
    width, height = (1 - gap * (columns - 1)) / columns, (1 - gap_below * (rows - 1)) / rows
    data, titles, layout = [], [], Description()
    named: set[str] = set()
    for index, panel in enumerate(panels):
        number = str(index + 1) if index else ""
        for own in (*_without_overprints(panel), *_arrows(panel)):
            name = own["name"]
            is_first = name and name not in named and len(own["x"]) and _is_in_view(panel, own)
            named |= {name} if is_first else set()
            data.append(own | {"xaxis": f"x{number}", "yaxis": f"y{number}"})
            data[-1]["showlegend"] = bool(is_first)
            if "colorscale" in own.get("marker", {}):
                data[-1]["marker"] = own["marker"] | {"showscale": index == 0}
        left, bottom = (
            index % columns * (width + gap),
            (rows - 1 - index // columns) * (height + gap_below),
        )
        across, up = [left, min(left + width, 1.0)], [bottom, min(bottom + height, 1.0)]
        layout[f"xaxis{number}"] = panel.x | {"domain": across, "anchor": f"y{number}"}
        layout[f"yaxis{number}"] = panel.y | {"domain": up, "anchor": f"x{number}"}
        if panel.square:
            layout[f"yaxis{number}"]["scaleanchor"] = f"x{number}"
        if panel.title:
            place = {"x": 0.5, "xref": f"x{number} domain", "xanchor": "center"}
            place |= {"y": 1, "yref": f"y{number} domain", "yanchor": "bottom"}
            text = {"text": escape(panel.title), "showarrow": False, "font": {"size": 13}}
            titles.append(text | place)
    top = 20 + 20 * max(panel.title.count("\n") + bool(panel.title) for panel in panels)
    if not side_legend:
        top += 20 + 24 * math.ceil(sum(len(name) + 8 for name in named) / 165)
    layout |= {
        "template": _THEME,
        "height": top + 60 + panel_height * rows,
        "margin": {"l": 70, "r": 40, "t": top, "b": 60},
        "legend": _BESIDE if side_legend else _ABOVE,
        "modebar": {"orientation": "h" if side_legend else "v"},
    }
    return {"data": data, "layout": layout | ({"annotations": titles} if titles else {})}


def _without_overprints(panel: Plot) -> list[Description]:
    """The traces without texts that others would cover; the last traces keep theirs first."""
    shown: list[NDArray[np.float64]] = []
    traces = []
    for own in reversed(panel.traces):
        if "text" in own and "range" in panel.x and "range" in panel.y:
            places = np.transpose([_shares(own["x"], panel.x), _shares(own["y"], panel.y)])
            texts = []
            for text, place in zip(own["text"], places, strict=True):
                is_covered = any((abs(place - other) < _TEXT_ROOM).all() for other in shown)
                texts.append("" if is_covered else text)
                shown += [place] if texts[-1] else []
            own = own | {"text": texts}
        traces.append(own)
    return traces[::-1]


def _shares(values: ArrayLike, own: Description) -> NDArray[np.float64]:
    """Positions on an axis as shares of its length."""
    low, high = np.array(own["range"], dtype=np.float64)
    numbers = np.asarray(values, dtype=np.float64)
    shares: NDArray[np.float64] = np.log10(numbers) if own.get("type") == "log" else numbers
    return np.asarray((shares - low) / (high - low), dtype=np.float64)


def _arrows(panel: Plot) -> Iterator[Description]:
    """Arrows at the edges where intervals go on, and where markers lie beyond them.

    Points that were only searched have none.
    """
    limits = {"x": axis_limits(panel.x), "y": axis_limits(panel.y)}
    for own in panel.traces:
        if "marker" not in own or len(own["x"]) > MAX_DETAILED_POINTS:
            continue
        places = {key: np.asarray(own[key], dtype=np.float64) for key in "xy"}
        color, hover = own["line"]["color"], np.array(own.get("hovertext", ()))
        clipped = {key: places[key].clip(*(limits[key] or (None, None))) for key in "xy"}
        for key, symbols in _ARROWS.items():
            if (ends := limits[key]) is None:
                continue
            errors = own.get(f"error_{key}", {"arrayminus": 0, "array": 0})
            for sign, edge, part, symbol in zip(
                (-1, 1), ends, ("arrayminus", "array"), symbols, strict=True
            ):
                excess = sign * (places[key] - edge)
                is_beyond = (excess > 0) & (not own["name"].startswith(SEARCHED))
                is_cut = (excess <= 0) & (excess + errors[part] > 0)
                if is_cut.any():
                    at = {**clipped, key: np.full(len(excess), edge)}
                    x, y = (at[k][is_cut] for k in "xy")
                    yield trace(x, y, CUT, color, symbol=symbol, size=7, hover=[])
                if is_beyond.any():
                    x, y = (clipped[k][is_beyond] for k in "xy")
                    said = [html.unescape(text) for text in hover[is_beyond]] if len(hover) else []
                    yield trace(x, y, BEYOND, color, symbol=symbol, hollow=True, hover=said)


def _is_in_view(panel: Plot, own: Description) -> bool:
    """Whether some point of a trace, or of a line through it, may lie within a panel's axes."""
    for key, shown in (("x", panel.x), ("y", panel.y)):
        if (limits := axis_limits(shown)) is not None:
            known = np.asarray(own[key], dtype=np.float64)
            known = known[np.isfinite(known)]
            if len(known) and (known.max() < limits[0] or known.min() > limits[1]):
                return False
    return True


def color_by(own: Description, values: ArrayLike, label: str, *, log: bool) -> Description:
    """The trace with points colored by numbers, and their scale."""
    title = {"text": escape(f"log10 {label}" if log else label), "side": "right"}
    scale = {"title": title, "thickness": 12, "len": 0.6, "yanchor": "bottom", "y": 0}
    numbers = np.log10(values) if log else np.asarray(values)
    colors = {"color": numbers, "colorscale": _PLASMA, "colorbar": scale}
    return own | {"marker": own["marker"] | colors}


def escape(text: str) -> str:
    """A text that Plotly shows as it is, with its line breaks."""
    return html.escape(text).replace("\n", "<br>")


class _FigureEncoder(PlotlyJSONEncoder):  # type: ignore[misc]
    """Plotly's encoder, with arrays of numbers in the form that plotly.js calls typed arrays."""

    def default(self, value: Any) -> Any:
        array = np.asarray(value)
        if array.dtype.kind != "f" or array.ndim != 1 or not array.size:
            return super().default(value)
        numbers = base64.b64encode(array.tobytes()).decode()
        return {"dtype": f"f{array.dtype.itemsize}", "bdata": numbers}


def figure_json(figure: Description) -> str:
    """A figure as JSON; arrays of numbers are in base64, which is shorter and exact."""
    return json.dumps(figure, cls=_FigureEncoder)


def plotly_page(figure: Description) -> str:
    """A figure as a page that opens without a network."""
    drawn = go.Figure(figure).update_layout(paper_bgcolor="white", plot_bgcolor="white")
    body = drawn.to_html(include_plotlyjs=False, full_html=False, config={"displaylogo": False})
    head = f'<meta charset="utf-8"><title>Figure</title><script>{plotly_script()}</script>'
    return f'<!DOCTYPE html><html lang="en"><head>{head}</head><body>{body}</body></html>'


@cache
def plotly_script() -> str:
    """Basic bundle of plotly.js 4.1.1 (MIT licence), which draws lines and markers."""
    path = resources.files("sweeps.report") / "templates" / "plotly-basic.min.js"
    return path.read_text(encoding="utf-8")
