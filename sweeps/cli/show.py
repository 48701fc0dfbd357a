"""`sweeps show`: what a study comes to, before anything is started."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from sweeps.analysis.formatting import format_count
from sweeps.cli.options import say
from sweeps.cli.study_options import Changes, NumPoints, StudyName

if TYPE_CHECKING:
    from sweeps.planning.plan import Plan

_MOST_LISTED = 40
_EMPTY: Final[tuple[object, ...]] = (None, "", [])


def show(
    study: StudyName,
    set_: Changes = None,
    num_points: NumPoints = None,
) -> None:
    """Show the resolved spec with its points, packs and cost; starts and writes nothing.

    The output is itself a study file: what the study comes to is told in its comments.
    """
    from sweeps.planning.plan import make_plan
    from sweeps.study.loader import load
    from sweeps.study.yaml_reader import dump_yaml

    planned = make_plan(load(study, set_ or ()), num_points)
    resolved = planned.study.to_dict()
    say(
        dump_yaml({key: part for key, part in resolved.items() if part not in _EMPTY}, 100).rstrip()
    )
    for line in _summary(planned):
        say(f"# {line}".rstrip().replace("\n", " "))


def _summary(plan: Plan) -> Iterator[str]:
    trainings = len(plan.points) * len(plan.seeds)
    points = format_count(len(plan.points), "point")
    replicates = format_count(len(plan.seeds), "replicate")
    yield f"{points} x {replicates} = {format_count(trainings, 'training')}"
    yield from _packs(plan)
    if defaults := ", ".join(f"{name} {_written(v)}" for name, v in _defaults(plan)):
        yield f"left at their defaults: {defaults}"
    yield "objectives: " + ", ".join(f"{d} {metric}" for metric, d in plan.objectives.items())
    yield from (f"note: {note}" for note in plan.notes)
    yield from _points(plan)


def _defaults(plan: Plan) -> Iterator[tuple[str, object]]:
    """Configuration fields that mean something here and that the study leaves as they are."""
    import privnets

    experiment = privnets.experiment(plan.study.experiment)
    kinds = {point.config.structure(): point.config for point in plan.points}
    unused = frozenset.intersection(*map(experiment.unused_fields, kinds.values()))
    told = {*plan.study.fixed, *plan.study.space, *unused}
    for name, value in plan.points[0].config.resolved().items():
        if name not in told:
            yield name, value


def _packs(plan: Plan) -> Iterator[str]:
    from sweeps.planning.measuring import cached_curves
    from sweeps.planning.packing import local_capacity, make_packs
    from sweeps.planning.plan import format_duration

    resources, replicates = plan.study.resources, plan.replicates()
    workers, memory = local_capacity(resources)
    measured = cached_curves(plan.study.experiment, replicates, resources, memory)
    packs = make_packs(
        replicates,
        experiment=plan.study.experiment,
        size=resources.pack,
        workers=workers,
        memory=memory,
        curves=measured,
    )
    sizes = sorted(len(made.replicates) for made in packs)
    spread = f"{sizes[0]}" if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
    each = "1 training" if spread == "1" else f"{spread} trainings"
    yield f"{format_count(len(packs), 'pack')} of {each}"
    if resources.pack != "auto":
        yield "packs as large as the study says"
    elif measured:
        yield "packs as large as pays by what was measured on this machine"
    else:
        yield "packs as large as pays by the cost model; a long sweep measures first"
    seconds, busy = plan.cost_seconds(), min(workers, len(packs))
    together = (
        f", {format_duration(seconds / busy)} with {busy} packs at once here" if busy > 1 else ""
    )
    yield f"about {format_duration(seconds)} of one core{together}; Ray's start comes on top"


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
    from sweeps.analysis.formatting import format_setting

    if isinstance(value, bool):
        return str(value).lower()
    return format_setting(value) if value in (None, math.inf) else str(value)
