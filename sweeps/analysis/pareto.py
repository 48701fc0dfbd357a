"""Pareto fronts, hypervolumes and attainment surfaces.

Point `a` dominates `b` when it is at least as good in every objective and better in one. A row
takes part when its `status` is `finished` (if the frame has that column), no objective is NaN and
no flag is raised (see `sweeps.analysis.flags`).
Infinite values are ordinary values. moocore computes; it gets ranks because it uses infinities as
its own bounds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

import moocore
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privnets.contract import Direction
from privnets.frames import ERROR_SUFFIX, SUFFIXES
from sweeps.analysis.flags import is_flagged
from sweeps.study.spec import Bounds

Objectives = Mapping[str, Direction]

_MAX_HISTORY_STEPS = 200
_PROBLEM = re.compile(r"config/(?:dataset|problem)(?:\..+)?")
_MAX_LISTED = 20


def pareto_front(
    points: pd.DataFrame, objectives: Objectives, *, include_flagged: bool = False
) -> pd.DataFrame:
    """Returns the rows that no other row of the same problem dominates.

    Args:
        points: One row per point, as `Result.points`.
        objectives: Metric to `min` or `max`.
        include_flagged: Whether points with a raised flag take part.

    Returns:
        Rows with all columns, in the frame's order and with its index. Rows of equal objectives are
        all kept.

    Raises:
        ValueError: If the objectives are empty, or a metric or direction is unknown.
    """
    rows = comparable_points(points, objectives, include_flagged=include_flagged)
    best = np.zeros(len(rows), dtype=bool)
    for places in split_by_problem(rows):
        ranks, _ = _ranks(_minimization_values(rows.iloc[places], objectives))
        best[places] = moocore.is_nondominated(ranks, keep_weakly=True)
    return rows.loc[best].copy()


def states_problem(field: str) -> bool:
    """Whether a field states the problem or data set, or one of its settings."""
    return _PROBLEM.fullmatch(f"config/{field}") is not None


def problem_fields(points: pd.DataFrame) -> list[str]:
    """Fields that state the problem and differ between points: they are no choice of a release.

    They are the data set or problem, and its settings, as `problem.gaussian-mixture.dependence`.
    """
    columns = [name for name in map(str, points) if _PROBLEM.fullmatch(name)]
    kept = [name for name in columns if points[name].astype(str).nunique() > 1]
    return [name.removeprefix("config/") for name in kept]


def split_by_problem(points: pd.DataFrame) -> list[NDArray[np.int64]]:
    """Places of the points of each problem; points of different problems do not compare."""
    if not (fields := problem_fields(points)):
        return [np.arange(len(points))]
    texts = points[[f"config/{field}" for field in fields]].astype(str)
    return [np.asarray(places) for places in texts.groupby(list(texts)).indices.values()]


def comparable_points(
    points: pd.DataFrame, objectives: Objectives, *, include_flagged: bool = False
) -> pd.DataFrame:
    """The rows that take part in a comparison."""
    _check_objectives(points, objectives)
    finished = points.loc[_is_finished(points)]
    defined = finished.loc[finished[list(objectives)].notna().all(axis=1)]
    return defined if include_flagged else defined.loc[~is_flagged(defined)]


def meets_constraints(points: pd.DataFrame, constraints: Mapping[str, Bounds]) -> pd.DataFrame:
    """Rows of points whose means keep to the ranges of a study's constraints."""
    for metric, bounds in constraints.items():
        low, high = bounds.ends
        points = points.loc[points[metric].between(low, high)] if metric in points else points[:0]
    return points


def finite_points(
    points: pd.DataFrame, objectives: Objectives, *, include_flagged: bool = False
) -> pd.DataFrame:
    """The comparable rows whose objectives are all finite."""
    rows = comparable_points(points, objectives, include_flagged=include_flagged)
    finite = np.isfinite(rows[list(objectives)].to_numpy(dtype=np.float64)).all(axis=1)
    selected: pd.DataFrame = rows.loc[finite]
    return selected


