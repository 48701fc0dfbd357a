"""Arguments and options that several commands share, and the messages about wrong ones."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from sweeps.errors import InputError, describe_choices
from sweeps.remote.environment import ADDRESS_VARIABLE, default_job_server, is_job_server

_NUMBERS: Final = {int: "a whole number", float: "a number"}


def _ray_to_join(given: str | None) -> str | None:
    address = os.environ.get(ADDRESS_VARIABLE)
    return given or (None if is_job_server(address) else address)


def _server_to_read(context: typer.Context, given: str | None) -> str | None:
    is_elsewhere = any(context.params.get(place) for place in ("storage", "tracking_uri"))
    return given or (None if is_elsewhere else default_job_server())


Sweep = Annotated[str, typer.Argument(help="Name of the sweep, as `sweeps run` prints it.")]
Study = Annotated[str, typer.Argument(help="Name of a packaged study, or path of a YAML file.")]

Storage = Annotated[
    str | None,
    typer.Option(
        metavar="DIR_OR_URI", help="Where sweeps are stored.", show_default="./sweep-results"
    ),
]
TrackingUri = Annotated[
    str | None,
    typer.Option(
        metavar="URI",
        help="MLflow tracking store.",
        show_default="MLFLOW_TRACKING_URI, else mlflow.db in the working directory",
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="Running Ray to join.",
        callback=_ray_to_join,
        show_default="RAY_ADDRESS, if it is such an address; else start one on this machine",
    ),
]
JobServer = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="http://HEAD:8265",
        help="Job server of the cluster.",
        show_default="RAY_ADDRESS, if it is such an address",
    ),
]
AnyAddress = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="ADDRESS",
        help="A Ray cluster: HOST:PORT, auto, or its job server, http://HEAD:8265.",
        envvar=ADDRESS_VARIABLE,
        show_envvar=False,
        show_default="RAY_ADDRESS; else this machine alone",
    ),
]

ReadFrom = Annotated[
    str | None, typer.Option("--tracking-uri", metavar="URI", help="Read from this MLflow store.")
]
ReadAddress = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="http://HEAD:8265",
        help="Read a sweep that was submitted there.",
        callback=_server_to_read,
        show_default="RAY_ADDRESS, if it is such an address and no other place is named",
    ),
]

Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change a key of the study; repeatable."),
]
NumPoints = Annotated[int | None, typer.Option(min=1, help="Number of points the search draws.")]
Budget = Annotated[
    str | None,
    typer.Option(
        metavar="N_OR_TIME",
        help="Trainings that this run may begin, or its time: 500, 90s, 30m, 2h, 1d.",
        show_default="no limit",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Accept a plan of more than 10,000 points.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress: only warnings and the outcome.")
]

Data = Annotated[
    str | None,
    typer.Option(
        "--data", metavar="DIR", help="Data directory.", show_default="PRIVNETS_DATA of each node"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the table here.")
]
Minimize = Annotated[
    list[str] | None, typer.Option(metavar="METRIC", help="Metric to minimise; repeatable.")
]
Maximize = Annotated[
    list[str] | None, typer.Option(metavar="METRIC", help="Metric to maximise; repeatable.")
]


class Command(TyperCommand):
    """Command whose messages about wrong arguments name the value given and those expected."""

    def __init__(self, name: str | None, *, help: str | None = None, **options: Any) -> None:
        """Joins the lines of each paragraph of the help, which are wrapped to the terminal."""
        super().__init__(name, help=re.sub(r"(?<!\n)\n(?!\n)", " ", help or ""), **options)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the command's arguments and options."""
        with _clear_messages(ctx):
            return super().parse_args(ctx, args)


class CommandGroup(TyperGroup):
    """Group of commands with the same messages as `Command`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the group's own options; without any argument, shows the help."""
        if not args:
            return super().parse_args(ctx, args)
        with _clear_messages(ctx):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Returns the name of the called command, the command and its arguments."""
        if args[0] not in self.commands:
            expected = describe_choices(self.commands, args[0])
            raise InputError(
                f"got the command {args[0]}; expected {expected}.\nSee `{ctx.command_path} --help`."
            )
        return super().resolve_command(ctx, args)


@contextmanager
def _clear_messages(ctx: Any) -> Iterator[None]:
    """Raises Typer's errors as `InputError`: value given, values expected, what to do."""
    try:
        yield
    except TyperException as error:
        option = getattr(error, "option_name", None)
        named = (each for each in ctx.command.params if option in each.opts)
        parameter = getattr(error, "param", None) or next(named, None)
        if parameter is not None:
            name = option or parameter.opts[-1]
            bad, allowed = _bad_value(error, parameter), _allowed_values(parameter)
            lines = [f"{name}: got {bad}; expected {allowed}."]
            lines += [parameter.help] if parameter.help else []
        elif option is not None:
            names = [name for each in ctx.command.get_params(ctx) for name in each.opts]
            options = [name for name in names if name.startswith("-")]
            lines = [f"got the option {option}; expected {describe_choices(options, option)}."]
        else:
            usage = ctx.get_usage().removeprefix("Usage: ")
            lines = [f"{error.message}; expected {usage}."]
        raise InputError("\n".join([*lines, f"See `{ctx.command_path} --help`."])) from error


def _bad_value(error: TyperException, parameter: Any) -> str:
    """Returns the value that pydantic, which Typer uses, refused."""
    if isinstance(error.__cause__, ValueError):
        return str(error.__cause__.errors()[0]["input"])  # type: ignore[attr-defined]
    return "a value" if getattr(parameter, "is_flag", False) else "no value"


def _allowed_values(parameter: Any) -> str:
    """Returns the words for the values of an option or argument."""
    kind = parameter.type_descriptor
    if getattr(parameter, "is_flag", False):
        return "none"
    if kind.choices:
        return describe_choices(kind.choices)
    if kind.annotation not in _NUMBERS:
        is_argument = parameter.param_type_name == "argument"
        return "a value" if is_argument else str(parameter.metavar or "a value")
    low, high = kind.parameter_info.min, kind.parameter_info.max
    limits = [
        f"{words} {limit}"
        for words, limit in (("at least", low), ("at most", high))
        if limit is not None
    ]
    return _NUMBERS[kind.annotation] + (f" of {' and '.join(limits)}" if limits else "")
