"""Arguments of the commands that take a study."""

from __future__ import annotations

from typing import Annotated

import typer

StudyName = Annotated[str, typer.Argument(help="A packaged study's name, or a YAML file.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key; values are YAML."),
]
NumPoints = Annotated[int | None, typer.Option(min=1, help="How many points the search draws.")]
Yes = Annotated[bool, typer.Option("--yes", help="Run a very large plan unasked.")]
