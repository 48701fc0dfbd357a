"""`sweeps report`: one HTML page about a sweep. A module of its own, as it loads all figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweeps.analysis.export import check_output_path
from sweeps.analysis.results import open_result
from sweeps.cli.options import Storage, Sweep
from sweeps.report.page import write_report


def report(
    sweep: Sweep,
    storage: Storage = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="HTML file to write.")
    ] = Path("report.html"),
) -> None:
    """Write a report of a sweep: one HTML page that needs no network."""
    check_output_path(output, (".html",))
    result = open_result(sweep, storage)
    write_report(result, output)
    typer.echo(output)
