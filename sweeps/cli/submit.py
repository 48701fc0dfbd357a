"""`sweeps submit`, `logs` and `stop`: sweeps as jobs of a cluster."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cluster.jobs import JobClient
from privnets.credentials import redact
from sweeps.cli.options import (
    Changes,
    Data,
    JobServer,
    NumPoints,
    Storage,
    Study,
    Sweep,
    Yes,
)
from sweeps.cli.terminal import command_line, say
from sweeps.errors import InputError, make_printable
from sweeps.planning.plan import set_num_points
from sweeps.remote.commands import connect_job_server
from sweeps.remote.doctor import Check, examine_remotely
from sweeps.remote.environment import address_option, default_job_server
from sweeps.remote.logs import job_log, stored_log
from sweeps.remote.submission import (
    STOP_SECONDS,
    SweepJob,
    find_job,
    job_id,
    prepare_job,
    stop_job,
    submit_job,
    validate_remote_study,
)
from sweeps.store.filesystem import DEFAULT_STORAGE
from sweeps.store.ledger import Ledger
from sweeps.study.loader import load
from sweeps.study.shipped_files import read_study_files

_TRACKING_VARIABLE = "MLFLOW_TRACKING_URI"
_OTHER_ENVIRONMENT = (
    f"the cluster does not see {_TRACKING_VARIABLE} of this machine: it records as its own "
    "environment says, or in mlflow.db in the storage. --tracking-uri names another store"
)
_OUTCOMES = {
    "submitted": "submitted as",
    "resubmitted": "submitted again, to continue, as",
    "running": "is already running as",
    "finished": "has already finished as",
}
_Name = Annotated[
    str | None,
    typer.Option(help="Name of the sweep.", show_default="the study's, with a digest of it"),
]
_SharedStorage = Annotated[
    str | None,
    typer.Option(
        metavar="DIR_OR_URI",
        help="Where every node finds the sweep: an absolute path, or a URI.",
        show_default="that of an earlier submission",
    ),
]
_SharedTrackingUri = Annotated[
    str | None,
    typer.Option(
        metavar="URI",
        help="MLflow tracking store, as the cluster reaches it.",
        show_default=f"{_TRACKING_VARIABLE} there, else mlflow.db in the storage",
    ),
]
_Packages = Annotated[
    list[Path] | None,
    typer.Option(
        "--with",
        metavar="DIR",
        help="Package or directory that travels with the job, besides the study's own.",
    ),
]
_NoCheck = Annotated[
    bool, typer.Option("--no-check", help="Submit without checking the cluster first.")
]


def submit(
    study: Study,
    address: JobServer = None,
    set_: Changes = None,
    num_points: NumPoints = None,
    name: _Name = None,
    storage: _SharedStorage = None,
    tracking_uri: _SharedTrackingUri = None,
    data: Data = None,
    yes: Yes = False,
    with_: _Packages = None,
    no_check: _NoCheck = False,
) -> None:
    """Submit a sweep to a Ray cluster, and return at once.

    Submitting a sweep again continues it if it ended early; otherwise nothing changes. Exit codes:
    0 the cluster has the sweep; 2 bad input, or the cluster fails a check: nothing started.
    """
    valid = set_num_points(load(study, set_ or ()), num_points)
    notes = validate_remote_study(valid, yes)
    client = connect_job_server(address)
    files = read_study_files(valid, with_ or ())
    job, earlier = prepare_job(
        client, valid, name, storage, tracking_uri, data,
        command=command_line(), large=yes, files=files,
    )  # fmt: skip
    for note in notes:
        say(f"Note: {note}", err=True)
    if job.tracking_uri is None and os.environ.get(_TRACKING_VARIABLE):
        typer.echo(f"Note: {_OTHER_ENVIRONMENT}", err=True)
    is_settled = earlier is not None and (earlier.is_active or earlier.is_finished)
    if not no_check and not is_settled:
        typer.echo(f"checking {client.address} first; --no-check skips this", err=True)
        report = examine_remotely(client, job.storage, job.tracking_uri, valid, job.data, job.files)
        for check in report.checks:
            if check.state == "warning":
                say(f"Warning: {_describe(check)}", err=True)
        if lines := [f"  {_describe(check)}; {check.remedy}" for check in report.failed]:
            raise InputError(
                "\n".join(["the cluster fails checks; nothing was submitted:", *lines])
            )
    outcome = submit_job(client, job, earlier)
    _print_submitted(client, job, _OUTCOMES[outcome.state])


def logs(
    sweep: Sweep,
    address: JobServer = None,
    storage: Storage = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue until the sweep ends, or Ctrl-C.")
    ] = False,
) -> None:
    """Print the log of a sweep; Ctrl-C ends the printing, not the sweep.

    With the address of a cluster, prints the log of the sweep's job there; with --follow, a lost
    connection is restored for up to ten minutes. Otherwise reads a storage that this machine sees.
    """
    if address is None and (storage is not None or default_job_server() is None):
        parts = stored_log(Ledger(storage or DEFAULT_STORAGE, sweep), follow=follow)
    else:
        client = connect_job_server(address)
        parts = job_log(client, sweep, partial(say, err=True), follow=follow)
    try:
        for text in parts:
            typer.echo(make_printable(redact(text)), nl=False)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def stop(sweep: Sweep, address: JobServer = None) -> None:
    """Stop a submitted sweep; finished work and checkpoints are kept.

    Waits for the end, at most about three minutes. Submitting the sweep again continues it.
    """
    client = connect_job_server(address)
    job = find_job(client, sweep)
    if not job.is_active:
        typer.echo(f"sweep {sweep} is not running: its job is {job.state}")
        return
    typer.echo(f"stopping {sweep}: packs in training are kept as checkpoints ...", err=True)
    began = time.monotonic()
    try:
        ended = stop_job(
            client,
            job.job_id,
            lambda seconds: typer.echo(f"waiting for {seconds:.0f} s ...", err=True),
        )
    except KeyboardInterrupt:
        typer.echo("It is still stopping; sweeps status shows when it has ended.", err=True)
        raise typer.Exit(130) from None
    if ended.is_finished:
        typer.echo(f"sweep {sweep} finished before it could be stopped")
        return
    if time.monotonic() - began >= STOP_SECONDS:
        typer.echo(
            f"It took longer than {STOP_SECONDS} s and was killed: training since the last "
            "checkpoints is repeated.",
            err=True,
        )
    command = make_printable(ended.metadata.get("command", ""))
    typer.echo(f"Stopped. Continue with:\n  {command or 'sweeps submit, with the same study'}")


def _print_submitted(client: JobClient, job: SweepJob, outcome: str) -> None:
    typer.echo(f"sweep {job.name} {outcome} job {job_id(job.name)} of {client.address}")
    for words in (f"status {job.name}", f"logs {job.name} --follow", f"stop {job.name}"):
        typer.echo(f"  sweeps {words}{address_option(client.address)}")
    default = "MLFLOW_TRACKING_URI of the cluster's head, else mlflow.db in the storage"
    typer.echo(f"Ray:    {client.page(job_id(job.name))}")
    typer.echo(f"MLflow: {job.tracking_uri or default}")


def _describe(check: Check) -> str:
    return f"{check.subject}{f' on {check.node}' if check.node else ''}: {check.found}"
