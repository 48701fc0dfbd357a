"""Figures of fronts: one to explore in a browser (plotly), one to print (matplotlib)."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from sweeps.analysis.formatting import format_number, format_setting
from sweeps.analysis.pareto import Direction, Objectives, comparable_points
from sweeps.analysis.tables import (
    INTERVAL_SUFFIXES,
    METRIC_BOUNDS,
    METRIC_UNITS,
    row_interval,
    select_records,
    varying_fields,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FRONT, DOMINATED, BOUND, ATTAINED = "#e8590c", "#7a848e", "#1c7ed6", "#9c6ade"
MANY = 1000
"""Beyond so many points WebGL draws them, and the dominated ones without intervals."""

_AXIS = {
    "gridcolor": "rgba(128,128,128,.25)",
    "zeroline": False,
    "automargin": True,
    "title": {"standoff": 8, "font": {"size": 13}},
}
THEME = go.layout.Template(
    layout={
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 70, "r": 40, "t": 60, "b": 60},
        "legend": {"orientation": "h", "yref": "container", "y": 1, "yanchor": "top", "x": 0},
        "hoverlabel": {"align": "left"},
        "modebar": {"orientation": "v", "bgcolor": "rgba(0,0,0,0)", "color": "#8a939c"},
        "xaxis": _AXIS,
        "yaxis": _AXIS,
    }
)

_Panel = tuple[str, str]
_LOG_RATIO = 100.0
_RANK = "rank, best first"
_HOVER = "words"
_STEP: Mapping[Direction, str] = {"min": "hv", "max": "vh"}
_BETTER: Mapping[Direction, str] = {"min": "smaller is better", "max": "larger is better"}


def front_figure(
    points: pd.DataFrame,
    front: pd.DataFrame,
    objectives: Objectives,
    attained: pd.DataFrame | None = None,
) -> go.Figure:
    """The front among all points, with 95% intervals and each point's configuration on hover.

    Args:
        points: One row per point, as `Result.points`.
        front: The non-dominated ones, as `pareto_front` gives.
        objectives: Metric to `min` or `max`. Each pair has a panel; one alone is drawn over rank.
        attained: Median attainment surface to draw beside the front of means; two objectives only.

    Raises:
        ValueError: If objectives are amiss (see `pareto_front`).
    """
    shown, panels = _panels(points, objectives)
    shown = _worded(shown, varying_fields(points), list(objectives))
    best = shown["point_id"].isin(front["point_id"])
    figure = make_subplots(rows=1, cols=len(panels), horizontal_spacing=0.12)
    for column, (x, y) in enumerate(panels, start=1):
        traces = [
            *_surface_traces(attained, objectives),
            _marks(shown.loc[~best], x, y, "dominated", DOMINATED),
            *_staircase(shown.loc[best], objectives),
            _marks(shown.loc[best], x, y, "Pareto front", FRONT),
            *_bounds(shown.loc[best], x, y),
        ]
        for trace in traces:
            figure.add_trace(trace.update(showlegend=column == 1), row=1, col=column)
        figure.update_xaxes(title_text=title(x, objectives), **scaled(shown, x), col=column)
        figure.update_yaxes(title_text=title(y, objectives), **scaled(shown, y), col=column)
    return figure.update_layout(template=THEME, height=520)


def save_front_png(
    points: pd.DataFrame, front: pd.DataFrame, objectives: Objectives, path: Path
) -> Path:
    """Write the front as a PNG of 200 dots per inch.

    Args:
        points: One row per point, as `Result.points`.
        front: The non-dominated ones, as `pareto_front` gives.
        objectives: Metric to `min` or `max`. Each pair has a panel; one alone is drawn over rank.
        path: Where to.

    Returns:
        The path.

    Raises:
        ValueError: If objectives are amiss (see `pareto_front`).
        OSError: If the file cannot be written.
    """
    from matplotlib.figure import Figure

    shown, panels = _panels(points, objectives)
    figure = Figure(figsize=(6.4 * len(panels), 4.6), layout="constrained")
    best = shown["point_id"].isin(front["point_id"])
    for column, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), column)
        _draw(axes, shown, best, panel, objectives)
    figure.savefig(path, format="png", dpi=200)
    return path


def save_page(figure: go.Figure, path: Path) -> Path:
    """Write a figure as an HTML page that needs no network.

    Raises:
        OSError: If the file cannot be written.
    """
    page = go.Figure(figure).update_layout(paper_bgcolor="white", plot_bgcolor="white")
    page.write_html(path, include_plotlyjs=True, config={"displaylogo": False})
    return path


def title(metric: str, objectives: Objectives) -> str:
    """An axis's title: the metric, its unit, and which way is better if it is an objective."""
    return html.escape(said(metric, objectives)).replace(" (", "<br>(")


