"""`sweeps run`, `resume` and `extend`: train a sweep, show progress, print the outcome."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated

import typer

import tracking
from privnets.credentials import redact, strip_credentials
from sweeps.analysis.remarks import front_remarks
from sweeps.analysis.tables import front_table
from sweeps.analysis.text import format_count
from sweeps.cli.options import (
    Budget,
    Changes,
    NumPoints,
    Quiet,
    RayAddress,
    Storage,
    Study,
    Sweep,
    TrackingUri,
    Yes,
)
from sweeps.cli.terminal import command_line, print_table, say
from sweeps.engine.display import display_progress, print_line
from sweeps.engine.executor import RunOutcome, execute, new_sweep_name
from sweeps.engine.signals import Interrupted
from sweeps.errors import InputError
from sweeps.planning.continuation import (
    names_user_files,
    plan_extension,
    replan,
    require_packaged_names,
)
from sweeps.planning.costs import check_confirmed
from sweeps.planning.plan import Plan, make_plan, set_budget
from sweeps.remote.environment import SUBMIT_COMMAND
from sweeps.store.filesystem import DEFAULT_STORAGE, absolute_storage
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import Manifest, choose_tracking_uri, read_manifest
from sweeps.study.loader import load
from tracking.errors import TrackingError

_NO_READER = {errno.EPIPE, errno.EIO}  # A closed pipe, a terminal that hung up.


def run(
    study: Study,
    set_: Changes = None,
    address: RayAddress = None,
    tracking_uri: TrackingUri = None,
    storage: Storage = None,
    num_points: NumPoints = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the sweep; an unfinished one is continued.")
    ] = None,
    reuse: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SWEEP",
            help="Copy trainings of SWEEP or STORAGE/SWEEP; auto: of the storage. Repeatable.",
        ),
    ] = None,
    budget: Budget = None,
    yes: Yes = False,
    quiet: Quiet = False,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Serve Ray's dashboard, and print its address.")
    ] = False,
) -> None:
    """Run a sweep: train every point, record it in MLflow, report the Pareto front.

    Exit codes: 0 done; 1 some points failed, the others are kept; 2 bad input, nothing started;
    130 after Ctrl-C, 143 after SIGTERM, 138 and 140 after SIGUSR1 and SIGUSR2, with the command
    that continues.
    """
    loaded = load(study, set_ or ())
    if budget is not None:
        loaded = set_budget(loaded, _read_budget(budget))
    planned = make_plan(loaded, num_points)
    check_confirmed(planned.study, planned.samples, yes)
    directory = absolute_storage(storage or DEFAULT_STORAGE)
    sweep = name or new_sweep_name(directory, planned.study.name)
    _run_plan(
        planned, sweep, directory, tracking_uri, address,
        reuse=reuse or (), quiet=quiet, dashboard=dashboard,
    )  # fmt: skip


def resume(
    sweep: Sweep,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change resources.NAME; repeatable."),
    ] = None,
    budget: Budget = None,
    address: RayAddress = None,
    tracking_uri: TrackingUri = None,
    storage: Storage = None,
    quiet: Quiet = False,
) -> None:
    """Continue an interrupted sweep; finished points are never trained again.

    It has no budget unless one is given. Resources may change, as
    `--set resources.concurrency=2`. The exit codes are those of `sweeps run`.
    """
    directory = absolute_storage(storage or DEFAULT_STORAGE)
    manifest = read_manifest(Ledger(directory, sweep))
    require_packaged_names(manifest)  # before overrides are checked, which imports what it names
    for change in set_ or ():
        if not change.strip().startswith("resources."):
            raise InputError(
                f"resume changes only resources, such as resources.concurrency=2; got {change!r}. "
                f"To add points or replicates: sweeps extend {sweep}"
            )
    study = set_budget(load(manifest.study, set_ or ()), _read_budget(budget))
    plan = replan(manifest.model_copy(update={"study": study}))
    _run_plan(plan, sweep, directory, tracking_uri, address, manifest=manifest, quiet=quiet)


def extend(
    sweep: Sweep,
    num_points: Annotated[
        int | None, typer.Option(min=1, help="Points that the search draws in all.")
    ] = None,
    replicates: Annotated[int | None, typer.Option(min=1, help="Seeds per point in all.")] = None,
    set_: Changes = None,
    study: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Study file; needed if the sweep uses files or code of its author."
        ),
    ] = None,
    address: RayAddress = None,
    tracking_uri: TrackingUri = None,
    storage: Storage = None,
    budget: Budget = None,
    yes: Yes = False,
    quiet: Quiet = False,
) -> None:
    """Add points, replicates or values of a grid to a sweep; only what is missing is trained.

    The sweep keeps its name, its points and its MLflow runs. The exit codes are those of
    `sweeps run`.
    """
    directory = absolute_storage(storage or DEFAULT_STORAGE)
    manifest = read_manifest(Ledger(directory, sweep))
    base = None if study is None else load(study)
    limit = _read_budget(budget)
    plan = plan_extension(manifest, num_points, replicates, set_ or (), base, limit)
    check_confirmed(plan.study, plan.samples, yes)
    _run_plan(
        plan, sweep, directory, tracking_uri, address,
        manifest=manifest, extends=True, quiet=quiet,
    )  # fmt: skip


def _read_budget(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isdecimal() else text


def _run_plan(
    plan: Plan,
    sweep: str,
    storage: str,
    tracking_uri: str | None,
    address: str | None,
    *,
    manifest: Manifest | None = None,
    extends: bool = False,
    reuse: Sequence[str] = (),
    quiet: bool = False,
    dashboard: bool = False,
) -> None:
    """Runs a plan, prints its outcome, and exits with the command's exit code.

    With the manifest of a recorded sweep, its tracking store serves unless another one is given.
    """
    uri = tracking_uri if manifest is None else choose_tracking_uri(manifest, tracking_uri)
    with _closed_output_allowed():
        for note in plan.notes:
            say(f"Note: {note}", err=True)
        if not quiet:
            size = f"{format_count(plan.size, 'point')}, {format_count(plan.trainings, 'training')}"
            bound = "at most " if plan.is_adaptive else ""
            typer.echo(f"sweep {sweep}: {bound}{size}", err=True)
    resume_command = _resume_command(plan, sweep, storage, tracking_uri, address)

    def print_address(address: str) -> None:
        print_line(f"Ray's dashboard: {address}")  # The display moves below it.

    try:
        with display_progress(quiet=quiet) as show:
            outcome = execute(
                plan,
                sweep=sweep,
                storage=storage,
                tracking_uri=uri,
                address=address,
                on_progress=show,
                command=command_line(),
                resume_command=resume_command,
                extends=extends,
                reuse=reuse,
                on_dashboard=print_address if dashboard else None,
            )
    except KeyboardInterrupt as stop:
        with _closed_output_allowed():
            typer.echo(f"Stopped at once. Continue with:\n  {resume_command}", err=True)
        number = stop.signal if isinstance(stop, Interrupted) else signal.SIGINT
        raise typer.Exit(128 + number) from None
    with _closed_output_allowed():
        if not outcome.has_trained and outcome.interrupted_by is None:
            typer.echo(f"{sweep}: nothing to train; all trainings are finished.", err=True)
        _print_outcome(outcome, tracking_uri, tracking.resolve_uri(uri), resume_command)
    raise typer.Exit(outcome.exit_code)


@contextmanager
def _closed_output_allowed() -> Iterator[None]:
    """Lets the block print although the output may be closed."""
    _redirect_closed_output()
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_READER:
            raise
    _redirect_closed_output()


def _redirect_closed_output() -> None:
    """Redirects closed stdout and stderr to /dev/null; else Python exits with 120 at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            if error.errno not in _NO_READER:
                raise
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)


