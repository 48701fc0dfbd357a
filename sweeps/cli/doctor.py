"""`sweeps doctor`: whether a sweep would run where it is to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from sweeps.cli.options import Storage, TrackingUri

if TYPE_CHECKING:
    from sweeps.doctor import Report

_STYLES = {"ok": "green", "warning": "yellow", "failed": "bold red"}
_PIPED_WIDTH = 240  # wide enough that no cell is broken over lines where nobody looks at a screen


def doctor(
    address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="A Ray to look at: HOST:PORT, auto, or its job server's http://HEAD:8265; "
            "by default this machine alone.",
        ),
    ] = None,
    storage: Storage = None,
    tracking_uri: TrackingUri = None,
    study: Annotated[
        str | None,
        typer.Option(help="A study, packaged or a YAML file, whose data and resources are needed."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="The data directory on all machines; their own if none."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Look at all that a sweep needs, on every node, before it starts; each with its remedy.

    Versions equal everywhere; Ray lets in nobody without its token; files of secrets are their
    owner's alone; storage is really written on each node and read on all others; the tracking
    store answers; the study's data are on every node, and the same; torch sees the GPUs that Ray
    promises; memory; clocks.

    Exit codes: 0 nothing failed (warnings may be worth reading); 1 something did; 2 bad input, as
    an address where no Ray answers or one that refuses the token.
    """
    import os

    from sweeps.doctor.asking import Request
    from sweeps.doctor.examination import examine
    from sweeps.engine.data_on_nodes import environment
    from sweeps.study.loader import load

    request = Request(address, storage, tracking_uri, None if study is None else load(study), data)
    if not request.over_http:
        os.environ.update(environment(data))
    report = examine(request)
    if json:
        typer.echo(report.model_dump_json())
    else:
        _print(report)
    _end(1 if report.failed else 0)


def _end(code: int) -> NoReturn:
    """Exit, also where a library waits at its end for a file system that never answers."""
    import os
    import sys

    from sweeps.doctor.bounded import abandoned

    if abandoned():
        sys.stdout.flush()
        os._exit(code)
    raise typer.Exit(code)


def _print(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from sweeps.errors import make_printable

    console = Console(markup=False)  # a path may hold square brackets
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    table = Table("subject", "node", "state", "found", "remedy")
    for column in table.columns:
        column.overflow = "fold"
    for check in report.checks:
        state = Text(check.state, style=_STYLES[check.state])
        found, remedy = make_printable(check.found), make_printable(check.remedy)
        table.add_row(check.subject, make_printable(check.node), state, found, remedy)
    console.print(table)
    failed = len(report.failed)
    typer.echo(f"{failed} of {len(report.checks)} checks failed." if failed else "Nothing failed.")
