"""Sweeps side by side: what each attains, and whose fronts beat whose.

Hypervolumes share one reference, the worst value of each objective over all sweeps, so they compare
with one another and with nothing else. A front is chosen among noisy means: a sweep of more points,
or of fewer replicates, flatters its own. The attained hypervolume is what half of the replicates
reach, each by a front chosen among its own values: it tells how a single seed would look, flatters
more, and compares only between sweeps of as many replicates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sweeps.analysis.export import plain, plain_rows
from sweeps.analysis.pareto import Objectives, attainment, comparable, hypervolume, pareto_front
from sweeps.errors import InputError
from sweeps.report.summary import reference_point

if TYPE_CHECKING:
    from sweeps.analysis.results import Result

_TASK = ("experiment", "config/problem", "config/dataset")


@dataclass(frozen=True)
class Side:
    """One sweep among those compared.

    Attributes:
        sweep: Its name.
        study: Its study's.
        points: How many take part: finished, with every objective defined.
        replicates: Of each point.
        on_front: How many are on the sweep's own front.
        on_joint_front: How many are on the front of all sweeps together.
        hypervolume: That the points dominate, up to the reference.
        attained: The same of the surface that half of the replicates attain; None unless all
            sweeps have as many replicates, two or more, and for other than two or three objectives.
        dominated: Other sweep to the share, in [0, 1], of this sweep's front that a point of the
            other's is better than: at least as good in every objective, and better in one.
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
        objectives: Metric to its direction.
        reference: Metric to its value, up to which hypervolumes count.
        sides: One per sweep, in the order given.
        front: The front of all together, a row per point as in `Result.points`.
        unlike: What the sweeps are about where that differs: a column of points to its values.
    """

    objectives: Objectives
    reference: Mapping[str, float]
    sides: tuple[Side, ...]
    front: pd.DataFrame
    unlike: Mapping[str, tuple[str, ...]]


def compare(results: Sequence[Result], objectives: Objectives | None = None) -> Comparison:
    """Compare sweeps.

    Args:
        results: Two or more sweeps of different names.
        objectives: Metric to direction; those of the sweeps' studies if None.

    Raises:
        InputError: If there are not two sweeps, their objectives differ and none were named, a
            metric is unknown in one of them, or one has no point that can be compared.
    """
    names = [result.sweep for result in results]
    if len(names) < 2 or len(set(names)) < len(names):
        raise InputError(f"name two or more different sweeps; got {', '.join(names)}")
    objectives = objectives or _shared(results)
    points = {result.sweep: _comparable(result, objectives) for result in results}
    fronts = {name: pareto_front(frame, objectives) for name, frame in points.items()}
    joint = pareto_front(pd.concat(fronts.values(), ignore_index=True), objectives)
    reference = reference_point(pd.concat(points.values()), objectives)
    alike = len({len(result.manifest.plan.seeds) for result in results}) == 1
    sides = []
    for result in results:
        name = result.sweep
        others = {other: front for other, front in fronts.items() if other != name}
        sides.append(
            Side(
                sweep=name,
                study=result.study.name,
                points=len(points[name]),
                replicates=len(result.manifest.plan.seeds),
                on_front=len(fronts[name]),
                on_joint_front=int((joint["sweep"] == name).sum()),
                hypervolume=hypervolume(points[name], objectives, reference),
                attained=_attained(result, objectives, reference) if alike else None,
                dominated={
                    other: _dominated(fronts[name], front, objectives)
                    for other, front in others.items()
                },
            )
        )
    return Comparison(objectives, reference, tuple(sides), joint, _unlike(points.values()))


def as_json(comparison: Comparison) -> dict[str, Any]:
    """A comparison as plain values; null for what is undefined, text for infinities."""
    metrics = [m + end for m in comparison.objectives for end in ("", ".ci_low", ".ci_high")]
    fields = [column for column in comparison.front if str(column).startswith("config/")]
    return {
        "objectives": dict(comparison.objectives),
        "reference": dict(comparison.reference),
        "unlike": {column: list(values) for column, values in comparison.unlike.items()},
        "sweeps": [
            {name: plain(value) for name, value in vars(side).items()} for side in comparison.sides
        ],
        "front": plain_rows(comparison.front[["sweep", "point_id", *metrics, *fields]]),
    }


def _shared(results: Sequence[Result]) -> Objectives:
    first, *others = results
    for other in others:
        if dict(other.objectives) != dict(first.objectives):
            told = "; ".join(f"{r.sweep}: {_worded(r.objectives)}" for r in (first, other))
            raise InputError(
                f"the sweeps have different objectives ({told}); "
                "name some that both report with --minimize and --maximize"
            )
    return first.objectives


def _worded(objectives: Objectives) -> str:
    return ", ".join(f"{metric} {direction}" for metric, direction in objectives.items())


def _comparable(result: Result, objectives: Objectives) -> pd.DataFrame:
    """The sweep's points that take part, those with an infinite objective left out."""
    try:
        points, _ = comparable(result.points, objectives)
    except ValueError as error:
        raise InputError(f"{result.sweep}: {error}") from error
    values = points[list(objectives)].to_numpy(dtype=np.float64)
    finite: pd.DataFrame = points.loc[np.isfinite(values).all(axis=1).tolist()]
    if finite.empty:
        told = ", ".join(objectives)
        raise InputError(f"{result.sweep} has no finished point with a finite {told}")
    return finite


def _unlike(points: Iterable[pd.DataFrame]) -> dict[str, tuple[str, ...]]:
    """The tasks of sweeps that are not about the same: their fronts compare with caution."""
    frames = list(points)
    found = {}
    for column in _TASK:
        each = [frozenset(map(str, frame.get(column, ["none"]))) for frame in frames]
        if len(set(each)) > 1:
            found[column] = tuple(" and ".join(sorted(values)) for values in each)
    return found


def _attained(
    result: Result, objectives: Objectives, reference: Mapping[str, float]
) -> float | None:
    if len(objectives) not in (2, 3) or len(result.manifest.plan.seeds) < 2:
        return None
    return hypervolume(attainment(result.replicates, objectives), objectives, reference)


def _dominated(front: pd.DataFrame, other: pd.DataFrame, objectives: Objectives) -> float:
    """The share of a front that some point of another is better than."""
    signs = [1.0 if direction == "min" else -1.0 for direction in objectives.values()]
    own, theirs = (
        frame[list(objectives)].to_numpy(dtype=np.float64) * signs for frame in (front, other)
    )
    beaten = [bool(((theirs <= row).all(axis=1) & (theirs < row).any(axis=1)).any()) for row in own]
    return sum(beaten) / len(beaten)