def _print_outcome(
    outcome: RunOutcome, requested: str | None, uri: str, resume_command: str
) -> None:
    result = outcome.result
    finished, failed, stopped = (result.counts[how] for how in ("finished", "failed", "stopped"))
    parts = [f"{finished:,} of {format_count(result.size, 'point')} finished"]
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{stopped} stopped early"] if stopped else []
    typer.echo(", ".join(parts))
    if outcome.reused is not None:
        copied, available = outcome.reused
        typer.echo(f"reused {copied:,} of {format_count(available, 'training')} of other sweeps")
    front = result.front(all=True)
    if len(front):
        print_table(front_table(front, result.objectives, result.swept_fields))
    for remark in front_remarks(result, front):
        say(remark)
    lost = (f"pack {pack} failed: {reason}" for pack, reason in outcome.failures.items())
    ignored = (f"ignored {name}: {reason}" for name, reason in result.unreadable.items())
    for warning in (*outcome.problems, *lost, *ignored):
        say(f"Warning: {warning}", err=True)
    if outcome.interrupted_by is not None:
        typer.echo(f"Stopped. Continue with:\n  {resume_command}", err=True)
        return
    if outcome.is_budget_spent:
        typer.echo(f"The budget of this run is spent. Continue with:\n  {resume_command}", err=True)
    elif result.pending:
        points = format_count(result.pending, "point")
        typer.echo(f"{points} without all replicates. Try again with:\n  {resume_command}")
    _print_places(outcome, requested, uri)


def _print_places(outcome: RunOutcome, requested: str | None, uri: str) -> None:
    """Prints where the report and the MLflow runs are, or how to publish them later.

    Commands name the tracking store only where they would choose another one: `sync` without the
    option takes the sweep's own store, and `ui` the default one.
    """
    result, published = outcome.result, outcome.published
    storage = redact(result.storage)
    if outcome.has_report:
        typer.echo(f"report:  {storage}/{result.sweep}/report.html")
    # A submitted sweep is read from a machine with another environment.
    is_submitted = bool(os.environ.get(SUBMIT_COMMAND))
    option = f" --tracking-uri {shlex.quote(redact(uri))}"
    if not published.whole:
        typer.echo(
            f"Warning: {published.error or 'not all points are in MLflow'}\n"
            "Nothing is lost. When the tracking server answers again, run:\n"
            f"  sweeps sync {result.sweep} --storage {shlex.quote(storage)}"
            f"{option if requested or is_submitted else ''}",
            err=True,
        )
    elif published.page:
        say(f"MLflow:  {strip_credentials(uri).rstrip('/')}/{published.page}")
    else:
        is_named = is_submitted
        with suppress(TrackingError):  # MLFLOW_TRACKING_URI names no store
            is_named = is_named or uri != tracking.resolve_uri()
        typer.echo(f"MLflow:  {redact(uri)}; open it with: sweeps ui{option if is_named else ''}")


def _resume_command(
    plan: Plan, sweep: str, storage: str, tracking_uri: str | None, address: str | None
) -> str:
    """Returns the command that continues a sweep, without credentials."""
    if submitted := os.environ.get(SUBMIT_COMMAND):
        return submitted
    if names_user_files(plan.study):  # `resume` refuses to run what only the storage names
        again = command_line()
        return again if sweep in again.split() else f"{again} --name {sweep}"
    words = ["sweeps", "resume", sweep, "--storage", redact(storage)]
    words += ["--tracking-uri", redact(tracking_uri)] if tracking_uri else []
    words += ["--address", address] if address else []
    return shlex.join(words)
