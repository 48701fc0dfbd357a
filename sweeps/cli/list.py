"""`sweeps list`: the packaged studies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from sweeps.study.spec import Study


def list() -> None:
    """List the packaged studies and what each reproduces."""
    from sweeps.study.loader import load, study_names

    for name in study_names():
        study = load(name)
        typer.echo(f"{name}  ({'; '.join((_size(study), *_cost(study), _origin(study)))})")
        typer.echo(f"    {study.description.strip()}")


def _size(study: Study) -> str:
    from sweeps.planning.search import grid_size

    points = study.search.num_points or grid_size(study.space)
    return f"{points} points x {study.replicates} replicates"


def _cost(study: Study) -> Iterator[str]:
    from sweeps.planning.plan import estimate_cost, format_duration

    seconds = estimate_cost(study)
    if seconds is not None:
        yield f"about {format_duration(seconds)} of one core"


def _origin(study: Study) -> str:
    if study.reproduces is None:
        return "reproduces no publication"
    paper, figure = study.reproduces.paper, study.reproduces.figure
    if figure is None:
        return f"reproduces {paper}"
    return f"reproduces {paper}, {figure if isinstance(figure, str) else f'figure {figure}'}"
