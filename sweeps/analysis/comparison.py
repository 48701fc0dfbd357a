"""Comparison of sweeps: differences with intervals, and shares of fronts that others dominate.

Hypervolumes share one reference: the worst value of each objective over all sweeps. They compare
only with one another. A front is chosen among noisy means, so it looks better with many points
or few replicates; the intervals of hypervolumes are corrected for it. The attained hypervolume is
reached by half of the replicates, each with its own front; it compares only between sweeps with
equally many replicates. Differences are paired by the seeds that two sweeps have in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privnets.statistics.bootstrap import PointSamples, build_samples
from privnets.statistics.intervals import LEVEL, Array, Interval
from sweeps.analysis.export import json_rows, json_value
from sweeps.analysis.fronts import debiased_interval, draw_volumes
from sweeps.analysis.pareto import (
    Objectives,
    attainment,
    finite_points,
    hypervolume,
    pareto_front,
    worst_values,
)
from sweeps.analysis.results import Result
from sweeps.analysis.tables import add_judges, varying_fields
from sweeps.analysis.text import format_setting
from sweeps.errors import InputError
from sweeps.study.spec import Bounds

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
        reference: Metric to the value up to which hypervolumes count.
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

    Raises:
        InputError: If there are not two sweeps, their objectives differ and none were named, a
            metric is unknown in one of them, one has no point that can be compared, or their
            panels of attackers differ.
    """
    names = [result.sweep for result in results]
    if len(names) < 2 or len(set(names)) < len(names):
        raise InputError(f"name two or more different sweeps; got {', '.join(names)}")
    objectives = objectives or _common_objectives(results)
    points = {result.sweep: _finite_points(result, objectives) for result in results}
    _check_judges(pd.concat(points.values(), ignore_index=True))
    fronts = {name: pareto_front(frame, objectives) for name, frame in points.items()}
    joint = pareto_front(pd.concat(fronts.values(), ignore_index=True), objectives)
    reference = worst_values(pd.concat(points.values(), ignore_index=True), objectives)
    samples = _joint_samples(results, points, objectives)
    volumes = _volumes(samples, points, objectives, reference)
    attained_volumes = _attained_volumes(results, points, objectives, reference)
    sweeps = [
        ComparedSweep(
            sweep=name,
            study=result.study.name,
            points=len(points[name]),
            replicates=len(result.reported_seeds),
            on_front=len(fronts[name]),
            on_joint_front=int((joint["sweep"] == name).sum()),
            hypervolume=volumes[name].size,
            hypervolume_interval=volumes[name].interval,
            attained=attained,
            dominated={
                other: _dominated_share(fronts[name], front, objectives)
                for other, front in fronts.items()
                if other != name
            },
        )
        for name, result, attained in zip(names, results, attained_volumes, strict=True)
    ]
    contrasts = list(_contrasts(results, points, samples, volumes, list(objectives)))
    task = _task_differences(points.values())
    limits = [_describe_constraints(result.study.constraints) for result in results]
    task |= {"constraints": tuple(limits)} if len(set(limits)) > 1 else {}
    return Comparison(objectives, reference, sweeps, contrasts, joint, task)


class _Volume(NamedTuple):
    """Hypervolume of a sweep at its means, at draws of the true means, and degrees of freedom."""

    size: float
    draws: Array
    freedom: float

    @property
    def interval(self) -> Interval:
        return debiased_interval(*self)

    def minus(self, other: _Volume) -> Interval:
        """Interval of the difference; the draws are paired."""
        size, draws = self.size - other.size, self.draws - other.draws
        return debiased_interval(size, draws, min(self.freedom, other.freedom))


def _volumes(
    samples: PointSamples,
    points: Mapping[str, pd.DataFrame],
    objectives: Objectives,
    reference: Mapping[str, float],
) -> dict[str, _Volume]:
    places = _places_of_sweeps(samples, points)
    draws = _sweep_draws(samples, points, is_student=False)
    return {
        name: _Volume(
            hypervolume(frame, objectives, reference),
            draw_volumes(draws[name], objectives, reference),
            samples.select(places[name]).typical_freedom,
        )
        for name, frame in points.items()
    }


