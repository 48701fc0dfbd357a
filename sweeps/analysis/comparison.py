"""Comparison of sweeps: hypervolumes, and shares of fronts that another sweep dominates.

Hypervolumes share one reference: the worst value of each objective over all sweeps. They compare
only with one another. A front is chosen among noisy means, so it looks better with many points
or few replicates. The attained hypervolume is reached by half of the replicates, each with its own
front; it compares only between sweeps with equally many replicates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sweeps.analysis.export import json_rows, json_value
from sweeps.analysis.pareto import (
    Objectives,
    attainment,
    finite_points,
    hypervolume,
    pareto_front,
    worst_values,
)
from sweeps.analysis.results import Result
from sweeps.errors import InputError

_TASK_COLUMNS = ("experiment", "config/problem", "config/dataset")


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
        hypervolume: Volume that the points dominate, up to the reference.
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
    attained: float | None
    dominated: Mapping[str, float]


@dataclass(frozen=True)
class Comparison:
    """Sweeps side by side.

    Attributes:
        objectives: Metric to `min` or `max`.
        reference: Metric to the value up to which hypervolumes count.
        sweeps: One per sweep, in the order given.
        front: Front of all sweeps together, a row per point as in `Result.points`.
        differences: Column of points to its values in each sweep, where the tasks differ.
    """

    objectives: Objectives
    reference: Mapping[str, float]
    sweeps: Sequence[ComparedSweep]
    front: pd.DataFrame
    differences: Mapping[str, tuple[str, ...]]


def compare_sweeps(results: Sequence[Result], objectives: Objectives | None = None) -> Comparison:
    """Compares sweeps of different names on the objectives given or else on those they share.

    Raises:
        InputError: If there are not two sweeps, their objectives differ and none were named, a
            metric is unknown in one of them, or one has no point that can be compared.
    """
    names = [result.sweep for result in results]
    if len(names) < 2 or len(set(names)) < len(names):
        raise InputError(f"name two or more different sweeps; got {', '.join(names)}")
    objectives = objectives or _common_objectives(results)
    points = {result.sweep: _finite_points(result, objectives) for result in results}
    fronts = {name: pareto_front(frame, objectives) for name, frame in points.items()}
    joint = pareto_front(pd.concat(fronts.values(), ignore_index=True), objectives)
    reference = worst_values(pd.concat(points.values(), ignore_index=True), objectives)
    counts = [len(result.manifest.plan.seeds) for result in results]
    attainable = len(objectives) in (2, 3) and min(counts) > 1 and len(set(counts)) == 1
    sweeps = []
    for name, result, replicates in zip(names, results, counts, strict=True):
        attained = attainment(result.replicates, objectives) if attainable else None
        compared = ComparedSweep(
            sweep=name,
            study=result.study.name,
            points=len(points[name]),
            replicates=replicates,
            on_front=len(fronts[name]),
            on_joint_front=int((joint["sweep"] == name).sum()),
            hypervolume=hypervolume(points[name], objectives, reference),
            attained=None if attained is None else hypervolume(attained, objectives, reference),
            dominated={
                other: _dominated_share(fronts[name], front, objectives)
                for other, front in fronts.items()
                if other != name
            },
        )
        sweeps.append(compared)
    return Comparison(objectives, reference, sweeps, joint, _task_differences(points.values()))


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """A comparison as JSON values: null for undefined ones, text for infinities."""
    metrics = [m + end for m in comparison.objectives for end in ("", ".ci_low", ".ci_high")]
    fields = [column for column in comparison.front if str(column).startswith("config/")]
    return {
        "objectives": dict(comparison.objectives),
        "reference": dict(comparison.reference),
        "differences": {column: list(values) for column, values in comparison.differences.items()},
        "sweeps": [
            {name: json_value(value) for name, value in vars(sweep).items()}
            for sweep in comparison.sweeps
        ],
        "front": json_rows(comparison.front[["sweep", "point_id", *metrics, *fields]]),
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


def _finite_points(result: Result, objectives: Objectives) -> pd.DataFrame:
    try:
        points = finite_points(result.points, objectives)
    except ValueError as error:
        raise InputError(f"{result.sweep}: {error}") from error
    if points.empty:
        metrics = ", ".join(objectives)
        raise InputError(f"{result.sweep} has no finished point with a finite {metrics}")
    return points


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
