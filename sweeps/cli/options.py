"""Arguments and options that several commands share."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from sweeps.remote.environment import ADDRESS_VARIABLE, default_job_server, is_job_server


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
    """Command whose help is wrapped to the terminal."""

    def __init__(self, name: str | None, *, help: str | None = None, **options: Any) -> None:
        """Joins the lines of each paragraph of the help."""
        super().__init__(name, help=re.sub(r"(?<!\n)\n(?!\n)", " ", help or ""), **options)