def worst_values(
    points: pd.DataFrame, objectives: Objectives, *, include_flagged: bool = False
) -> dict[str, float]:
    """The worst finite value of each objective; empty without a point of finite objectives."""
    known = _with_objectives(points, objectives)
    rows = finite_points(known, objectives, include_flagged=include_flagged)
    if rows.empty:
        return {}
    return {m: float(rows[m].agg("max" if d == "min" else "min")) for m, d in objectives.items()}


def hypervolume(
    points: pd.DataFrame,
    objectives: Objectives,
    reference: Mapping[str, float] | Sequence[float],
    *,
    include_flagged: bool = False,
) -> float:
    """Volume of objective space that the points dominate, up to a reference.

    Args:
        points: One row per point, as `Result.points`; rows need not be on the front.
        objectives: Metric to `min` or `max`.
        reference: A value per objective, by metric or in the objectives' order. A point that is
            not better than it in every objective contributes nothing.
        include_flagged: Whether points with a raised flag take part.

    Returns:
        The volume in the product of the objectives' units; 0 without a contributing point.

    Raises:
        ValueError: If the objectives are invalid (see `pareto_front`), the reference does not
            give a finite number for each, or the points are of several problems.
    """
    _check_objectives(points, objectives)
    if several := problem_fields(points):
        differing = " and ".join(several)
        raise ValueError(f"no hypervolume: points that differ in {differing} share no scale")
    if isinstance(reference, Mapping):
        reference = [reference.get(metric, math.nan) for metric in objectives]
    ends = [float(value) for value in reference]
    if len(ends) != len(objectives) or not all(map(math.isfinite, ends)):
        raise ValueError(
            f"reference must give a finite number for each of {', '.join(objectives)}; "
            f"got {reference}."
        )
    corner = np.array(ends) * _signs(objectives)
    values = _minimization_values(points, objectives)
    takes_part = _is_finished(points)
    if not include_flagged:
        takes_part &= ~is_flagged(points)
    contributes = takes_part.to_numpy(dtype=bool) & (values < corner).all(axis=1)
    if np.isinf(values[contributes]).any():
        return math.inf
    return float(moocore.hypervolume(values[contributes], ref=corner))


