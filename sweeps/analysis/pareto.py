"""Pareto fronts, hypervolume and attainment surfaces of points, with declared directions.

Point `a` dominates `b` when it is at least as good in every objective and better in one. Algorithms
are moocore's; what is decided here is which rows take part. A row takes part when its `status` is
`finished` (if the frame has that column) and no objective is NaN; infinities are ordinary values.
moocore marks its own bounds with infinities and goes wrong (or crashes) when data holds them, so it
is given ranks, which keep every comparison.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Literal

import moocore
import numpy as np
import pandas as pd
from numpy.typing import NDArray

Direction = Literal["min", "max"]
Objectives = Mapping[str, Direction]


def pareto_front(points: pd.DataFrame, objectives: Objectives) -> pd.DataFrame:
    """The rows that no other row dominates.

    Args:
        points: One row per point, as `Result.points`.
        objectives: Metric to `min` or `max`.

    Returns:
        Those rows with all columns, in the frame's order and under its index; rows of equal
        objectives are all kept. `attrs["excluded"]` counts the rows that took no part:
        `not_finished` by their status, `undefined` by a NaN among the objectives.

    Raises:
        ValueError: If there is no objective, a metric is unknown, or a direction is neither.
    """
    taking_part, excluded = comparable(points, objectives)
    ranks, _ = _ranks(_minimised(taking_part, objectives))
    kept: NDArray[np.bool_] = moocore.is_nondominated(ranks, keep_weakly=True)
    front = taking_part.loc[kept].copy()
    front.attrs["excluded"] = excluded
    return front


def comparable(points: pd.DataFrame, objectives: Objectives) -> tuple[pd.DataFrame, dict[str, int]]:
    """The rows that take part in a comparison, and how many do not for which cause.

    Raises:
        ValueError: If there is no objective, a metric is unknown, or a direction is neither.
    """
    check_objectives(points, objectives)
    finished = points.loc[_finished(points)]
    defined = finished.loc[finished[list(objectives)].notna().all(axis=1)]
    counts = {
        "not_finished": len(points) - len(finished),
        "undefined": len(finished) - len(defined),
    }
    return defined, counts


def hypervolume(
    points: pd.DataFrame, objectives: Objectives, reference: Mapping[str, float] | Sequence[float]
) -> float:
    """The volume of objective space that the points dominate, up to a reference.

    Args:
        points: One row per point, as `Result.points`; rows need not be on the front.
        objectives: Metric to `min` or `max`.
        reference: A value per objective, by metric or in the objectives' order. A point that is
            not better than it in every objective contributes nothing.

    Returns:
        The volume in the product of the objectives' units; 0 without a contributing point.

    Raises:
        ValueError: If objectives are amiss (see `pareto_front`), or the reference does not give
            a finite number for each.
    """
    (found,) = hypervolumes(points, objectives, reference, [len(points)])
    return found


def hypervolumes(
    points: pd.DataFrame,
    objectives: Objectives,
    reference: Mapping[str, float] | Sequence[float],
    counts: Sequence[int],
) -> list[float]:
    """`hypervolume` of the first so many rows, for each count.

    Raises:
        ValueError: As `hypervolume`.
    """
    check_objectives(points, objectives)
    corner = _corner(objectives, reference)
    values = _minimised(points, objectives)
    takes_part = _finished(points).to_numpy(dtype=bool) & (values < corner).all(axis=1)
    return [_volume(values[:count][takes_part[:count]], corner) for count in counts]


def _volume(values: NDArray[np.float64], corner: NDArray[np.float64]) -> float:
    if np.isinf(values).any():
        return math.inf
    return float(moocore.hypervolume(values, ref=corner))


def attainment(
    replicates: pd.DataFrame, objectives: Objectives, level: float = 0.5
) -> pd.DataFrame:
    """The surface that a share `level` of the replicates attains (empirical attainment function).

    A replicate (one seed over all configurations) is one approximation set. It attains a place in
    objective space when one of its points is at least as good in every objective. At 0.5 this is
    the median front. Fonseca, Guerreiro, López-Ibáñez, Paquete, EMO 2011.

    Args:
        replicates: One row per point and replicate with its `seed`, as `Result.replicates`.
        objectives: Metric to `min` or `max`; two or three of them.
        level: Share of replicates in (0, 1]; counted over every seed of the frame, so that a seed
            whose points are all undefined attains nothing.

    Returns:
        The surface's non-dominated corners: a column per objective, sorted by the first; empty
        when too few replicates attain anything.

    Raises:
        ValueError: If there is no column `seed`, the level is outside (0, 1], or the objectives
            are amiss or neither two nor three.
    """
    _check_attainment(replicates, objectives, level)
    taking_part, _ = comparable(replicates, objectives)
    surface = _surface(taking_part, objectives, _needed(level, replicates["seed"].nunique()))
    frame = pd.DataFrame(surface, columns=list(objectives))
    return frame.sort_values(list(objectives), ignore_index=True)


def check_objectives(points: pd.DataFrame, objectives: Objectives) -> None:
    """Check that objectives name numeric columns and directions.

    Raises:
        ValueError: If there is no objective, a metric is unknown, or a direction is neither.
    """
    if not objectives:
        raise ValueError("objectives must name at least one metric; got none.")
    for metric, direction in objectives.items():
        if direction not in ("min", "max"):
            raise ValueError(f"the direction of {metric} must be min or max; got {direction!r}.")
        if metric not in points.columns:
            raise ValueError(_unknown_metric(points, metric))


def _finished(points: pd.DataFrame) -> pd.Series[bool]:
    """Rows of finished points; one failed replicate fails its point, as survivors mislead."""
    if "status" not in points:
        return pd.Series(True, index=points.index)
    finished = points["status"] == "finished"
    if "point_id" not in points:
        return finished
    return ~points["point_id"].isin(points.loc[~finished, "point_id"])


def _unknown_metric(points: pd.DataFrame, metric: str) -> str:
    suffixes = (".std", ".ci_low", ".ci_high")
    numeric = [str(c) for c in points.select_dtypes("number").columns if "/" in str(c)]
    metrics = [c for c in numeric if not c.startswith("config/") and not c.endswith(suffixes)]
    if not metrics:
        return f"no metric {metric!r}, as no point has finished yet."
    close = get_close_matches(metric, metrics, n=3)
    if close:
        return f"no metric {metric!r}; did you mean {' or '.join(close)}?"
    return f"no metric {metric!r}; the metrics are {', '.join(metrics)}."


def _signs(objectives: Objectives) -> NDArray[np.float64]:
    return np.array([-1.0 if direction == "max" else 1.0 for direction in objectives.values()])


def _minimised(points: pd.DataFrame, objectives: Objectives) -> NDArray[np.float64]:
    """The objectives' values, turned so that smaller is better."""
    return points[list(objectives)].to_numpy(dtype=np.float64) * _signs(objectives)


