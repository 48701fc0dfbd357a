"""Pareto front among all points, its page and PNG file, and ROC curves of its attacks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import pandas as pd
from plotly.colors import qualitative

from privnets.contract import Direction
from privnets.points import TradeoffPoint
from sweeps.analysis.pareto import Objectives, comparable_points
from sweeps.analysis.tables import METRIC_BOUNDS, varying_fields
from sweeps.analysis.text import format_number
from sweeps.report.figures.charts import (
    BLUE,
    GREY,
    ORANGE,
    PURPLE,
    Chart,
    ChartAxis,
    ChartPanel,
    ChartSeries,
    hover_texts,
    metric_axis,
    points_series,
)
from sweeps.report.figures.plotly_charts import plotly_figure
from sweeps.report.figures.png_charts import chart_png

_RANK = "rank, best first"
_ROC_PREFIX, _LOWEST_RATE = "roc/", 1e-3
_STEPS: Mapping[Direction, Literal["hv", "vh"]] = {"min": "hv", "max": "vh"}


def front_chart(
    points: pd.DataFrame,
    front: pd.DataFrame,
    objectives: Objectives,
    attained: pd.DataFrame | None = None,
) -> Chart:
    """The front among all points, with 95% intervals and theoretical bounds.

    Each pair of objectives has a panel; a single objective is drawn by rank. `attained` is the
    median attainment surface of two objectives.
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
    """Writes the chart of a front as `.html`, to explore offline, or `.png`, to print."""
    if path.suffix.lower() == ".png":
        path.write_bytes(chart_png(chart))
    else:
        figure = plotly_figure(chart).update_layout(paper_bgcolor="white", plot_bgcolor="white")
        figure.write_html(path, include_plotlyjs=True, config={"displaylogo": False})


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
    x_bound, y_bound = METRIC_BOUNDS.get(x, ""), METRIC_BOUNDS.get(y, "")
    for bound, across, up in ((x_bound, x_bound, y), (y_bound, x, y_bound)):
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


def roc_chart(points: Sequence[TradeoffPoint], titles: Mapping[str, str]) -> Chart | None:
    """True- against false-positive rate of each attack, one panel per point; None without curves.

    Curves under `roc/` have true-positive rates at false-positive rates in thousandths. Both axes
    are logarithmic, as small rates matter most (Carlini et al., arXiv 2112.03570); rates of zero
    are not drawn. `titles` has the panel's title of each `point_id`.
    """
    names = sorted({key for p in points for key in p.curves if key.startswith(_ROC_PREFIX)})
    colors = dict(zip(names, qualitative.Plotly * len(names), strict=False))
    limits, ends = (_LOWEST_RATE, 10**0.02), [_LOWEST_RATE, 1]
    x_axis, y_axis = (
        ChartAxis(f"{kind}-positive rate", True, limits) for kind in ("false", "true")
    )
    panels = []
    for point in points:
        series = [ChartSeries(ends, ends, "chance", line="dash", width=1, hover=[])]
        for name in sorted(colors.keys() & point.curves.keys()):
            curve, attack = point.curves[name], name.removeprefix(_ROC_PREFIX)
            rates = [step / 1000 for step in curve.steps]
            series.append(ChartSeries(rates, curve.values, attack, colors[name], line="solid"))
        if len(series) > 1:
            panels.append(ChartPanel(x_axis, y_axis, series, titles[point.point_id]))
    return Chart(panels) if panels else None