def hypervolume_history(
    points: pd.DataFrame, objectives: Objectives, reference: Mapping[str, float]
) -> list[tuple[int, float, float]]:
    """The hypervolume after each point of finite objectives, at up to 200 of them.

    Returns:
        Number of points, hypervolume, and Unix time when it was reached.
    """
    rows = finite_points(_with_objectives(points, objectives), objectives)
    rows = rows.sort_values("finished_at", kind="stable")
    count = len(rows)
    stride = -(-count // _MAX_HISTORY_STEPS)
    steps = [step for step in range(1, count + 1) if step % stride == 0 or step == count]
    return [
        (
            step,
            hypervolume(rows.iloc[:step], objectives, reference),
            rows["finished_at"].iloc[step - 1].timestamp(),
        )
        for step in steps
    ]


def attainment(
    replicates: pd.DataFrame, objectives: Objectives, level: float = 0.5
) -> pd.DataFrame:
    """Surface that a share `level` of the replicates attains (empirical attainment function).

    A replicate (one seed over all configurations) is one approximation set. It attains a place in
    objective space when one of its points is at least as good in every objective. At 0.5 this is
    the median front. Fonseca, Guerreiro, López-Ibáñez, Paquete, EMO 2011.

    Args:
        replicates: One row per point and replicate with its `seed`, as `Result.replicates`. Flags
            have no effect, as they belong to points.
        objectives: Metric to `min` or `max`; two or three of them.
        level: Share of replicates in (0, 1], counted over every seed of the frame. A seed whose
            points are all undefined attains nothing.

    Returns:
        Non-dominated corners of the surface: a column per objective, sorted by the first. Empty if
        too few replicates attain anything.

    Raises:
        ValueError: If the column `seed` is missing, the level is outside (0, 1], or the objectives
            are invalid or neither two nor three.
    """
    if "seed" not in replicates.columns:
        raise ValueError(
            "attainment needs a row per replicate with its `seed`; "
            "pass result.replicates, not result.points."
        )
    if not 0 < level <= 1:
        raise ValueError(f"level must be in (0, 1]; got {level}.")
    rows = comparable_points(replicates, objectives, include_flagged=True)
    if len(objectives) not in (2, 3):
        raise ValueError(f"attainment needs two or three objectives; got {len(objectives)}.")
    # The allowance lets 2/3 of 3 replicates be 2 despite rounding.
    required = max(1, math.ceil(level * replicates["seed"].nunique() - 1e-9))
    # moocore reads sets from their sizes alone, so a set's rows must be consecutive.
    ordered = rows.sort_values("seed", kind="stable")
    seeds = ordered["seed"].to_numpy()
    present = len(np.unique(seeds))
    surface = np.empty((0, len(objectives)))
    if required <= present:
        ranks, levels = _ranks(_minimization_values(ordered, objectives))
        share = 100 * required / present
        corners = moocore.eaf(ranks, seeds, percentiles=[share])[:, :-1].astype(int)
        values = [level[corner] for level, corner in zip(levels, corners.T, strict=True)]
        surface = np.stack(values, axis=1) * _signs(objectives)
    frame = pd.DataFrame(surface, columns=list(objectives))
    return frame.sort_values(list(objectives), ignore_index=True)


def _check_objectives(points: pd.DataFrame, objectives: Objectives) -> None:
    if not objectives:
        raise ValueError("objectives must name at least one metric; got none.")
    for metric, direction in objectives.items():
        if direction not in ("min", "max"):
            raise ValueError(f"the direction of {metric} must be min or max; got {direction!r}.")
        if metric not in points.columns:
            raise ValueError(_unknown_metric(points, metric))


def _is_finished(points: pd.DataFrame) -> pd.Series[bool]:
    """Rows of finished points; a failed replicate excludes its whole point."""
    if "status" not in points:
        return pd.Series(True, index=points.index)
    finished = points["status"] == "finished"
    if "point_id" not in points:
        return finished
    return ~points["point_id"].isin(points.loc[~finished, "point_id"])


def _with_objectives(points: pd.DataFrame, objectives: Objectives) -> pd.DataFrame:
    """The points, with NaN for metrics of a sweep whose points all failed."""
    return points.assign(**{m: math.nan for m in objectives if m not in points})


def _unknown_metric(points: pd.DataFrame, metric: str) -> str:
    numeric = [str(c) for c in points.select_dtypes("number").columns if "/" in str(c)]
    suffixes = (*SUFFIXES, ERROR_SUFFIX)
    metrics = [c for c in numeric if not c.startswith("config/") and not c.endswith(suffixes)]
    if not metrics:
        return f"no metric {metric!r}, because no point has finished yet."
    if close := get_close_matches(metric, metrics, n=3):
        return f"no metric {metric!r}; did you mean {' or '.join(close)}?"
    overall = [name for name in metrics if name.count("/") == 1][:_MAX_LISTED]
    rest = len(metrics) - len(overall)
    others = f" and {rest} others, which the columns of `sweeps points -o` name" if rest else ""
    return f"no metric {metric!r}; the metrics are {', '.join(overall)}{others}."


def _signs(objectives: Objectives) -> NDArray[np.float64]:
    return np.array([-1.0 if direction == "max" else 1.0 for direction in objectives.values()])


def _minimization_values(points: pd.DataFrame, objectives: Objectives) -> NDArray[np.float64]:
    """The objectives' values, with signs so that smaller is better."""
    return points[list(objectives)].to_numpy(dtype=np.float64) * _signs(objectives)


def _ranks(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """Dense ranks of each column from 0, and the distinct values that they index."""
    levels = [np.unique(column) for column in values.T]
    ranks = [np.searchsorted(d, column) for d, column in zip(levels, values.T, strict=True)]
    return np.stack(ranks, axis=1).astype(np.float64), levels
