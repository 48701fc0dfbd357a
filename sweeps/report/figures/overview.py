"""Charts of effects of knobs, and of fronts of sweeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sweeps.analysis.effects import KnobEffect
from sweeps.analysis.pareto import Objectives, comparable_points, pareto_front
from sweeps.analysis.results import SEARCHING
from sweeps.analysis.tables import INTERVAL_SUFFIXES, varying_fields
from sweeps.analysis.text import field_label, metric_label
from sweeps.report.figures.charts import (
    GREY,
    ORANGE,
    SEARCHED,
    SYMBOLS,
    Chart,
    ChartAxis,
    ChartPanel,
    ChartSeries,
    axis_pairs,
    hover_texts,
    metric_axis,
    points_series,
    ramp,
)
from sweeps.report.figures.metrics import front_edge


def effects_chart(effects: Sequence[KnobEffect]) -> Chart | None:
    """Trend of each metric along each knob with its 95% interval, a panel per metric.

    Trends over points that a search tried have one seed and no interval.
    """
    panels = []
    for metric in dict.fromkeys(effect.metric for effect in effects):
        own = [effect for effect in effects if effect.metric == metric]
        labels = [field_label(knob) for knob in dict.fromkeys(effect.knob for effect in own)]
        ends = (-0.6, len(labels) - 0.4)
        series = [ChartSeries([0, 0], ends, "no trend", line="dot", width=1, hover=[])]
        for phase in dict.fromkeys(effect.phase for effect in own):
            series.append(_trend_marks([e for e in own if e.phase == phase], labels))
        x_axis = ChartAxis(
            f"trend of {metric_label(metric)}\n-1 falls, 1 rises", False, (-1.1, 1.1)
        )
        y_axis = ChartAxis("", limits=ends, ticks=(range(len(labels)), labels))
        panels.append(ChartPanel(x_axis, y_axis, series))
    height = 60 + 50 * len({effect.knob for effect in effects})
    return Chart(panels, panel_height=height) if panels else None


def _trend_marks(effects: Sequence[KnobEffect], labels: Sequence[str]) -> ChartSeries:
    """Trends of one phase, each at the height of its knob."""
    rows = [(field_label(e.knob), t) for e in effects if (t := e.finding.measured) is not None]
    means, lows, highs = np.array([(t.value, t.low, t.high) for _, t in rows]).T
    searching = effects[0].phase == SEARCHING
    return ChartSeries(
        means,
        [labels.index(label) for label, _ in rows],
        SEARCHED if searching else "trend with its 95% interval",
        GREY if searching else ORANGE,
        symbol="circle",
        hollow=searching,
        size=10,
        x_errors=(np.nan_to_num(means - lows), np.nan_to_num(highs - means)),
        hover=[f"{label}: {trend}" for label, trend in rows],
    )


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
