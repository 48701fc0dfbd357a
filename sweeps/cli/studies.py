"""`sweeps list`, `show` and `fields`: studies, sweeps, and the fields of an experiment."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer
from pydantic import BaseModel

import privnets
from privnets.config import flatten
from privnets.fields import describe_fields
from privnets.registry import is_own_experiment
from sweeps.analysis.text import Table, first_sentence, format_count, format_setting
from sweeps.cli.options import Changes, NumPoints, Storage, Study
from sweeps.cli.terminal import print_table, say, say_sentence, say_wrapped
from sweeps.errors import InputError, StudyError, describe_choices
from sweeps.planning.costs import cost_seconds, format_duration
from sweeps.planning.packing import local_capacity, make_packs
from sweeps.planning.plan import Plan, make_plan
from sweeps.store.ledger import Ledger, list_sweeps
from sweeps.store.manifest import read_manifest
from sweeps.store.recorded import PREFIX, recorded_storage
from sweeps.study import spec
from sweeps.study.loader import load, study_names
from sweeps.study.search_space import Axis, grid_size
from sweeps.study.validation import validate_study
from sweeps.study.yaml_reader import dump_yaml

_LISTED_POINTS: Final = 40
_START: Final = "plus the start of Ray, up to half a minute on a busy machine"
_SECTIONS: Final[Mapping[str, type[BaseModel]]] = {
    "study": spec.Study,
    "space": Axis,
    "search": spec.SearchSpec,
    "resources": spec.Resources,
    "early_stopping": spec.EarlyStopping,
    "claims": spec.Claim,
}


def list_studies(
    sweeps: Annotated[bool, typer.Option("--sweeps", help="List your sweeps instead.")] = False,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="List the sweeps that come with the project.")
    ] = False,
    storage: Storage = None,
) -> None:
    """List the packaged studies by experiment, the quickest first, with size and cost.

    With --sweeps, list the sweeps of a storage: state, points, age. With --recorded, list finished
    sweeps that every command which reads results opens as recorded:NAME.
    """
    if recorded:
        place, rows = recorded_storage(), []
        for name in list_sweeps(place):
            manifest = read_manifest(Ledger(place, name))
            plan, commit = manifest.plan, (manifest.git_commit or "unknown")[:7]
            sizes = format_count(plan.points, "point"), format_count(len(plan.seeds), "replicate")
            version = f"{manifest.study.experiment} {plan.experiment_version}"
            rows.append((PREFIX + name, manifest.study.name, " x ".join(sizes), version, commit))
        columns = ("sweep", "study", "size", "experiment", "commit")
        print_table(Table(columns, tuple(rows)))
        return
    if sweeps:
        # It loads what reads results, which takes a second.
        from sweeps.cli.status import sweep_table

        print_table(sweep_table(storage))
        return
    by_experiment: dict[str, list[tuple[float, str, spec.Study]]] = {}
    for name in study_names():
        study = load(name)
        seconds = cost_seconds(study, validate_study(study, data=False).configs)
        by_experiment.setdefault(study.experiment, []).append((seconds, name, study))
    for experiment, studies in by_experiment.items():
        say(f"{experiment}:")
        for seconds, name, study in sorted(studies, key=lambda each: each[:2]):
            points, size = study.search.num_points, grid_size(study.space)
            if points is None or study.search.algorithm == "grid":
                points = min(points or size, size)
            cost = f"about {format_duration(seconds)} of one core"
            size_and_cost = f"{points} points x {study.replicates} replicates; {cost}"
            say_wrapped(f"  {name}  ({size_and_cost})", "    ")
            source = ""
            if study.reproduces is not None:
                paper, figure = study.reproduces.paper, study.reproduces.figure
                figure = figure if figure is None or isinstance(figure, str) else f"figure {figure}"
                source = f" Reproduces {paper}{'' if figure is None else f', {figure}'}."
            # The rest of a description is in its file.
            say_wrapped(f"    {first_sentence(study.description)}{source}", "    ")
    say_wrapped(f"Times are those of training alone, {_START}.", "")


def fields(
    name: Annotated[
        str, typer.Argument(help="Experiment, as membership, or section of a study, as search.")
    ],
) -> None:
    """Show every field of an experiment, or of a section of a study: values, default, meaning.

    The values are the type and its bounds, or the allowed names.
    """
    names = [*privnets.experiments(), *_SECTIONS]
    if name not in names and not is_own_experiment(name):
        raise InputError(
            f"nothing named {name!r} has fields; expected {describe_choices(names, name)}"
        )
    model = _SECTIONS.get(name) or privnets.experiment(name).Config
    for field in describe_fields(model):
        default = "" if field.default == "required" else "default "
        say_wrapped(f"{field.name}: {field.values}; {default}{field.default}", "    ")
        say_wrapped(f"    {field.meaning}", "    ")


def show(
    study: Study,
    set_: Changes = None,
    num_points: NumPoints = None,
    yaml: Annotated[
        bool, typer.Option("--yaml", help="Print the resolved study, a study file itself.")
    ] = False,
) -> None:
    """Show a study's points, cost and data as they are understood; nothing starts."""
    planned, missing = _plan_or_outline(load(study, set_ or ()), num_points)
    if yaml:
        resolved = _drop_empty(planned.study.to_dict())
        for key in ("search", "resources"):
            resolved[key] = _drop_empty(resolved[key])
        if "claims" in resolved:
            resolved["claims"] = [_drop_empty(claim) for claim in resolved["claims"]]
        say(dump_yaml(resolved).rstrip())
    else:
        for line in _describe(planned, has_ids=not missing):
            say_sentence(line.replace("\n", " "), "    ")
    for warning in missing:
        say(f"Warning: {warning}", err=True)


