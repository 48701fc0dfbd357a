"""`sweeps pareto`: the points of a sweep that no other point beats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sweeps.analysis.formatting import format_count
from sweeps.cli.options import (
    Maximize,
    Minimize,
    Output,
    Storage,
    Sweep,
    named_objectives,
    print_table,
    tell_pending,
)

if TYPE_CHECKING:
    import pandas as pd

    from sweeps.analysis.pareto import Objectives

_SUFFIXES = (".parquet", ".csv", ".json")
_PLOTS = (".html", ".png")


def pareto(
    sweep: Sweep,
    storage: Storage = None,
    minimize: Minimize = None,
    maximize: Maximize = None,
    output: Output = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it: .html to explore, .png to print.")
    ] = None,
) -> None:
    """Show the Pareto front, on the study's objectives unless others are named.

    `-o` saves it as .parquet, .csv or .json.
    """
    from sweeps.analysis.export import check_output_path, save_frame
    from sweeps.analysis.pareto import pareto_front
    from sweeps.analysis.results import open_result
    from sweeps.analysis.tables import front_table
    from sweeps.errors import InputError

    check_output_path(output, _SUFFIXES)
    check_output_path(plot, _PLOTS)
    named = named_objectives(minimize or (), maximize or ())
    result = open_result(sweep, storage)
    objectives = named or result.objectives
    try:
        front = pareto_front(result.points, objectives)
    except ValueError as error:
        raise InputError(str(error)) from error
    print_table(front_table(front, objectives, result.swept_fields))
    typer.echo(_excluded(front, result.points))
    tell_pending(result)
    if output is not None:
        save_frame(front, output)
        typer.echo(f"{format_count(len(front), 'point')} in {output}")
    if plot is not None:
        _draw(result.points, front, objectives, plot)
        typer.echo(f"drawn in {plot}")


def _excluded(front: pd.DataFrame, points: pd.DataFrame) -> str:
    counts = front.attrs["excluded"]
    stopped = int((points["status"] == "stopped").sum())
    early = f"{stopped} stopped early, " if stopped else ""
    total, failed = format_count(len(front), "point"), counts["not_finished"] - stopped
    undefined = f"{counts['undefined']} with an undefined objective"
    return f"{total} on the front; left out: {failed} that failed, {early}{undefined}"


def _draw(points: pd.DataFrame, front: pd.DataFrame, objectives: Objectives, path: Path) -> None:
    from sweeps.errors import InputError
    from sweeps.report.figures.plots import front_figure, save_front_png, save_page

    try:
        if path.suffix.lower() == ".png":
            save_front_png(points, front, objectives, path)
        else:
            save_page(front_figure(points, front, objectives), path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
