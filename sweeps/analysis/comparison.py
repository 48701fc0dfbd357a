"""Comparison of sweeps: differences with intervals, and shares of fronts that others dominate.

Hypervolumes share one reference: the worst value of each objective over all sweeps. They compare
only with one another. A front is chosen among noisy means, so it looks better with many points
or few replicates; the intervals of hypervolumes are corrected for it. The attained hypervolume is
reached by half of the replicates, each with its own front; it compares only between sweeps with
equally many replicates. Differences are paired by the seeds that two sweeps have in common.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from privnets.statistics.bootstrap import build_samples
from privnets.statistics.intervals import LEVEL, Array, Interval
from sweeps.analysis.fronts import debiased_interval, draw_volumes
from sweeps.analysis.pareto import (
    Objectives,
    attainment,
    finite_points,
    hypervolume,
    pareto_front,
    problem_fields,
    worst_values,
)
from sweeps.analysis.results import Result
from sweeps.analysis.tables import panels, varying_fields
from sweeps.analysis.text import Table, format_setting, metric_label
from sweeps.errors import InputError

HYPERVOLUME = "hypervolume"

_ROUNDING = 1e-12
_TASK_COLUMNS = ("experiment", "config/problem", "config/dataset", "config/evaluation")


@dataclass(frozen=True)
class ComparedSweep:
    """One sweep among those compared.

    Attributes:
        sweep: Name of the sweep.
        study: Name of its study.
        points: Number of finished points whose objectives are all finite.
        replicates: Number of replicates of each point.
        on_front: Number of points on the sweep's own front.
        on_joint_front: Number of points on the front of all sweeps together.
        hypervolume: Volume that the means of the points dominate, up to the reference.
        hypervolume_interval: Volume that their true means dominate, without the bias of noise.
        attained: Volume that half of the replicates attain, where it can be compared.
        dominated: Other sweep to the share, in [0, 1], of this front that its front dominates.
    """

    sweep: str
    study: str
    points: int
    replicates: int
    on_front: int
    on_joint_front: int
    hypervolume: float
    hypervolume_interval: Interval
    attained: float | None
    dominated: Mapping[str, float]


@dataclass(frozen=True)
class Contrast:
    """Difference of two sweeps in one quantity.

    Attributes:
        metric: `hypervolume`, or an objective at equal settings.
        sweep: The sweep.
        baseline: The sweep that is subtracted.
        difference: The first sweep's value minus the second's.
        points: Number of settings that both sweeps have; 0 for the hypervolume.
        seeds: Number of seeds that both sweeps have, by which the difference is paired.
    """

    metric: str
    sweep: str
    baseline: str
    difference: Interval
    points: int
    seeds: int

    @property
    def verdict(self) -> Literal["higher", "lower", "cannot tell"]:
        """Whether the interval lies above 0, below 0, or holds it."""
        if self.difference.low > _ROUNDING:
            return "higher"
        return "lower" if self.difference.high < -_ROUNDING else "cannot tell"


@dataclass(frozen=True)
class Comparison:
    """Sweeps side by side.

    Attributes:
        objectives: Metric to `min` or `max`.
        reference: Metric to the value up to which hypervolumes count; empty where points of several
            problems share no scale.
        sweeps: One per sweep, in the order given.
        contrasts: Differences of each sweep from the first one.
        front: Front of all sweeps together, a row per point as in `Result.points`.
        differences: Column of points, or `constraints`, to its values in each sweep, where the
            tasks differ.
    """

    objectives: Objectives
    reference: Mapping[str, float]
    sweeps: Sequence[ComparedSweep]
    contrasts: Sequence[Contrast]
    front: pd.DataFrame
    differences: Mapping[str, tuple[str, ...]]


def compare_sweeps(results: Sequence[Result], objectives: Objectives | None = None) -> Comparison:
    """Compares sweeps of different names on the objectives given or else on those they share.

    Sweeps of several problems, which share no scale, have no hypervolumes.

    Raises:
        InputError: If there are not two sweeps, their objectives differ and none were named, a
            metric is unknown in one of them, one has no point that can be compared, or their
            panels of attackers differ.
    """
    names = [result.sweep for result in results]
    if len(names) < 2 or len(set(names)) < len(names):
        raise InputError(f"name two or more different sweeps; got {', '.join(names)}")
    if not objectives and len({frozenset(r.objectives.items()) for r in results}) > 1:
        named = "; ".join(
            f"{r.sweep}: {', '.join(map(' '.join, r.objectives.items()))}" for r in results
        )
        raise InputError(
            f"the sweeps have different objectives ({named}); "
            "name some that all report with --minimize and --maximize"
        )
    objectives = objectives or results[0].objectives
    points = {result.sweep: _finite_points(result, objectives) for result in results}
    every = pd.concat(points.values(), ignore_index=True)
    if len(judges := panels(every)) > 1:
        raise InputError(
            f"panel differs between the sweeps ({', '.join(judges)}), and stronger attackers leave "
            "less privacy: compare sweeps of one panel"
        )
    fronts = {name: pareto_front(frame, objectives) for name, frame in points.items()}
    joint = pareto_front(pd.concat(fronts.values(), ignore_index=True), objectives)
    reference = worst_values(every, objectives)
    # Ids of points begin with the number of their sweep. A sweep's points share the error of their
    # test set, so that it does not average out.
    tables = []
    for number, result in enumerate(results):
        table = result.sample_table(list(objectives), points[result.sweep]["point_id"])
        tables.append(table.assign(point_id=f"{number}:" + table["point_id"]))
    samples = build_samples(pd.concat(tables, ignore_index=True), list(objectives))
    groups = np.array([int(name.partition(":")[0]) for name in samples.point_ids])
    index = pd.Index(samples.point_ids)
    places = {
        sweep: index.get_indexer(pd.Index(f"{number}:" + frame["point_id"])).astype(np.int64)
        for number, (sweep, frame) in enumerate(points.items())
    }
    drawn = samples.draw(groups, is_student=False)
    shares_scale = not problem_fields(every)
    unknown = _Volume(math.nan, np.array([math.nan]), math.nan)
    volumes = {
        name: _Volume(
            hypervolume(frame, objectives, reference),
            draw_volumes(drawn.take(places[name], axis=1), objectives, reference),
            samples.select(places[name]).typical_freedom,
        )
        if shares_scale
        else unknown
        for name, frame in points.items()
    }
    counts = [len(result.reported_seeds) for result in results]
    is_attainable = len(objectives) in (2, 3) and min(counts) > 1 and len(set(counts)) == 1
    is_attainable &= shares_scale
    sweeps = []
    for name, result in zip(names, results, strict=True):
        own = result.replicates.loc[result.replicates["point_id"].isin(points[name]["point_id"])]
        surface = attainment(own, objectives) if is_attainable else None
        dominated = {}
        for other in (other for other in fronts if other != name):
            both = [fronts[name].assign(is_own=True), fronts[other].assign(is_own=False)]
            kept = pareto_front(pd.concat(both, ignore_index=True), objectives)
            dominated[other] = 1 - int(kept["is_own"].sum()) / len(fronts[name])
        sweeps.append(
            ComparedSweep(
                sweep=name,
                study=result.study.name,
                points=len(points[name]),
                replicates=len(result.reported_seeds),
                on_front=len(fronts[name]),
                on_joint_front=int((joint["sweep"] == name).sum()),
                hypervolume=volumes[name].size,
                hypervolume_interval=debiased_interval(*volumes[name]),
                attained=None if surface is None else hypervolume(surface, objectives, reference),
                dominated=dominated,
            )
        )
    first, contrasts, drawn = results[0], [], samples.draw(groups)
    draws = {name: drawn.take(own, axis=1) for name, own in places.items()}
    for result in results[1:]:
        name, seeds = result.sweep, len(result.reported_seeds & first.reported_seeds)
        volume, base = volumes[name], volumes[first.sweep]
        freedom = min(volume.freedom, base.freedom)
        change = debiased_interval(volume.size - base.size, volume.draws - base.draws, freedom)
        if shares_scale:
            contrasts.append(Contrast(HYPERVOLUME, name, first.sweep, change, 0, seeds))
        contrasts += _objective_contrasts(name, first.sweep, points, draws, objectives, seeds)
    differences = {}
    for column in (*_TASK_COLUMNS, "constraints"):
        told = []
        for result in results:
            values = [str(value) for value in points[result.sweep].get(column, ["none"])]
            if column == "constraints":
                limits = {m: bounds.ends for m, bounds in result.study.constraints.items()}
                values = [f"{m} in [{low:g}, {high:g}]" for m, (low, high) in limits.items()]
            told.append(frozenset(values or ["none"]))
        if len(set(told)) > 1:
            differences[column] = tuple(" and ".join(sorted(each)) for each in told)
    reference = reference if shares_scale else {}
    return Comparison(objectives, reference, sweeps, contrasts, joint, differences)


class _Volume(NamedTuple):
    """Hypervolume of a sweep at its means, at draws of the true means, and degrees of freedom."""

    size: float
    draws: Array
    freedom: float


def _objective_contrasts(
    sweep: str,
    baseline: str,
    points: Mapping[str, pd.DataFrame],
    draws: Mapping[str, Array],
    objectives: Objectives,
    seeds: int,
) -> Iterator[Contrast]:
    """Mean difference of each objective over the settings that both sweeps have.

    These are the values of the fields that vary within either sweep. There is none if these fields
    do not tell the points of a sweep apart.
    """
    frames, metrics = [points[sweep], points[baseline]], list(objectives)
    fields = dict.fromkeys(field for frame in frames for field in varying_fields(frame))
    columns = [f"config/{field}" for field in fields]
    own, other = (
        {key: place for place, key in enumerate(texts.itertuples(index=False, name=None))}
        for texts in (frame.reindex(columns=columns).map(format_setting) for frame in frames)
    )
    shared = [key for key in own if key in other]
    if not shared or not fields or [len(own), len(other)] != [*map(len, frames)]:
        return
    rows = [own[key] for key in shared], [other[key] for key in shared]
    means = [
        frame[metrics].to_numpy(dtype=np.float64)[own].mean(axis=0)
        for frame, own in zip(frames, rows, strict=True)
    ]
    drawn = draws[sweep][:, rows[0]].mean(axis=1) - draws[baseline][:, rows[1]].mean(axis=1)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    for metric, *ends in zip(metrics, means[0] - means[1], low, high, strict=True):
        interval = Interval(*map(float, ends))
        yield Contrast(metric, sweep, baseline, interval, len(shared), seeds)


def comparison_table(comparison: Comparison) -> Table:
    """Sizes, fronts and hypervolumes of compared sweeps, a column per sweep."""
    sides = comparison.sweeps

    def optional(values: Iterable[float | None]) -> list[str]:
        return ["-" if value is None else f"{value:.4g}" for value in values]

    rows = [
        ["points compared", *(str(side.points) for side in sides)],
        ["replicates", *(str(side.replicates) for side in sides)],
        ["points on its own front", *(str(side.on_front) for side in sides)],
        ["points on the joint front", *(str(side.on_joint_front) for side in sides)],
    ]
    if comparison.reference:
        rows += [
            ["hypervolume", *optional(side.hypervolume for side in sides)],
            ["hypervolume of true means", *(str(side.hypervolume_interval) for side in sides)],
            ["hypervolume attained by half", *optional(side.attained for side in sides)],
        ]
    for rival in sides:
        shares = (side.dominated.get(rival.sweep) for side in sides)
        cells = ("" if share is None else f"{share:.0%}" for share in shares)
        rows.append([f"front dominated by {rival.sweep}", *cells])
    worst = ", ".join(
        f"{metric_label(metric)} {value:.4g}" for metric, value in comparison.reference.items()
    )
    notes = ["No hypervolumes: points of several problems share no scale."]
    if worst:
        notes = [f"Hypervolume reference, the worst values over all these sweeps: {worst}."]
    for subject, values in comparison.differences.items():
        notes.append(f"Differences in {subject}: {'; '.join(values)}.")
    columns = ("", *(side.sweep for side in sides))
    return Table(columns, tuple(map(tuple, rows)), " ".join(notes))


def contrast_table(comparison: Comparison) -> Table:
    """Differences between sweeps with their intervals and verdicts."""
    rows = [
        (
            each.sweep,
            metric_label(each.metric),
            str(each.difference),
            each.verdict,
            str(each.points) if each.points else "front",
            str(each.seeds) if each.seeds else "none",
        )
        for each in comparison.contrasts
    ]
    columns = ("sweep", "quantity", "difference", "verdict", "equal settings", "common seeds")
    return Table(columns, tuple(rows))


def _finite_points(result: Result, objectives: Objectives) -> pd.DataFrame:
    try:
        points = finite_points(result.candidates, objectives)
        flagged = finite_points(result.candidates, objectives, include_flagged=True)
    except ValueError as error:
        raise InputError(f"{result.sweep}: {error}") from error
    if points.empty:
        if result.candidates.empty and len(result.reported_points):
            raise InputError(f"no point of {result.sweep} meets the constraints of its study")
        if len(flagged):
            raise InputError(
                f"every point of {result.sweep} that could be compared has a raised flag; "
                f"see `sweeps report {result.sweep}`"
            )
        metrics = ", ".join(objectives)
        raise InputError(f"{result.sweep} has no finished point with a finite {metrics}")
    return points
