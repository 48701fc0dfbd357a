"""Figures of results: for notebooks, and as files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

import pandas as pd
from plotly.graph_objects import Figure

from privnets.contract import Direction
from sweeps.analysis.pareto import Objectives
from sweeps.analysis.results import Result
from sweeps.report import contents
from sweeps.report.contents import ReportContents
from sweeps.report.figures.metrics import front_chart, save_chart
from sweeps.report.figures.overview import fronts_chart
from sweeps.report.figures.plotly_charts import plotly_figure
from sweeps.report.figures.png_charts import draw_chart, figure_png
from sweeps.report.figures.recorded import roc_chart, training_chart
from sweeps.report.page import write_report as write_report
from sweeps.report.page import write_report_files as write_report_files


def plot_front(result: Result, x: str | None = None, y: str | None = None) -> Figure:
    """Figure of a result's front; see `Result.plot_front`."""
    objectives: Mapping[str, Direction] = result.objectives
    axes = None
    if x is not None or y is not None:
        ordered = sorted(objectives, key=lambda metric: metric.startswith("privacy/"))
        axes = (x or ordered[0], y or ordered[-1])
        unknown = [metric for metric in axes if metric not in result.points]
        if unknown:
            known = [name for name in result.manifest.plan.metrics if name in result.points]
            raise ValueError(f"no point has {unknown[0]}; the metrics are {', '.join(known)}")
    return plotly_figure(front_chart(result.points, result.front(), objectives, axes=axes))


def draw_front(result: Result, front: pd.DataFrame) -> bytes:
    """PNG picture of a result's front among all finished points."""
    return figure_png(draw_chart(front_chart(result.points, front, result.objectives)))


def plot_recorded(
    result: Result, kind: Literal["training", "roc"], point_ids: Collection[str]
) -> Figure:
    """Figure of recorded curves; see `Result.plot_curves` and `Result.plot_roc`."""
    draw = {"training": training_chart, "roc": roc_chart}[kind]
    chart = draw(*ReportContents(result).sample(point_ids))
    if chart is None:
        raise ValueError(f"no chosen point of {result.sweep} recorded {kind} curves")
    return plotly_figure(chart)


def save_front(result: Result, front: pd.DataFrame, objectives: Objectives, path: Path) -> None:
    """Draws a front among all points of a sweep, as a file; see `save_chart`."""
    save_chart(front_chart(result.points, front, objectives), path)


def save_fronts(results: Sequence[Result], objectives: Objectives, path: Path) -> None:
    """Draws the fronts of several sweeps, as a file; see `save_chart`."""
    save_chart(fronts_chart({result.sweep: result.points for result in results}, objectives), path)


def write_figures(result: Result, folder: Path) -> list[Path]:
    """Writes every figure and table of a sweep's report into a folder; returns the paths."""
    return contents.write_figures(ReportContents(result), folder)
