"""The information plane, to explore and to print."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from sweeps.analysis.statistics import Interval
from sweeps.analysis.tables import METRIC_UNITS
from sweeps.report.figures.plane import CENSORED, LEAKAGE, Learned, Plane
from sweeps.report.figures.plots import DOMINATED, THEME, shades, window

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3
_X = f"leakage I(S;Q), {METRIC_UNITS[LEAKAGE]}"
_Y = f"censored I(U;X|Q), {METRIC_UNITS[CENSORED]}"
_EDGE = "#495057"
_BOUND = "bound: leakage + censored = K"
_EDGE_NAME = "least that any release censors"
_MEANINGS = {
    "in training": ("thin line", "-"),
    "loss of the best linear filter": ("thick line", "-"),
    "learned, exact": ("circle", "o"),
    "learned, estimated": ("circle-open", "o"),
    "best release of any kind": ("x-thin-open", "x"),
}


def plane_figure(found: Sequence[Plane], field: str | None) -> go.Figure:
    """A panel per plane, both axes on one scale.

    Args:
        found: As `planes` gives, at least one.
        field: The field whose values the colours tell.
    """
    columns = min(len(found), _COLUMNS)
    rows = math.ceil(len(found) / columns)
    figure = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=[html.escape(plane.title) for plane in found],
        horizontal_spacing=0.07,
        vertical_spacing=0.25 / rows,
    )
    colors = _colors(found)
    named: set[str] = set()
    for index, plane in enumerate(found):
        where = {"row": index // columns + 1, "col": index % columns + 1}
        for trace in (*_limits(plane), *_learned(plane, colors), *_legend(colors, field)):
            trace.showlegend = bool(trace.name) and trace.name not in named
            named.add(trace.name or "")
            figure.add_trace(trace, **where)
        ends = _range(plane)
        figure.update_xaxes(title_text=_X, range=ends, **where)
        figure.update_yaxes(title_text=_Y if where["col"] == 1 else "", range=ends, **where)
    height = 180 + 400 * rows
    return figure.update_layout(template=THEME, height=height, margin={"t": 150, "l": 60, "r": 20})


def draw_plane(found: Sequence[Plane], field: str | None) -> Figure:
    """The same to print."""
    from matplotlib.figure import Figure

    columns = min(len(found), _COLUMNS)
    rows = math.ceil(len(found) / columns)
    figure = Figure(figsize=(0.4 + 3.9 * columns, 1.1 + 3.7 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    colors = _colors(found)
    for axes, plane in zip(panels.flat, found, strict=False):
        _draw(axes, plane, colors)
        axes.set(xlim=_range(plane), ylim=_range(plane), xlabel=_X, ylabel=_Y, title=plane.title)
        axes.set_aspect("equal")
        axes.grid(alpha=0.2)
    for axes in panels.flat[len(found) :]:
        axes.set_visible(False)
    _key(panels[0, 0], colors, field)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    legend = figure.legend(
        handles, labels, loc="outside upper center", ncols=4, frameon=False, fontsize="small"
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def _range(plane: Plane) -> tuple[float, float]:
    """What both axes show: all but the beginnings of paths."""
    seen, ends = [0.0, plane.bound], list[float]()
    for point in plane.points:
        seen += [*point.exact, *(point.best or ())]
        for one in (point.leakage, point.censored):
            seen.append(one.mean)
            ends += [one.low, one.high]
    if plane.boundary is not None:
        seen += [float(line.max()) for line in plane.boundary]
    low, high = window(np.array(seen), np.array(ends)) or (0.0, 0.0)
    air = 0.06 * (high - low) or 0.01
    return low - air, high + air


def _colors(found: Sequence[Plane]) -> dict[float, str]:
    """A colour for each value of the field, in order; the only one for points without."""
    values = {point.shade for plane in found for point in plane.points}
    known = sorted(value for value in values if not math.isnan(value)) or [math.nan]
    return dict(zip(known, shades(len(known)), strict=True))


def _color(point: Learned, colors: Mapping[float, str]) -> str:
    return colors.get(point.shade, DOMINATED)


def _limits(plane: Plane) -> Iterator[go.Scatter]:
    k = plane.bound
    yield go.Scatter(
        x=[0, k, 0],
        y=[0, 0, k],
        fill="toself",
        mode="lines",
        line={"width": 0},
        fillcolor="rgba(134,142,150,.2)",
        hoverinfo="skip",
    )
    yield go.Scatter(
        x=[0, k],
        y=[k, 0],
        mode="lines",
        name=_BOUND,
        line={"color": DOMINATED, "dash": "dot", "width": 2},
        hovertemplate=f"K = {k:.4g} nats<extra></extra>",
    )
    if plane.boundary is not None:
        x, y = plane.boundary
        yield go.Scatter(
            x=x,
            y=y,
            mode="lines",
            name=_EDGE_NAME,
            line={"color": DOMINATED, "width": 2},
            hovertemplate="no release is below (%{x:.3f}, %{y:.3f})<extra></extra>",
        )


def _learned(plane: Plane, colors: Mapping[float, str]) -> Iterator[go.Scatter]:
    for point in plane.points:
        color = _color(point, colors)
        if point.path is not None:
            x, y = point.path
            line = {"color": color, "width": 1}
            yield go.Scatter(x=x, y=y, mode="lines", line=line, opacity=0.6, hoverinfo="skip")
        if point.linear is not None:
            x, y = point.linear
            line = {"color": color, "width": 2.5}
            yield go.Scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip")
        if point.best is not None:
            marker = {"symbol": "x-thin-open", "size": 11, "color": color, "line": {"width": 2}}
            yield _mark(point, point.best, "best release of any kind", marker)
        yield _mark(point, point.exact, "exact", {"symbol": "circle", "size": 8, "color": color})
        yield _estimate(point, color)


def _mark(
    point: Learned, place: tuple[float, float], what: str, marker: Mapping[str, Any]
) -> go.Scatter:
    x, y = place
    text = f"{html.escape(point.name)}<br>{what}: leaks {x:.4f}, censors {y:.4f} nats"
    return go.Scatter(
        x=[x], y=[y], mode="markers", marker=dict(marker), hovertemplate=f"{text}<extra></extra>"
    )


def _estimate(point: Learned, color: str) -> go.Scatter:
    text = (
        f"{html.escape(point.name)}<br>estimated: leaks {point.leakage}, censors {point.censored}"
    )
    return go.Scatter(
        x=[point.leakage.mean],
        y=[point.censored.mean],
        error_x=_bar(point.leakage),
        error_y=_bar(point.censored),
        mode="markers",
        marker={"symbol": "circle-open", "size": 12, "color": color, "line": {"width": 1.5}},
        hovertemplate=f"{text} nats<extra></extra>",
    )


def _bar(found: Interval) -> dict[str, Any]:
    down, up = _reach(found)
    return {"array": [up], "arrayminus": [down], "thickness": 1, "width": 3}


def _reach(found: Interval) -> tuple[float, float]:
    down, up = found.mean - found.low, found.high - found.mean
    return (down, up) if math.isfinite(down + up) else (0.0, 0.0)


def _legend(colors: Mapping[float, str], field: str | None) -> Iterator[go.Scatter]:
    """What marks and colours mean."""
    for name, (symbol, _) in _MEANINGS.items():
        lines = symbol.endswith("line")
        marker = {"symbol": "circle" if lines else symbol, "size": 9, "color": DOMINATED}
        if symbol.endswith("open"):
            marker["line"] = {"width": 2}
        mode = "lines" if lines else "markers"
        line = {"color": DOMINATED, "width": _width(symbol)}
        yield go.Scatter(x=[None], y=[None], mode=mode, name=name, marker=marker, line=line)
    for value, color in colors.items():
        if not math.isnan(value):
            marker = {"symbol": "square", "size": 10, "color": color}
            name = html.escape(f"{field} = {value:g}")
            yield go.Scatter(x=[None], y=[None], mode="markers", name=name, marker=marker)


def _draw(axes: Axes, plane: Plane, colors: Mapping[float, str]) -> None:
    k = plane.bound
    axes.fill([0, k, 0], [0, 0, k], color=DOMINATED, alpha=0.2, linewidth=0)
    axes.plot([0, k], [k, 0], ":", color=DOMINATED, linewidth=1.6, label=_BOUND)
    if plane.boundary is not None:
        axes.plot(*plane.boundary, color=_EDGE, linewidth=1.4, label=_EDGE_NAME)
    for point in plane.points:
        color = _color(point, colors)
        if point.path is not None:
            axes.plot(*point.path, color=color, linewidth=0.8, alpha=0.6)
        if point.linear is not None:
            axes.plot(*point.linear, color=color, linewidth=2)
        if point.best is not None:
            axes.plot(*point.best, "x", color=color, ms=8, mew=1.6, zorder=4)
        axes.plot(*point.exact, "o", color=color, ms=4.5, zorder=3)
        axes.errorbar(
            point.leakage.mean,
            point.censored.mean,
            xerr=[[part] for part in _reach(point.leakage)],
            yerr=[[part] for part in _reach(point.censored)],
            fmt="o",
            color=color,
            mfc="none",
            ms=8,
            elinewidth=0.9,
            capsize=2,
        )


def _width(symbol: str) -> float:
    return 2.5 if symbol.startswith("thick") else 1.0


def _key(axes: Axes, colors: Mapping[float, str], field: str | None) -> None:
    for name, (symbol, marker) in _MEANINGS.items():
        fill = "none" if symbol.endswith("open") else DOMINATED
        width = _width(symbol)
        axes.plot([], [], marker, color=DOMINATED, mfc=fill, ms=6, linewidth=width, label=name)
    for value, color in colors.items():
        if not math.isnan(value):
            axes.plot([], [], "s", color=color, label=f"{field} = {value:g}")