def _attained_volumes(
    results: Sequence[Result],
    points: Mapping[str, pd.DataFrame],
    objectives: Objectives,
    reference: Mapping[str, float],
) -> Iterator[float | None]:
    """Hypervolume that half of each sweep's replicates attain; None where they cannot compare."""
    counts = [len(result.reported_seeds) for result in results]
    is_attainable = len(objectives) in (2, 3) and min(counts) > 1 and len(set(counts)) == 1
    for result in results:
        rows = result.replicates
        own = rows.loc[rows["point_id"].isin(points[result.sweep]["point_id"])]
        surface = attainment(own, objectives) if is_attainable else None
        yield None if surface is None else hypervolume(surface, objectives, reference)


def _contrasts(
    results: Sequence[Result],
    points: Mapping[str, pd.DataFrame],
    samples: PointSamples,
    volumes: Mapping[str, _Volume],
    objectives: Sequence[str],
) -> Iterator[Contrast]:
    """Differences of each sweep from the first: of hypervolumes, and of objectives."""
    first, *others = results
    draws = _sweep_draws(samples, points, is_student=True)
    for result in others:
        name, base = result.sweep, first.sweep
        seeds = len(result.reported_seeds & first.reported_seeds)
        change = volumes[name].minus(volumes[base])
        yield Contrast(HYPERVOLUME, name, base, change, 0, seeds)
        yield from _objective_contrasts(name, base, points, draws, objectives, seeds)


def _joint_samples(
    results: Sequence[Result], points: Mapping[str, pd.DataFrame], objectives: Objectives
) -> PointSamples:
    """The points of all sweeps, paired by common seeds; ids begin with the number of the sweep."""
    tables = []
    for number, result in enumerate(results):
        table = result.sample_table(list(objectives), points[result.sweep]["point_id"])
        tables.append(table.assign(point_id=f"{number}:" + table["point_id"]))
    return build_samples(pd.concat(tables, ignore_index=True), list(objectives))


def _sweep_draws(
    samples: PointSamples, points: Mapping[str, pd.DataFrame], *, is_student: bool
) -> dict[str, Array]:
    """Draws of the objectives of each sweep, rows as in `points`.

    The points of a sweep share the error of their test set, so that it does not average out.
    """
    groups = np.array([int(name.partition(":")[0]) for name in samples.point_ids])
    draws = samples.draw(groups, is_student=is_student)
    places = _places_of_sweeps(samples, points)
    return {sweep: draws.take(own, axis=1) for sweep, own in places.items()}


def _places_of_sweeps(
    samples: PointSamples, points: Mapping[str, pd.DataFrame]
) -> dict[str, NDArray[np.int64]]:
    """Places among the samples of each sweep's points, in the order of its rows."""
    index = pd.Index(samples.point_ids)
    return {
        sweep: index.get_indexer(pd.Index(f"{number}:" + frame["point_id"])).astype(np.int64)
        for number, (sweep, frame) in enumerate(points.items())
    }


def _objective_contrasts(
    sweep: str,
    baseline: str,
    points: Mapping[str, pd.DataFrame],
    draws: Mapping[str, Array],
    objectives: Sequence[str],
    seeds: int,
) -> Iterator[Contrast]:
    """Mean difference of each objective over the settings that both sweeps have."""
    own, other = _matching_settings(points[sweep], points[baseline])
    if not len(own):
        return
    means = (
        points[name][objectives].to_numpy(dtype=np.float64)[places].mean(axis=0)
        for name, places in ((sweep, own), (baseline, other))
    )
    change = np.subtract(*means)
    drawn = draws[sweep][:, own].mean(axis=1) - draws[baseline][:, other].mean(axis=1)
    ends = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    for place, metric in enumerate(objectives):
        interval = Interval(*(float(row[place]) for row in (change, *ends)))
        yield Contrast(metric, sweep, baseline, interval, len(own), seeds)


