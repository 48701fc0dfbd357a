"""The `sweeps` command. Each command's module loads what it needs only when it runs."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec

import typer

_COMMANDS = (
    "list",
    "show",
    "run",
    "resume",
    "points",
    "pareto",
    "report",
    "sync",
    "verify",
    "ui",
)

app = typer.Typer(
    name="sweeps",
    help="Draw privacy-utility trade-off curves: run sweeps, compare them, read their fronts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _register() -> None:
    for name in _COMMANDS:
        if find_spec(f"sweeps.commands.{name}") is not None:
            app.command(name)(getattr(import_module(f"sweeps.commands.{name}"), name))
    app.add_typer(import_module("sweeps.commands.data").app, name="data")


_register()


def main() -> None:
    """Run the command line; bad input gets one message and exit code 2."""
    try:
        app()
    except Exception as error:
        if not _is_bad_input(error):
            raise
        typer.echo(f"Error: {error}", err=True)
        sys.exit(2)


def _is_bad_input(error: Exception) -> bool:
    from privnets.data import DataError
    from sweeps.errors import InputError, StudyError
    from tracking.errors import TrackingError

    return isinstance(error, InputError | StudyError | DataError | TrackingError)
