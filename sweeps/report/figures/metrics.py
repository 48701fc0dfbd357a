"""Figures of metrics: the Pareto front, fronts of several sweeps, and metrics along a field."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from privnets.contract import Direction
from sweeps.analysis.flags import is_flagged
from sweeps.analysis.obfuscation import is_obfuscated
from sweeps.analysis.pareto import Objectives, comparable_points, pareto_front, problem_fields
from sweeps.analysis.results import is_only_searched
from sweeps.analysis.tables import (
    INTERVAL_SUFFIXES,
    METRIC_BOUNDS,
    floor_of,
    group_by_fields,
    varying_fields,
)
from sweeps.analysis.text import field_label, format_number, metric_label
from sweeps.report.figures.axes import (
    axis_pairs,
    field_positions,
    hover_texts,
    metric_axis,
    points_trace,
    ramp,
)
from sweeps.report.figures.curves import (
    color_by_field,
    label_settings,
    most_varied,
    obfuscation_curves,
)
from sweeps.report.figures.png import IMAGE_KINDS, draw_figure, figure_file
from sweeps.report.figures.traces import (
    BLUE,
    BOUND,
    MAX_DETAILED_POINTS,
    ORANGE,
    SEARCHED,
    SYMBOLS,
    Description,
    Plot,
    axis_limits,
    panel_figure,
    plotly_page,
    trace,
)
from sweeps.report.figures.tradeoff import (
    level_traces,
    obfuscation_traces,
    setting_texts,
    upright_floors,
)

MAX_LINES = 12
"""Largest number of groups of points that lines join; more are drawn as points."""

_POINTS: Mapping[str, dict[str, Any]] = {
    SEARCHED: {"symbol": "circle", "size": 5, "opacity": 0.5, "errors": (None, None)},
    "dominated": {"symbol": "circle", "size": 6, "opacity": 0.7},
    "flagged": {"symbol": "circle", "size": 8, "hollow": True},
    "Pareto front": {"color": ORANGE, "symbol": "circle", "size": 9},
}
_RANK = "rank, best first"
_POSITION = "position on the axis"
_STEPS: Mapping[Direction, str] = {"min": "hv", "max": "vh"}


def front_figure(
    points: pd.DataFrame,
    front: pd.DataFrame,
    objectives: Objectives,
    axes: tuple[str, str] | None = None,
) -> Description:
    """The front among all points, with 95% intervals and theoretical bounds.

    Each pair of objectives has a panel; a single objective is drawn by rank. Points with a raised
    flag are hollow; those that a search did not confirm are small and have no intervals.
    Trivial obfuscations are dashed curves. `axes` are two other metrics, x and y.
    """
    rows = comparable_points(points, objectives, include_flagged=True)
    names, pairs = list(objectives), axis_pairs(objectives)
    if len(names) == 1:
        rank = rows[names[0]].rank(method="first", ascending=objectives[names[0]] == "min")
        rows, pairs = rows.assign(**{_RANK: rank}), [(_RANK, names[0])]
    pairs = pairs if axes is None else [axes]
    best, flagged = rows["point_id"].isin(front["point_id"]), is_flagged(rows)
    trivial, searching = is_obfuscated(rows), is_only_searched(rows) & ~best & ~flagged
    # Only the front's bounds are drawn; others would stretch the axes.
    bounds = rows.columns.intersection([*METRIC_BOUNDS.values()])
    rows = rows.assign(**{bound: rows[bound].where(best) for bound in bounds})
    kinds = {
        SEARCHED: searching,
        "dominated": ~best & ~flagged & ~searching & ~trivial,
        "flagged": ~best & flagged,
        "Pareto front": best,
    }
    fields = varying_fields(points)
    knob = most_varied(rows.loc[~trivial], fields)
    texts = setting_texts(rows.loc[best], [knob] if knob else [])
    texts = ["" if own else text for text, own in zip(texts, trivial[best], strict=False)]
    beside = {"Pareto front": texts}
    # Where nothing else is swept, the knob is what tells the other points apart.
    if fields == [knob]:
        beside["dominated"] = setting_texts(rows.loc[kinds["dominated"]], fields)
    panels, style = [], Description()
    for x, y in pairs:
        x_axis, y_axis = (_front_axis(rows, metric, objectives) for metric in (x, y))
        traces: list[Description] = []
        if len(rows):
            traces += level_traces(rows, axis_limits(x_axis) or (0, 1), y, fields)
            traces += upright_floors(rows, axis_limits(y_axis) or (0, 1), x, fields)
        if len(names) == 2 and {x, y} == set(names):
            problems = group_by_fields(rows.loc[best], problem_fields(rows))
            colors = ramp(len(problems)) if len(problems) > 1 else [ORANGE]
            for (settings, own), color in zip(problems, colors, strict=True):
                name = f"front, {label_settings(settings)}" if settings else ""
                traces.append(_front_edge(own, x, y, objectives, name, color))
        for name, chosen in kinds.items():
            own = rows.loc[chosen]
            if len(own) or name in ("dominated", "Pareto front"):
                hover = hover_texts(own, fields, names) if len(own) <= MAX_DETAILED_POINTS else None
                label = f"{name} ({len(own)})"
                style = {"texts": beside.get(name, ()), **_POINTS[name]}
                if name == "Pareto front":
                    label += f", {field_label(knob)} beside" if texts else ""
                    style["hollow"] = flagged[best].tolist()
                traces.append(points_trace(own, x, y, hover, label, **style))
        traces += obfuscation_traces(obfuscation_curves(rows), x, y, rows)
        x_bound, y_bound = METRIC_BOUNDS.get(x, ""), METRIC_BOUNDS.get(y, "")
        own = rows.loc[best]
        for bound, across, up in ((x_bound, x_bound, y), (y_bound, x, y_bound)):
            if bound in own and own[bound].notna().any():
                hover = [f"{metric_label(bound)}: {format_number(value)}" for value in own[bound]]
                style = {"symbol": "diamond", "hollow": True, "size": 10, "hover": hover}
                traces.append(trace(own[across], own[up], BOUND, BLUE, **style))
        panels.append(Plot(x_axis, y_axis, traces))
    return panel_figure(panels, columns=3, panel_height=420)


def _front_axis(rows: pd.DataFrame, metric: str, objectives: Objectives) -> Description:
    """Axis that shows all points but those that a search tried far from what it confirmed."""
    searching, shown = is_only_searched(rows), rows.loc[~is_only_searched(rows)]
    floors = shown[floor_of(metric)].tolist() if floor_of(metric) in shown else []
    pale = rows.loc[searching, metric].tolist()
    if metric.startswith("privacy/"):
        return metric_axis(shown, metric, objectives, floors, pale=pale)
    return metric_axis(shown, metric, objectives, pale=[*pale, *floors])


def _front_edge(
    corners: pd.DataFrame, x: str, y: str, objectives: Objectives, name: str, color: str
) -> Description:
    """Boundary of the dominated area; its steps run through dominated places."""
    ordered = corners.sort_values([x, y])
    step = _STEPS[objectives[x]]
    return trace(ordered[x], ordered[y], name, color, line="solid", step=step, hover=[])


def fronts_figure(points: Mapping[str, pd.DataFrame], objectives: Objectives) -> Description:
    """Fronts of several sweeps, with their other points pale.

    Args:
        points: Sweep to its points.
        objectives: Metrics that all sweeps have.
    """
    frames = {name: comparable_points(own, objectives) for name, own in points.items()}
    columns = [metric + end for metric in objectives for end in ("", *INTERVAL_SUFFIXES)]
    every = pd.concat([frame[frame.columns.intersection(columns)] for frame in frames.values()])
    panels = []
    for x, y in axis_pairs(objectives) or [(next(iter(objectives)),) * 2]:
        traces: list[Description] = []
        for place, ((name, rows), color) in enumerate(
            zip(frames.items(), ramp(len(frames)), strict=True)
        ):
            front = pareto_front(rows, objectives)
            others = rows.loc[~rows["point_id"].isin(front["point_id"])]
            style: dict[str, Any] = {"color": color, "symbol": SYMBOLS[place % len(SYMBOLS)]}
            traces.append(trace(others[x], others[y], opacity=0.25, size=5, hover=[], **style))
            if len(objectives) == 2:
                traces.append(_front_edge(front, x, y, objectives, "", color))
            texts = hover_texts(front, varying_fields(rows), list(objectives))
            hover = [f"{name}\n{text}" for text in texts]
            traces.append(points_trace(front, x, y, hover, f"{name} ({len(front)})", **style))
        x_axis, y_axis = (metric_axis(every, metric, objectives) for metric in (x, y))
        panels.append(Plot(x_axis, y_axis, traces))
    return panel_figure(panels, panel_height=420)


def save_figure(figure: Description, path: Path) -> None:
    """Writes a figure as `.html`, to explore offline, or as a file of `IMAGE_KINDS`, to print."""
    kind = IMAGE_KINDS.get(path.suffix.lower())
    if kind is not None:
        path.write_bytes(figure_file(draw_figure(figure), kind))
    else:
        path.write_text(plotly_page(figure), encoding="utf-8")


def field_figure(
    points: pd.DataFrame,
    fields: Sequence[str],
    metrics: Sequence[str],
    objectives: Objectives,
    *,
    log: bool,
) -> Description:
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
    positions, axis, is_ordered = field_positions(values, fields[0], log=log)
    order = pd.to_numeric(values, errors="coerce").sort_values(kind="stable").index
    placed = points.assign(**{_POSITION: positions}).loc[order]
    searching = is_only_searched(placed)
    searched, measured = placed.loc[searching], placed.loc[~searching]
    groups = group_by_fields(measured, fields[1:])

    def hover(own: pd.DataFrame, metric: str) -> list[str] | None:
        return hover_texts(own, fields, [metric]) if len(own) <= MAX_DETAILED_POINTS else None

    def draw(metric: str) -> Iterator[Description]:
        style: dict[str, Any]
        if len(searched):
            name, texts = f"{SEARCHED} ({len(searched)})", hover(searched, metric)
            yield points_trace(searched, _POSITION, metric, texts, name, **_POINTS[SEARCHED])
        if len(groups) > MAX_LINES:
            style = {"symbol": "circle", "size": 6}
            cloud = points_trace(measured, _POSITION, metric, hover(measured, metric), "", **style)
            yield color_by_field(cloud, measured, fields[1:])
            return
        bound = METRIC_BOUNDS.get(metric, "")
        symbols = itertools.cycle(SYMBOLS)
        for (settings, own), color in zip(groups, ramp(len(groups)), strict=True):
            line, name = "solid" if is_ordered else "", label_settings(settings)
            style = {"color": color, "line": line, "symbol": next(symbols), "size": 7}
            yield points_trace(own, _POSITION, metric, hover(own, metric), name, **style)
            if is_ordered and bound in own and own[bound].notna().any():
                texts = [f"{BOUND}: {value:.4g}" for value in own[bound]]
                style = {"color": color, "line": "dot", "width": 1, "hover": texts}
                yield trace(own[_POSITION], own[bound], **style)

    return panel_figure(
        [Plot(axis, metric_axis(placed, m, objectives), [*draw(m)]) for m in metrics],
        panel_height=330,
    )
