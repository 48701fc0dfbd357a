"""Chart of the fronts of several sweeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from sweeps.analysis.pareto import Objectives, comparable_points, pareto_front
from sweeps.analysis.tables import INTERVAL_SUFFIXES, varying_fields
from sweeps.report.figures.charts import (
    SYMBOLS,
    Chart,
    ChartPanel,
    ChartSeries,
    axis_pairs,
    hover_texts,
    metric_axis,
    points_series,
    ramp,
)
from sweeps.report.figures.metrics import front_edge


def fronts_chart(points: Mapping[str, pd.DataFrame], objectives: Objectives) -> Chart:
    """Fronts of several sweeps in one figure, with their other points pale.

    Args:
        points: Sweep to its points.
        objectives: Metrics that all sweeps have.
    """
    frames = {name: comparable_points(own, objectives)[0] for name, own in points.items()}
    every = pd.concat([frame[list(_shown_columns(frame, objectives))] for frame in frames.values()])
    panels = []
    for x, y in axis_pairs(objectives) or [(next(iter(objectives)),) * 2]:
        x_axis, y_axis = (metric_axis(every, metric, objectives) for metric in (x, y))
        colors = zip(frames.items(), ramp(len(frames)), strict=True)
        series = [
            each
            for place, ((name, rows), color) in enumerate(colors)
            for each in _front_series(name, rows, (x, y), objectives, color, SYMBOLS[place % 6])
        ]
        panels.append(ChartPanel(x_axis, y_axis, series))
    return Chart(panels, panel_height=420)


def _shown_columns(frame: pd.DataFrame, objectives: Objectives) -> Iterator[str]:
    """Columns of the objectives and their intervals."""
    for metric in objectives:
        yield from (metric + end for end in ("", *INTERVAL_SUFFIXES) if metric + end in frame)


def _front_series(
    name: str,
    rows: pd.DataFrame,
    axes: tuple[str, str],
    objectives: Objectives,
    color: str,
    symbol: str,
) -> Iterator[ChartSeries]:
    x, y = axes
    front = pareto_front(rows, objectives)
    others = rows.loc[~rows["point_id"].isin(front["point_id"])]
    style: dict[str, Any] = {"color": color, "symbol": symbol}
    yield ChartSeries(others[x], others[y], opacity=0.25, size=5, hover=[], **style)
    if len(objectives) == 2:
        yield front_edge(front, x, y, objectives, "", color, "solid")
    texts = hover_texts(front, varying_fields(rows), list(objectives))
    hover = [f"{name}\n{text}" for text in texts]
    yield points_series(front, x, y, hover, name=f"{name} ({len(front)})", **style)