def _ranks(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """Each column's dense ranks from 0, and the column's distinct values that they index."""
    levels = [np.unique(column) for column in values.T]
    ranks = [np.searchsorted(d, column) for d, column in zip(levels, values.T, strict=True)]
    return np.stack(ranks, axis=1).astype(np.float64), levels


def _corner(
    objectives: Objectives, reference: Mapping[str, float] | Sequence[float]
) -> NDArray[np.float64]:
    if isinstance(reference, Mapping):
        given = [float(reference.get(metric, math.nan)) for metric in objectives]
    else:
        given = [float(value) for value in reference]
    if len(given) != len(objectives) or not all(map(math.isfinite, given)):
        raise ValueError(
            f"reference must give a finite number for each of {', '.join(objectives)}; "
            f"got {reference}."
        )
    return np.array(given) * _signs(objectives)


def _check_attainment(replicates: pd.DataFrame, objectives: Objectives, level: float) -> None:
    if "seed" not in replicates.columns:
        raise ValueError(
            "attainment needs a row per replicate with its `seed`; "
            "pass result.replicates, not result.points."
        )
    if not 0 < level <= 1:
        raise ValueError(f"level must be in (0, 1]; got {level}.")
    check_objectives(replicates, objectives)
    if len(objectives) not in (2, 3):
        raise ValueError(f"attainment needs two or three objectives; got {len(objectives)}.")


def _needed(level: float, seeds: int) -> int:
    """How many replicates make a share of at least `level` (2/3 of 3 is 2 despite rounding)."""
    return max(1, math.ceil(level * seeds - 1e-9))


def _surface(taking_part: pd.DataFrame, objectives: Objectives, needed: int) -> NDArray[np.float64]:
    # moocore reads sets from their sizes alone, so a set's rows must lie together.
    ordered = taking_part.sort_values("seed", kind="stable")
    seeds = ordered["seed"].to_numpy()
    present = len(np.unique(seeds))
    if needed > present:
        return np.empty((0, len(objectives)))
    ranks, levels = _ranks(_minimised(ordered, objectives))
    corners = moocore.eaf(ranks, seeds, percentiles=[100 * needed / present])[:, :-1].astype(int)
    found = [level[corner] for level, corner in zip(levels, corners.T, strict=True)]
    return np.stack(found, axis=1) * _signs(objectives)
