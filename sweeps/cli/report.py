"""`sweeps report`: everything about a sweep on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweeps.cli.options import Storage, Sweep


def report(
    sweep: Sweep,
    storage: Storage = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where the page goes.")
    ] = Path("report.html"),
) -> None:
    """Write the sweep's report: one HTML page that opens without a network."""
    from sweeps.analysis.export import check_output_path
    from sweeps.analysis.results import open_result
    from sweeps.errors import InputError
    from sweeps.report import write_report

    check_output_path(output, (".html",))
    result = open_result(sweep, storage)
    try:
        write_report(result, output)
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error.strerror}") from error
    typer.echo(output)
