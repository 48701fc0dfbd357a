"""`sweeps doctor`: checks of everything that a sweep needs, here or on a cluster."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Final

import typer
from rich.text import Text

from cluster.jobs import JobClient
from sweeps.cli.options import AnyAddress, Data, Json, Storage, TrackingUri
from sweeps.cli.terminal import print_rows
from sweeps.remote.doctor import Report, examine_remotely
from sweeps.remote.environment import is_job_server
from sweeps.remote.examination import examine
from sweeps.remote.node_data import data_variables
from sweeps.study.loader import load
from sweeps.study.shipped_files import read_study_files

_STYLES: Final = {"ok": "green", "warning": "yellow", "failed": "bold red"}


def doctor(
    address: AnyAddress = None,
    storage: Storage = None,
    tracking_uri: TrackingUri = None,
    study: Annotated[
        str | None, typer.Option(help="Study whose data and resources to check.")
    ] = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Check everything that a sweep needs, on every node, and advise on each failure.

    Versions are equal everywhere; Ray rejects requests without its token; secret files are private;
    every node can write the same storage; the tracking store answers; the study's data are on every
    node; torch can use the GPUs; memory; clocks.

    Exit codes: 0 nothing failed, though there may be warnings; 1 a check failed; 2 bad input, such
    as an address where no Ray answers, or one that rejects the token.
    """
    loaded = None if study is None else load(study)
    if address is not None and is_job_server(address):
        files = {} if loaded is None else read_study_files(loaded)
        report = examine_remotely(JobClient(address), storage, tracking_uri, loaded, data, files)
    else:
        os.environ.update(data_variables(data))
        report = examine(address, storage, tracking_uri, loaded, data)
    if json:
        typer.echo(report.model_dump_json())
    else:
        _print(report)
    sys.stdout.flush()
    os._exit(1 if report.failed else 0)  # Python would wait for a check that hangs.


def _print(report: Report) -> None:
    rows = [
        (c.subject, c.node, Text(c.state, style=_STYLES[c.state]), c.found, c.remedy)
        for c in report.checks
    ]
    print_rows(("subject", "node", "state", "found", "remedy"), rows)
    failed, total = len(report.failed), len(report.checks)
    typer.echo(f"{failed} of {total} checks failed." if failed else "No check failed.")
