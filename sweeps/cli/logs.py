"""`sweeps logs`: what a submitted sweep's driver has printed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from sweeps.cli.options import JobServer as Address
from sweeps.cli.options import Sweep

if TYPE_CHECKING:
    from sweeps.cli.submission_request import Found

_POLL_SECONDS = 2.0
# A log is sent whole: the longer that takes, the longer until it is asked for again.
_REST = 20.0
_GIVE_UP_SECONDS = 600.0


def logs(
    sweep: Sweep,
    address: Address = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the sweep's job ends, or Ctrl-C.")
    ] = False,
) -> None:
    """Print what a submitted sweep's driver has printed; Ctrl-C ends the printing, not the sweep.

    A connection that is lost is taken up again where it was, for up to ten minutes.
    """
    from sweeps.cli.submission_request import find

    found = find(sweep, address)
    if not follow:
        _show(found.jobs.log(found.known.job_id))
        return
    try:
        _follow(found)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _follow(found: Found) -> None:
    """Print a log as it grows, until its job has ended."""
    from cluster.errors import UnreachableError

    job_id, shown, lost = found.known.job_id, 0, None
    while True:
        began = time.monotonic()
        try:
            job = found.jobs.find(job_id)
            text = found.jobs.log(job_id)
        except UnreachableError as error:
            lost = lost or began
            if began - lost > _GIVE_UP_SECONDS:
                raise
            if lost == began:
                typer.echo(f"Connection lost, trying again: {error}", err=True)
            time.sleep(_POLL_SECONDS)
            continue
        if lost is not None:
            typer.echo("Connected again.", err=True)
        lost, shown = None, shown if len(text) >= shown else 0
        _show(text[shown:])
        shown = len(text)
        if job is None or not job.is_active:
            return
        time.sleep(max(_POLL_SECONDS, _REST * (time.monotonic() - began)))


def _show(text: str) -> None:
    """Print a part of a log, without what would steer a terminal or give a password away."""
    from sweeps.errors import make_printable
    from tracking import redact

    typer.echo(make_printable(redact(text)), nl=False)