def _plan_or_outline(study: spec.Study, num_points: int | None) -> tuple[Plan, list[str]]:
    """Plans a study; where its packaged data are missing, without them, and returns warnings."""
    try:
        return make_plan(study, num_points), []
    except StudyError as error:
        # An entry of a data set, as dataset.table, is of the user's own, which points depend on.
        if any(each.key.count(".") != 1 for each in error.errors):
            raise
        try:
            outline = make_plan(study, num_points, data=False)
        except StudyError:
            raise error from None  # The first error lists every mistake.
        needed = "`sweeps run` needs the data; the ids of points depend on them and are not shown"
        return outline, [f"{each.given}. {needed}." for each in error.errors]


def _drop_empty(part: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a part of a study without keys that say nothing: they are empty by default."""
    return {key: value for key, value in part.items() if value not in (None, "", [], {})}


def _describe(plan: Plan, *, has_ids: bool) -> Iterator[str]:
    """Size and cost first, then the data, the points and what the study leaves open."""
    if plan.is_adaptive:
        yield f"{format_count(plan.trainings, 'training')}, {_cost(plan)}, {_START}"
    else:
        points, replicates = len(plan.points), len(plan.seeds)
        size = f"{format_count(points, 'point')} x {format_count(replicates, 'replicate')}"
        yield f"{size} = {format_count(plan.trainings, 'training')}"
        yield from _describe_packs(plan)
    yield "objectives: " + ", ".join(f"{d} {metric}" for metric, d in plan.objectives.items())
    yield from (f"note: {note}" for note in plan.notes)
    if not plan.is_adaptive:
        yield "points:"
        for point in plan.points[:_LISTED_POINTS]:
            config = point.config.resolved()
            values = ", ".join(f"{name} {_format(config[name])}" for name in plan.study.space)
            yield f"  {point.point_id}  {values}" if has_ids else f"  {values}"
        if len(plan.points) > _LISTED_POINTS:
            yield f"  and {len(plan.points) - _LISTED_POINTS:,} more"
    if defaults := ", ".join(f"{name} {_format(v)}" for name, v in _default_values(plan)):
        yield f"left at their defaults: {defaults}"
    yield "`sweeps show --yaml` prints the resolved study."


def _cost(plan: Plan) -> str:
    return f"about {format_duration(plan.cost_seconds())} of one core"


def _default_values(plan: Plan) -> Iterator[tuple[str, object]]:
    """Yields the fields in use that the study leaves at their defaults."""
    experiment = privnets.experiment(plan.study.experiment)
    examples = {config.structure(): config for config in plan.samples}
    unused = frozenset.intersection(*map(experiment.unused_fields, examples.values()))
    excluded = {*flatten(plan.study.constants), *plan.study.space, *unused}
    for name, value in plan.samples[0].canonical().resolved().items():
        if name not in excluded:
            yield name, value


def _describe_packs(plan: Plan) -> Iterator[str]:
    resources = plan.study.resources
    capacity = local_capacity(resources)
    name = plan.study.experiment
    packs = make_packs(plan.replicates(), experiment=name, size=resources.pack, capacity=capacity)
    low, high = (f(len(pack.replicates) for pack in packs) for f in (min, max))
    size = format_count(low, "training") if low == high else f"{low} to {high} trainings"
    yield f"{format_count(len(packs), 'pack')} of {size}; one worker trains a pack at once"
    source = "the cost model" if resources.pack == "auto" else "resources.pack of the study"
    yield f"pack size: from {source}"
    seconds, busy = plan.cost_seconds(), min(capacity.workers, len(packs))
    cost = _cost(plan)
    if busy > 1:
        cost += f", {format_duration(seconds / busy)} with {busy} packs in parallel"
    yield f"{cost}, {_START}"


def _format(value: object) -> str:
    """Returns a value as in study files, with every digit."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and not re.fullmatch(r"[\w./:+-]+", value):
        return json.dumps(value, ensure_ascii=False)
    return format_setting(value) if value in (None, math.inf) else str(value)
