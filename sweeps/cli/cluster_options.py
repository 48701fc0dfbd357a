"""Arguments of the commands that talk to a cluster from outside."""

from __future__ import annotations

from typing import Annotated

import typer

Sweep = Annotated[str, typer.Argument(help="The sweep's name, as `sweeps submit` printed it.")]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="http://HEAD:8265",
        help="The cluster's job server; RAY_ADDRESS by default, if it is such an address.",
    ),
]