def _matching_settings(
    first: pd.DataFrame, second: pd.DataFrame
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of two sweeps whose fields that vary within either sweep are equal.

    None if these fields do not tell the points of a sweep apart.
    """
    fields = dict.fromkeys([*varying_fields(first), *varying_fields(second)])
    keys = [_settings(frame, [f"config/{field}" for field in fields]) for frame in (first, second)]
    if not fields or any(len(set(own)) < len(own) for own in keys):
        empty = np.empty(0, dtype=np.int64)
        return empty, empty
    place = {key: row for row, key in enumerate(keys[1])}
    pairs = [(row, place[key]) for row, key in enumerate(keys[0]) if key in place]
    rows = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return rows[:, 0], rows[:, 1]


def _settings(frame: pd.DataFrame, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Values of some columns of each row as texts."""
    texts = frame.reindex(columns=list(columns)).map(format_setting)
    return list(texts.itertuples(index=False, name=None))


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """A comparison as JSON values: null for undefined ones, text for infinities."""
    metrics = [m + end for m in comparison.objectives for end in ("", ".ci_low", ".ci_high")]
    fields = [column for column in comparison.front if str(column).startswith("config/")]
    return {
        "objectives": dict(comparison.objectives),
        "reference": dict(comparison.reference),
        "differences": {column: list(values) for column, values in comparison.differences.items()},
        "sweeps": [_json_object(sweep) for sweep in comparison.sweeps],
        "contrasts": [
            {**_json_object(contrast), "verdict": contrast.verdict}
            for contrast in comparison.contrasts
        ],
        "front": json_rows(comparison.front[["sweep", "point_id", *metrics, *fields]]),
    }


def _json_object(value: ComparedSweep | Contrast) -> dict[str, Any]:
    """Fields as JSON values, with an object for each interval."""
    fields = asdict(value)
    return {
        name: {k: json_value(v) for k, v in field.items()}
        if isinstance(field, dict)
        else json_value(field)
        for name, field in fields.items()
    }


def _common_objectives(results: Sequence[Result]) -> Objectives:
    if len({frozenset(result.objectives.items()) for result in results}) > 1:
        named = "; ".join(
            f"{r.sweep}: {', '.join(map(' '.join, r.objectives.items()))}" for r in results
        )
        raise InputError(
            f"the sweeps have different objectives ({named}); "
            "name some that all report with --minimize and --maximize"
        )
    return results[0].objectives


def _check_judges(points: pd.DataFrame) -> None:
    """Checks that all points were judged by one yardstick; others cannot be compared."""
    for field in add_judges(points, []):
        values = sorted(set(points[f"config/{field}"].dropna().map(format_setting)))
        if len(values) > 1:
            raise InputError(
                f"{field} differs between the sweeps ({', '.join(values)}), and stronger attackers "
                f"leave less privacy: compare sweeps of one {field}"
            )


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


def _describe_constraints(constraints: Mapping[str, Bounds]) -> str:
    limits = (f"{metric} in [{b.ends[0]:g}, {b.ends[1]:g}]" for metric, b in constraints.items())
    return " and ".join(sorted(limits)) or "none"


def _task_differences(points: Iterable[pd.DataFrame]) -> dict[str, tuple[str, ...]]:
    """Values of the columns that define a task, where they differ between sweeps."""
    frames = list(points)
    differences = {}
    for column in _TASK_COLUMNS:
        values = [frozenset(map(str, frame.get(column, ["none"]))) for frame in frames]
        if len(set(values)) > 1:
            differences[column] = tuple(" and ".join(sorted(each)) for each in values)
    return differences


def _dominated_share(front: pd.DataFrame, other: pd.DataFrame, objectives: Objectives) -> float:
    """The share of a front whose points some point of another front dominates."""
    both = pd.concat([front.assign(is_own=True), other.assign(is_own=False)], ignore_index=True)
    kept = pareto_front(both, objectives)
    return 1 - int(kept["is_own"].sum()) / len(front)
