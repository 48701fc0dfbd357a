"""Pareto front among all points, and its page and PNG file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import pandas as pd

from sweeps.analysis.pareto import Direction, Objectives, comparable_points
from sweeps.analysis.tables import METRIC_BOUNDS, varying_fields
from sweeps.analysis.text import format_number
from sweeps.report.figures.charts import (
    BLUE,
    GREY,
    ORANGE,
    PURPLE,
    Chart,
    ChartPanel,
    ChartSeries,
    hover_texts,
    metric_axis,
    points_series,
)
from sweeps.report.figures.plotly_charts import save_page
from sweeps.report.figures.png_charts import chart_png

_RANK = "rank, best first"
_STEPS: Mapping[Direction, Literal["hv", "vh"]] = {"min": "hv", "max": "vh"}


def front_chart(
    points: pd.DataFrame,
    front: pd.DataFrame,
    objectives: Objectives,
    attained: pd.DataFrame | None = None,
) -> Chart:
    """The front among all points, with 95% intervals and theoretical bounds.

    Args:
        points: One row per point, as `Result.points`.
        front: The non-dominated ones, from `pareto_front`.
        objectives: Metric to `min` or `max`. Each pair has a panel; a single one is drawn by rank.
        attained: Median attainment surface, for two objectives.

    Raises:
        ValueError: If the objectives are invalid (see `pareto_front`).
    """
    rows, _ = comparable_points(points, objectives)
    names = list(objectives)
    pairs = list(itertools.combinations(names, 2))
    if len(names) == 1:
        rank = rows[names[0]].rank(method="first", ascending=objectives[names[0]] == "min")
        rows, pairs = rows.assign(**{_RANK: rank}), [(_RANK, names[0])]
    best = rows["point_id"].isin(front["point_id"])
    fields = varying_fields(points)
    panels = []
    for x, y in pairs:
        series = []
        if attained is not None and len(names) == 2:
            name = "attained by half the replicates"
            series.append(_edge(attained, objectives, name, PURPLE, "dash"))
        series.append(_points(rows.loc[~best], x, y, objectives, fields, "dominated"))
        if len(names) == 2:
            series.append(_edge(rows.loc[best], objectives, "edge of the front", ORANGE, "solid"))
        series.append(_points(rows.loc[best], x, y, objectives, fields, "Pareto front"))
        series += _bounds(rows.loc[best], x, y)
        x_axis, y_axis = (metric_axis(rows, metric, objectives) for metric in (x, y))
        panels.append(ChartPanel(x_axis, y_axis, series))
    return Chart(panels, columns=3, panel_height=420)


def save_front(chart: Chart, path: Path) -> None:
    """Writes the chart of a front as `.html`, to explore, or `.png`, to print.

    Raises:
        OSError: If the file cannot be written.
    """
    if path.suffix.lower() == ".png":
        path.write_bytes(chart_png(chart))
    else:
        save_page(chart, path)


def _points(
    rows: pd.DataFrame, x: str, y: str, objectives: Objectives, fields: list[str], name: str
) -> ChartSeries:
    best = name == "Pareto front"
    return points_series(
        rows,
        x,
        y,
        hover_texts(rows, fields, list(objectives)),
        name=f"{name} ({len(rows)})",
        color=ORANGE if best else GREY,
        symbol="circle",
        size=9 if best else 6,
        opacity=1 if best else 0.7,
    )


def _edge(
    corners: pd.DataFrame, objectives: Objectives, name: str, color: str, dash: str
) -> ChartSeries:
    """Boundary of the dominated area; its steps run through dominated places."""
    x, y = objectives
    ordered = corners.sort_values([x, y])
    step = _STEPS[objectives[x]]
    return ChartSeries(ordered[x], ordered[y], name, color, line=dash, step=step, hover=[])


def _bounds(front: pd.DataFrame, x: str, y: str) -> Iterator[ChartSeries]:
    """Theoretical bounds of the metrics of both axes."""
    for bound, across, up in (
        (METRIC_BOUNDS.get(x, ""), METRIC_BOUNDS.get(x, ""), y),
        (METRIC_BOUNDS.get(y, ""), x, METRIC_BOUNDS.get(y, "")),
    ):
        if bound in front and front[bound].notna().any():
            hover = [f"{bound}: {format_number(value)}" for value in front[bound]]
            yield ChartSeries(
                front[across],
                front[up],
                f"{bound}, which theory allows",
                BLUE,
                symbol="diamond",
                hollow=True,
                size=10,
                hover=hover,
            )