def scaled(points: pd.DataFrame, metric: str) -> dict[str, Any]:
    """Plotly's settings for the axis of a metric, labelled by decades where it is logarithmic."""
    kind = scale(points, metric)
    if kind == "log":
        return {"type": kind, "dtick": 1}
    view = cut_view(points, metric)
    return {"type": kind} if view is None else {"type": kind, "range": view}


def cut_view(points: pd.DataFrame, metric: str) -> tuple[float, float] | None:
    """What a linear axis shows where intervals would hide how points lie; None where none does.

    An interval of few replicates may be many times as wide as what all points span.
    """
    ends = reach(points, metric)
    values = points[metric].to_numpy(dtype=np.float64)
    if ends is None or not len(values):
        return None
    bound = points.get(METRIC_BOUNDS.get(metric, ""), points[metric]).to_numpy(dtype=np.float64)
    whole = np.concatenate([values - ends[0], values + ends[1]])
    found = window(np.concatenate([values, bound]), whole)
    if found is None or (found[0] <= np.nanmin(whole) and found[1] >= np.nanmax(whole)):
        return None
    air = 0.05 * (found[1] - found[0])
    return found[0] - air, found[1] + air


def window(values: NDArray[np.float64], whole: NDArray[np.float64]) -> tuple[float, float] | None:
    """From where to where values lie, with their intervals as far as these are not much wider.

    Args:
        values: All that must be seen; what is not finite does not count.
        whole: The ends of their intervals.

    Returns:
        At most as much again on either side as values span, all of it where they span nothing;
        None without a finite value.
    """
    seen = values[np.isfinite(values)]
    if not len(seen):
        return None
    ends = np.concatenate([seen, whole[np.isfinite(whole)]])
    low, high, span = float(seen.min()), float(seen.max()), float(np.ptp(seen)) or math.inf
    return max(float(ends.min()), low - span), min(float(ends.max()), high + span)


def scale(points: pd.DataFrame, metric: str) -> str:
    """`log` for a metric that is positive throughout and spans two decades, else `linear`."""
    values = points[metric].to_numpy(dtype=np.float64)
    values = values[np.isfinite(values)]
    wide = len(values) > 0 and values.min() > 0 and values.max() >= _LOG_RATIO * values.min()
    return "log" if wide else "linear"


def bars(points: pd.DataFrame, metric: str) -> dict[str, Any] | None:
    """The metric's 95% intervals as plotly's error bars; None where the frame has none."""
    ends = reach(points, metric)
    if ends is None:
        return None
    return {"array": ends[1], "arrayminus": ends[0], "thickness": 1, "width": 2}


def said(metric: str, objectives: Objectives) -> str:
    """A metric in words: its unit, and which way is better where it is an objective."""
    direction, unit = objectives.get(metric), METRIC_UNITS.get(metric)
    name = metric if unit is None else f"{metric}, {unit}"
    return name if direction is None else f"{name} ({_BETTER[direction]})"


def words(row: Mapping[Hashable, Any], fields: Sequence[str], metrics: Sequence[str]) -> str:
    """A point in words: its metrics with intervals, then what tells its configuration apart."""
    measured = [f"{metric}: {row_interval(row, metric).plus_minus}" for metric in metrics]
    config = [f"{field} = {format_setting(row[f'config/{field}'])}" for field in fields]
    return "<br>".join(map(html.escape, [*measured, *config, f"point {row['point_id']}"]))


def shades(count: int) -> list[str]:
    """Colours of one scale in order, as `#rrggbb`, each legible on a light page and a dark one."""
    shares = np.linspace(0.27, 0.82, count) if count > 1 else [0.27]
    found = sample_colorscale("Plasma", shares, colortype="tuple")
    return ["#" + "".join(f"{round(255 * part):02x}" for part in color) for color in found]


