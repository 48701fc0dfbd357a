"""`sweeps train`: train a sweep in this process, on a machine without Ray and MLflow."""

from __future__ import annotations

import re
import shlex
import time
from typing import Annotated

import typer

from sweeps.analysis.text import format_count
from sweeps.cli.options import Changes, Quiet, Storage, Study
from sweeps.cli.terminal import command_line, say
from sweeps.engine.local import LocalTraining
from sweeps.engine.local import train as train_here
from sweeps.errors import InputError
from sweeps.study.loader import load

_LINE_SECONDS = 10.0


def train(
    study: Study,
    set_: Changes = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the sweep; the study's by default.")
    ] = None,
    storage: Storage = None,
    device: Annotated[
        str | None, typer.Option(help="Device, as torch names it.", show_default="cuda, else cpu")
    ] = None,
    pack: Annotated[
        int | None, typer.Option(min=1, help="Trainings in a pack.", show_default="by cost")
    ] = None,
    part: Annotated[
        str, typer.Option(metavar="I/N", help="Train part I, from 0, of N that divide the points.")
    ] = "0/1",
    minutes: Annotated[
        float | None, typer.Option(min=0.0, help="Save a checkpoint and end after this time.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Train a sweep in this process, without Ray and MLflow; repeat the command to continue.

    For nodes without Ray, SLURM arrays, notebooks and CI. Where MLflow is installed,
    `sweeps run STUDY --reuse STORAGE/NAME` publishes and reports what was trained.

    Exit codes: 0 done; 1 some packs failed; 2 bad input; 3 the time was over; 128 + signal.
    """
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", part)
    if match is None:
        raise InputError(f"--part must be as 0/4; got {part!r}")
    shown_at = time.monotonic()

    def show(training: LocalTraining, share: float) -> None:
        nonlocal shown_at
        if not quiet and time.monotonic() - shown_at >= _LINE_SECONDS:
            shown_at = time.monotonic()
            typer.echo(f"{_describe(training)}, {share:.0%} of a pack", err=True)

    outcome = train_here(
        load(study, set_ or ()),
        name=name,
        storage=storage,
        device=device,
        pack=pack,
        part=(int(match[1]), int(match[2])),
        minutes=minutes,
        on_progress=show,
    )
    typer.echo(_describe(outcome))
    for pack_id, reason in outcome.failures.items():
        say(f"Warning: pack {pack_id} failed: {reason}", err=True)
    if outcome.interrupted_by is not None or outcome.is_time_over:
        typer.echo(f"Stopped. Continue with:\n  {command_line()}", err=True)
        raise typer.Exit(128 + outcome.interrupted_by if outcome.interrupted_by else 3)
    parts = int(match[2])
    whole = outcome.sweep.removesuffix(f"-{match[1]}-of-{parts}")
    names = [f"{whole}-{i}-of-{parts}" for i in range(parts)] if parts > 1 else [whole]
    command = ["sweeps", "run", study, "--name", whole]
    command += [word for change in set_ or () for word in ("--set", change)]
    command += [word for each in names for word in ("--reuse", f"{outcome.storage}/{each}")]
    typer.echo(f"Publish and report it elsewhere with:\n  {shlex.join(command)}")
    raise typer.Exit(1 if outcome.failures else 0)


def _describe(training: LocalTraining) -> str:
    size = format_count(training.trainings, "training")
    return f"{training.sweep}: {training.finished:,} of {size} finished"
