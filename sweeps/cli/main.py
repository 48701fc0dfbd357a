"""The `sweeps` command line: finds a command's module, runs it, reports bad input.

A command's module is imported only when that command runs, so that `sweeps --help` is quick.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from cluster.auth import bypass_proxies_for_loopback
from cluster.errors import ClusterError
from privnets.credentials import redact
from privnets.registry import package_version
from sweeps.cli.options import Command
from sweeps.errors import InputError, StudyError, make_printable
from sweeps.process import raise_gc_thresholds
from tracking.errors import TrackingError

# Command: panel of the help, module, function (or Typer app), one line of help.
_COMMANDS: Final[dict[str, tuple[str, str, str, str]]] = {
    "list": ("Studies", "studies", "list_studies", "List the packaged studies, or your sweeps."),
    "show": ("Studies", "studies", "show", "Show what a study would train, and its cost."),
    "fields": ("Studies", "studies", "fields", "Show the fields of an experiment."),
    "run": ("Sweeps", "run", "run", "Run a sweep: train, record, report the Pareto front."),
    "train": ("Sweeps", "train", "train", "Train in this process, without Ray and MLflow."),
    "resume": ("Sweeps", "run", "resume", "Continue an interrupted sweep."),
    "extend": ("Sweeps", "run", "extend", "Add points or replicates to a sweep."),
    "points": ("Results", "results", "points", "Show or save every point of a sweep."),
    "pareto": ("Results", "results", "pareto", "Show, save or plot the Pareto front."),
    "compare": ("Results", "results", "compare", "Compare the fronts of several sweeps."),
    "claims": ("Results", "results", "claims", "Test the claims of a study on its results."),
    "report": ("Results", "results", "report", "Write a report as one HTML page."),
    "audit": ("Models", "audit", "audit", "Audit a model, or saved outputs, for membership."),
    "release": ("Models", "release", "release", "Release new records by a trained releaser."),
    "submit": ("Clusters", "submit", "submit", "Submit a sweep to a Ray cluster."),
    "status": ("Clusters", "status", "status", "Show the progress of a sweep, here or remote."),
    "logs": ("Clusters", "submit", "logs", "Print the log of a submitted sweep."),
    "stop": ("Clusters", "submit", "stop", "Stop a submitted sweep; finished work is kept."),
    "sync": ("MLflow", "mlflow_store", "sync", "Publish the points that MLflow lacks."),
    "verify": ("MLflow", "mlflow_store", "verify", "Check that MLflow equals the ledger."),
    "ui": ("MLflow", "mlflow_store", "ui", "Open the MLflow UI on this machine."),
    "serve": ("MLflow", "mlflow_store", "serve", "Serve MLflow to a team, with accounts."),
    "data": ("Setup", "setup", "app", "List and fetch data sets."),
    "doctor": ("Setup", "setup", "doctor", "Check everything that a sweep needs."),
}


class LazyGroup(TyperGroup):
    """Command group that imports a command's module when that command is called."""

    def __init__(self, **options: Any) -> None:
        """Registers each command by name and help alone."""
        super().__init__(**options)
        for name, (panel, _, _, help_text) in _COMMANDS.items():
            self.add_command(Command(name, help=help_text, rich_help_panel=panel))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Returns the called command, with its options, and its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else load_command(name), rest


def load_command(name: str) -> Any:
    """Imports a command's module and returns the command."""
    _, module, attribute, _ = _COMMANDS[name]
    target = getattr(import_module(f"sweeps.cli.{module}"), attribute)
    if not isinstance(target, typer.Typer):
        single = typer.Typer(add_completion=False)
        single.command(name, cls=Command)(target)
        target = single
    command = typer.main.get_command(target)
    command.name = name
    return command


app = typer.Typer(
    name="sweeps",
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"sweeps {package_version('privnets-sweeps')}")
        raise typer.Exit


@app.callback()
def _sweeps(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Draw privacy-utility trade-off curves: run sweeps, compare them, extract Pareto fronts."""


def main() -> None:
    """Runs the command line; bad input gives one message and exit code 2."""
    raise_gc_thresholds()
    bypass_proxies_for_loopback()
    try:
        app(prog_name="sweeps")
    except Exception as error:
        from privnets.data import DataError  # It loads numpy, which a working command may not need.

        # Mistakes that the user can correct.
        if not isinstance(error, (InputError, StudyError, DataError, TrackingError, ClusterError)):
            raise
        typer.echo(f"Error: {make_printable(redact(str(error)))}", err=True)
        sys.exit(2)