def reach(
    points: pd.DataFrame, metric: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """How far the interval goes below and above the mean; 0 where it is undefined.

    None where the frame has no intervals of the metric.
    """
    if not {f"{metric}{end}" for end in INTERVAL_SUFFIXES} <= set(points.columns):
        return None
    mean = points[metric].to_numpy(dtype=np.float64)
    low, high = (points[metric + end].to_numpy(dtype=np.float64) for end in INTERVAL_SUFFIXES)
    return np.nan_to_num(mean - low), np.nan_to_num(high - mean)


def _panels(points: pd.DataFrame, objectives: Objectives) -> tuple[pd.DataFrame, list[_Panel]]:
    """The points that can be drawn, and the columns of each panel."""
    shown, _ = comparable_points(points, objectives)
    names = list(objectives)
    if len(names) > 1:
        return shown, list(itertools.combinations(names, 2))
    order = shown[names[0]].rank(method="first", ascending=objectives[names[0]] == "min")
    return shown.assign(**{_RANK: order}), [(_RANK, names[0])]


def _worded(shown: pd.DataFrame, fields: Sequence[str], metrics: Sequence[str]) -> pd.DataFrame:
    """The points with their hover texts."""
    texts = [words(row, fields, metrics) for row in select_records(shown, fields, metrics)]
    return shown.assign(**{_HOVER: pd.Series(texts, index=shown.index, dtype="str")})


def _marks(points: pd.DataFrame, x: str, y: str, name: str, color: str) -> go.Scatter:
    many = len(points) > MANY
    kind = go.Scattergl if many else go.Scatter
    plain = many and color == DOMINATED
    return kind(
        x=points[x],
        y=points[y],
        error_x=None if plain else bars(points, x),
        error_y=None if plain else bars(points, y),
        mode="markers",
        name=f"{name} ({len(points)})",
        marker={"color": color, "size": 6 if color == DOMINATED else 9},
        opacity=0.7 if color == DOMINATED else 1,
        text=points[_HOVER],
        hovertemplate="%{text}<extra></extra>",
    )


def _staircase(front: pd.DataFrame, objectives: Objectives) -> list[go.Scatter]:
    """The edge of what the front dominates."""
    if len(objectives) != 2:
        return []
    return [_edge(front, objectives, name="edge of the front", color=FRONT, dash="solid")]


def _surface_traces(attained: pd.DataFrame | None, objectives: Objectives) -> list[go.Scatter]:
    if attained is None or len(objectives) != 2:
        return []
    name = "attained by half the replicates"
    return [_edge(attained, objectives, name=name, color=ATTAINED, dash="dash")]


def _edge(
    corners: pd.DataFrame, objectives: Objectives, *, name: str, color: str, dash: str
) -> go.Scatter:
    x, y = objectives
    ordered = corners.sort_values([x, y])
    return go.Scatter(
        x=ordered[x],
        y=ordered[y],
        mode="lines",
        name=name,
        # Between two corners a place is dominated by the one that is worse in x.
        line={"shape": _STEP[objectives[x]], "color": color, "width": 1.5, "dash": dash},
        hoverinfo="skip",
    )


def _bounds(front: pd.DataFrame, x: str, y: str) -> list[go.Scatter]:
    return [
        go.Scatter(
            x=front[across],
            y=front[up],
            mode="markers",
            name=f"{bound}, which theory allows",
            marker={"symbol": "diamond-open", "size": 10, "color": BOUND},
            text=[f"{bound}: {format_number(value)}" for value in front[bound]],
            customdata=front[_HOVER],
            hovertemplate="%{text}<br>%{customdata}<extra></extra>",
        )
        for bound, across, up in _bounded(front, x, y)
    ]


def _bounded(front: pd.DataFrame, x: str, y: str) -> list[tuple[str, str, str]]:
    """Each bound that the panel of `x` and `y` can show, with the columns to draw it at."""
    found = [
        (METRIC_BOUNDS.get(x, ""), METRIC_BOUNDS.get(x, ""), y),
        (METRIC_BOUNDS.get(y, ""), x, METRIC_BOUNDS.get(y, "")),
    ]
    return [place for place in found if place[0] in front and front[place[0]].notna().any()]


def _draw(
    axes: Axes, shown: pd.DataFrame, best: pd.Series[bool], panel: _Panel, objectives: Objectives
) -> None:
    x, y = panel
    front = shown.loc[best]
    _scatter(axes, shown.loc[~best], panel, "dominated", DOMINATED)
    if len(objectives) == 2:
        ordered = front.sort_values([x, y])
        steps = "steps-post" if objectives[x] == "min" else "steps-pre"
        axes.plot(ordered[x], ordered[y], drawstyle=steps, color=FRONT, linewidth=1)
    _scatter(axes, front, panel, "Pareto front", FRONT)
    for bound, across, up in _bounded(front, x, y):
        axes.plot(front[across], front[up], "D", mfc="none", color=BOUND, label=bound)
    axes.set_xscale(scale(shown, x))
    axes.set_yscale(scale(shown, y))
    for metric, limit in ((x, axes.set_xlim), (y, axes.set_ylim)):
        if scale(shown, metric) == "linear" and (view := cut_view(shown, metric)) is not None:
            limit(*view)
    # A metric's name is no formula, whatever signs it holds.
    axes.set_xlabel(said(x, objectives), parse_math=False)
    axes.set_ylabel(said(y, objectives), parse_math=False)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize="small")


def _scatter(axes: Axes, points: pd.DataFrame, panel: _Panel, name: str, color: str) -> None:
    x, y = panel
    plain = len(points) > MANY and color == DOMINATED
    axes.errorbar(
        points[x],
        points[y],
        xerr=None if plain else reach(points, x),
        yerr=None if plain else reach(points, y),
        fmt="o",
        color=color,
        markersize=3 if color == DOMINATED else 5,
        elinewidth=0.7,
        alpha=0.7 if color == DOMINATED else 1.0,
        label=f"{name} ({len(points)})",
    )
