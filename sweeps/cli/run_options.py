"""Options of the commands that run or publish a sweep."""

from __future__ import annotations

from typing import Annotated

import typer

Address = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="A running Ray to join; by default one is started."),
]
TrackingUri = Annotated[
    str | None,
    typer.Option(
        metavar="URI",
        help="MLflow's store; MLFLOW_TRACKING_URI, or else mlflow.db here, by default.",
    ),
]
