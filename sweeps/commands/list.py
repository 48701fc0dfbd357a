"""`sweeps list`: the packaged studies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from sweeps.spec import Study


def list() -> None:
    """List the packaged studies and what each reproduces."""
    from sweeps.loading import load, names

    for name in names():
        study = load(name)
        typer.echo(f"{name}  ({_size(study)}; {_origin(study)})")
        typer.echo(f"    {study.description.strip()}")


def _size(study: Study) -> str:
    from sweeps.search import grid_size

    points = study.search.num_points or grid_size(study.space)
    return f"{points} points x {study.replicates} replicates"


def _origin(study: Study) -> str:
    if study.reproduces is None:
        return "reproduces no publication"
    figure = study.reproduces.figure
    return f"reproduces {study.reproduces.paper}" + (f", figure {figure}" if figure else "")
