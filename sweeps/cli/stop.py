"""`sweeps stop`: end a submitted sweep in order."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from sweeps.cli.options import JobServer as Address
from sweeps.cli.options import Sweep

if TYPE_CHECKING:
    from cluster.jobs import Job
    from sweeps.cli.submission_request import Found

_LINE_SECONDS = 10.0
# Beyond what the job itself is given, for Ray to see that it has ended.
_SPARE_SECONDS = 60.0


def stop(sweep: Sweep, address: Address = None) -> None:
    """Stop a submitted sweep: packs in training are kept as checkpoints, and nothing is lost.

    Waits until it has ended, which may take two minutes. Submitting it again continues it.
    """
    from sweeps.cli.submission_request import find

    found = find(sweep, address)
    if not found.known.is_active:
        typer.echo(f"sweep {sweep} is not being run: its job is {found.known.state}")
        return
    found.jobs.stop(found.known.job_id)
    typer.echo(f"stopping {sweep}: packs in training are kept as checkpoints ...", err=True)
    began = time.monotonic()
    try:
        ended = _await(found)
    except KeyboardInterrupt:
        typer.echo("It goes on stopping; sweeps status shows when it has ended.", err=True)
        raise typer.Exit(130) from None
    _tell(found, ended, time.monotonic() - began)


def _await(found: Found) -> Job:
    """Wait for the end of a job that was told to stop, and show that one waits.

    Raises:
        JobError: If it takes longer than Ray gives it.
    """
    from cluster.errors import JobError
    from sweeps.cli.submission import STOP_SECONDS

    began = told = time.monotonic()
    for job in found.jobs.follow(found.known.job_id):
        now = time.monotonic()
        if not job.is_active:
            return job
        if now - began > STOP_SECONDS + _SPARE_SECONDS:
            break
        if now - told >= _LINE_SECONDS:
            told = now
            typer.echo(f"waiting since {now - began:.0f} s ...", err=True)
    raise JobError(
        f"the job {found.known.job_id} has not ended within {STOP_SECONDS + _SPARE_SECONDS:.0f} s; "
        "sweeps logs shows what it does, and sweeps stop asks again"
    )


def _tell(found: Found, job: Job, seconds: float) -> None:
    from sweeps.cli.submission import STOP_SECONDS
    from sweeps.errors import make_printable

    if job.state == "SUCCEEDED":
        typer.echo(f"sweep {found.sweep} was done before it could be stopped")
        return
    if seconds >= STOP_SECONDS:
        typer.echo(
            f"It took longer than {STOP_SECONDS} s and was killed: what was trained since its last "
            "checkpoints is trained again.",
            err=True,
        )
    again = make_printable(job.metadata.get("command", "")) or "sweeps submit, with the same study"
    typer.echo(f"Stopped. Continue with:\n  {again}")
