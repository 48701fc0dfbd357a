"""What `sweeps run` and `sweeps resume` share: showing a run, and telling how it ended."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from sweeps.analysis.formatting import format_count
from sweeps.cli.options import say

if TYPE_CHECKING:
    from sweeps.analysis.results import Result
    from sweeps.engine.executor import RunOutcome
    from sweeps.engine.progress import SweepProgress
    from sweeps.planning.plan import Plan

_SUBMITTED = "SWEEPS_SUBMITTED_BY"  # `cluster.submission.AGAIN`, which takes long to load
_UNHEARD = {errno.EPIPE, errno.EIO}  # a pipe without a reader, a terminal that hung up


def run_plan(
    plan: Plan, *, sweep: str, storage: str, tracking_uri: str | None, address: str | None
) -> None:
    """Run a plan and tell how it ended.

    Raises:
        Exit: With the command's exit code.
    """
    from sweeps.engine.executor import execute
    from sweeps.engine.progress import display_progress
    from sweeps.engine.signals import Interrupted

    with _perhaps_unheard():
        _announce(plan, sweep)
    again = _resume_command(sweep, storage, tracking_uri, address)
    told = False
    try:
        with display_progress() as show:

            def on_progress(progress: SweepProgress) -> None:
                nonlocal told
                told = True
                show(progress)

            outcome = execute(
                plan,
                sweep=sweep,
                storage=storage,
                tracking_uri=tracking_uri,
                address=address,
                on_progress=on_progress,
                command=typed(),
                again=again,
            )
    except KeyboardInterrupt as stop:
        with _perhaps_unheard():
            typer.echo(f"Stopped at once. Continue with:\n  {again}", err=True)
        number = stop.signal if isinstance(stop, Interrupted) else signal.SIGINT
        raise typer.Exit(128 + number) from None
    with _perhaps_unheard():
        if not told and outcome.interrupted_by is None:  # training begins by telling
            typer.echo(f"{sweep} was finished already: there was nothing to train.", err=True)
        _tell(outcome, tracking_uri, again)
    raise typer.Exit(outcome.exit_code)


@contextmanager
def _perhaps_unheard() -> Iterator[None]:
    """A block that writes to standard output and error; a reader who is gone is no failure."""
    _let_go_of_broken()
    try:
        yield
    except OSError as error:
        if error.errno not in _UNHEARD:
            raise
    _let_go_of_broken()


def _let_go_of_broken() -> None:
    """Lead streams that nobody reads nowhere: Python flushes them at its end, or exits 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            if error.errno not in _UNHEARD:
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _announce(plan: Plan, sweep: str) -> None:
    for note in plan.notes:
        say(f"note: {note}", err=True)
    trainings = len(plan.points) * len(plan.seeds)
    typer.echo(
        f"sweep {sweep}: {format_count(len(plan.points), 'point')}, "
        f"{format_count(trainings, 'training')}",
        err=True,
    )


def _tell(outcome: RunOutcome, tracking_uri: str | None, again: str) -> None:
    result = outcome.result
    _tell_points(result)
    for problem in (*outcome.problems, *_failures(outcome), *_unreadable(result)):
        say(f"Warning: {problem}", err=True)
    if outcome.interrupted_by is not None:
        typer.echo(f"Stopped. Continue with:\n  {again}", err=True)
        return
    if result.pending:
        lacking = format_count(result.pending, "point") + (
            " lacks" if result.pending == 1 else " lack"
        )
        typer.echo(f"{lacking} replicates. Try again with:\n  {again}")
    _tell_published(outcome, tracking_uri)


def _tell_points(result: Result) -> None:
    from sweeps.analysis.tables import front_table
    from sweeps.cli.options import print_table

    done, failed, stopped = (result.counts[how] for how in ("finished", "failed", "stopped"))
    words = [f"{done:,} of {format_count(result.manifest.plan.points, 'point')} finished"]
    words += [f"{failed} failed"] if failed else []
    words += [f"{stopped} stopped early"] if stopped else []
    typer.echo(", ".join(words))
    front = result.front()
    if len(front):
        print_table(front_table(front, result.objectives, result.swept_fields))


def _tell_published(outcome: RunOutcome, tracking_uri: str | None) -> None:
    from tracking import redact, resolve_uri

    result, uri = outcome.result, redact(resolve_uri(tracking_uri))
    if any(result.counts.values()):
        typer.echo(f"report:  {redact(result.storage)}/{result.sweep}/report.html")
    where = f" --storage {shlex.quote(redact(result.storage))}"
    # The environment of a submitted sweep is not that of who reads this.
    named = resolve_uri(tracking_uri) if os.environ.get(_SUBMITTED) else tracking_uri
    tracked = f" --tracking-uri {shlex.quote(named)}" if named else ""
    if outcome.published.whole and (page := outcome.published.page):
        from tracking.errors import strip_credentials

        say(f"MLflow:  {strip_credentials(resolve_uri(tracking_uri)).rstrip('/')}/{page}")
        return
    if outcome.published.whole:
        typer.echo(f"MLflow:  {uri}; see it with: sweeps ui{redact(tracked)}")
        return
    typer.echo(
        f"Warning: {outcome.published.error or 'not all points are in MLflow'}\n"
        f"Nothing is lost. Once the tracking server answers, run:\n"
        f"  sweeps sync {result.sweep}{where}{redact(tracked)}",
        err=True,
    )


def _failures(outcome: RunOutcome) -> list[str]:
    return [f"pack {pack} came to nothing: {reason}" for pack, reason in outcome.failures.items()]


def _unreadable(result: Result) -> list[str]:
    return [f"{name} was passed over: {reason}" for name, reason in result.unreadable.items()]


def _resume_command(sweep: str, storage: str, tracking_uri: str | None, address: str | None) -> str:
    from tracking import redact

    if submitted := os.environ.get(_SUBMITTED):
        return submitted
    words = ["sweeps", "resume", sweep, "--storage", redact(storage)]
    words += ["--tracking-uri", redact(tracking_uri)] if tracking_uri else []
    words += ["--address", address] if address else []
    return shlex.join(words)


def typed() -> str:
    """The command line, with credentials blotted out; of a submitted sweep that of who did."""
    from tracking import redact

    if submitted := os.environ.get(_SUBMITTED):
        return submitted
    return shlex.join(["sweeps", *map(redact, sys.argv[1:])])
