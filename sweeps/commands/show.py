"""`sweeps show`: what a study comes to, before anything is started."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from sweeps.commands.options import say

if TYPE_CHECKING:
    from sweeps.planning import Plan

_MOST_LISTED = 40


def show(
    study: Annotated[str, typer.Argument(help="A packaged study's name, or a YAML file.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key; values are YAML."),
    ] = None,
    num_points: Annotated[
        int | None, typer.Option(min=1, help="How many points the search draws.")
    ] = None,
) -> None:
    """Show the resolved spec with its points, packs and cost; starts and writes nothing.

    The output is itself a study file: what the study comes to is told in its comments.
    """
    from sweeps.documents import dump
    from sweeps.loading import load
    from sweeps.planning import plan

    planned = plan(load(study, set_ or ()), num_points)
    say(dump(planned.study.resolved(), width=100).rstrip())
    for line in _summary(planned):
        say(f"# {line}".rstrip().replace("\n", " "))


def _summary(plan: Plan) -> Iterator[str]:
    from sweeps.planning import duration

    trainings = len(plan.points) * len(plan.seeds)
    yield f"{len(plan.points):,} points x {len(plan.seeds)} replicates = {trainings:,} trainings"
    yield from _packs(plan)
    yield f"about {duration(plan.cost())} of one core"
    yield "defaults: " + ", ".join(f"{name} {_written(v)}" for name, v in _defaults(plan))
    yield "objectives: " + ", ".join(f"{d} {metric}" for metric, d in plan.objectives.items())
    yield from (f"note: {note}" for note in plan.notes)
    yield from _points(plan)


def _defaults(plan: Plan) -> Iterator[tuple[str, object]]:
    """Configuration fields that the study leaves as they are."""
    named = {*plan.study.fixed, *plan.study.space}
    for name, value in plan.points[0].config.resolved().items():
        if name not in named:
            yield name, value


def _packs(plan: Plan) -> Iterator[str]:
    from sweeps.measuring import known
    from sweeps.packing import here, pack

    resources, replicates = plan.study.resources, plan.replicates()
    workers, memory = here(resources)
    measured = known(plan.study.experiment, replicates, resources, memory)
    packs = pack(
        replicates,
        experiment=plan.study.experiment,
        size=resources.pack,
        workers=workers,
        memory=memory,
        curves=measured,
    )
    sizes = sorted(len(made.replicates) for made in packs)
    spread = f"{sizes[0]}" if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
    yield f"{len(packs):,} packs of {spread} trainings with {workers} at once on this machine"
    if resources.pack != "auto":
        yield "packs as large as the study says"
    elif measured:
        yield "packs as large as pays by what was measured on this machine"
    else:
        yield "packs as large as pays by the cost model; a long sweep measures first"


def _points(plan: Plan) -> Iterator[str]:
    swept = list(plan.study.space)
    yield "points:"
    for point in plan.points[:_MOST_LISTED]:
        values = ", ".join(f"{name} {_written(getattr(point.config, name))}" for name in swept)
        yield f"  {point.point_id}  {values}"
    if len(plan.points) > _MOST_LISTED:
        yield f"  and {len(plan.points) - _MOST_LISTED:,} more"


def _written(value: object) -> str:
    """A value as in study files, to its last digit."""
    from sweeps.frames import setting

    return setting(value) if value in (None, math.inf) else str(value)
