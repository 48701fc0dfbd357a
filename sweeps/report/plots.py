"""Figures of results: for notebooks, and as files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

import pandas as pd
from plotly.graph_objects import Figure

from sweeps.analysis.pareto import Objectives
from sweeps.analysis.results import Result
from sweeps.report.contents import ReportContents
from sweeps.report.figures.metrics import front_figure, fronts_figure, save_figure
from sweeps.report.figures.png import IMAGE_KINDS, draw_figure, figure_png
from sweeps.report.figures.recorded import roc_figure, training_figure
from sweeps.report.page import write_report as write_report
from sweeps.report.page import write_report_files as write_report_files


def plot_front(result: Result, x: str | None = None, y: str | None = None) -> Figure:
    """Figure of a result's front; see `Result.plot_front`."""
    axes = None
    if x is not None or y is not None:
        ordered = sorted(result.objectives, key=lambda metric: metric.startswith("privacy/"))
        axes = (x or ordered[0], y or ordered[-1])
        unknown = [metric for metric in axes if metric not in result.points]
        if unknown:
            known = [name for name in result.manifest.plan.metrics if name in result.points]
            raise ValueError(f"no point has {unknown[0]}; the metrics are {', '.join(known)}")
    return Figure(front_figure(result.points, result.front(), result.objectives, axes=axes))


def draw_front(result: Result, front: pd.DataFrame) -> bytes:
    """PNG picture of a result's front among all finished points."""
    return figure_png(draw_figure(front_figure(result.points, front, result.objectives)))


def plot_recorded(
    result: Result, kind: Literal["training", "roc"], point_ids: Collection[str]
) -> Figure:
    """Figure of recorded curves; see `Result.plot_curves` and `Result.plot_roc`."""
    draw = {"training": training_figure, "roc": roc_figure}[kind]
    figure = draw(*ReportContents(result).sample(point_ids))
    if figure is None:
        raise ValueError(f"no chosen point of {result.sweep} recorded {kind} curves")
    return Figure(figure)


def save_front(result: Result, front: pd.DataFrame, objectives: Objectives, path: Path) -> None:
    """Draws a front among all points of a sweep, as a file; see `save_figure`."""
    save_figure(front_figure(result.points, front, objectives), path)


def save_fronts(results: Sequence[Result], objectives: Objectives, path: Path) -> None:
    """Draws the fronts of several sweeps, as a file; see `save_figure`."""
    points = {result.sweep: result.points for result in results}
    save_figure(fronts_figure(points, objectives), path)


def write_figures(result: Result, folder: Path) -> list[Path]:
    """Writes every figure as PNG, SVG and PDF, and every table as CSV; returns the paths.

    The table of points has every column and full precision, and so has that of the front.

    Raises:
        OSError: If a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    report, files = ReportContents(result), dict[str, bytes | None]()
    for figure in report.figures.values():
        files |= {f"{figure.name}.{kind}": figure.file(kind) for kind in IMAGE_KINDS.values()}
    frames = {"points": report.points, "front": report.front}
    for name, table in report.tables.items():
        if name not in frames and table.rows:
            frames[name] = pd.DataFrame(table.rows, columns=list(table.columns))
    files |= {f"{name}.csv": frame.to_csv(index=False).encode() for name, frame in frames.items()}
    written = {folder / name: content for name, content in files.items() if content is not None}
    for path, content in written.items():
        path.write_bytes(content)
    return list(written)
