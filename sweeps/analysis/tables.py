"""Tables of points as text, for terminals and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sweeps.analysis.frames import BOUNDS, config_of, interval, setting
from sweeps.analysis.pareto import Objectives

MOST_ROWS = 50
"""Longer tables are cut to so many rows, and say so."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table to show.

    Attributes:
        columns: Headings.
        rows: Cells, as many in each row as there are headings.
        note: What else to know, below the table.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def front_table(front: pd.DataFrame, objectives: Objectives, fields: Sequence[str]) -> Table:
    """The front's points, best in the first objective first, with the bounds beside objectives.

    A bound that is undefined at all of them is left out; a report says why under its notes.

    Args:
        front: As `pareto_front` gives.
        objectives: Metric to `min` or `max`.
        fields: Configuration fields to show.
    """
    bounds = [BOUNDS[metric] for metric in objectives if BOUNDS.get(metric) in front]
    known = [bound for bound in bounds if front[bound].notna().any()]
    shown = spread(best_first(front, objectives), MOST_ROWS)
    found = _table(shown, [*objectives, *known], fields, len(shown))
    cut_down = len(shown) < len(front)
    spread_out = f"{len(shown)} of {len(front)} points, evenly spread along the front."
    return Table(found.columns, found.rows, spread_out if cut_down else "")


def points_table(points: pd.DataFrame, metrics: Sequence[str], fields: Sequence[str]) -> Table:
    """Points as they stand: metrics with half their 95% intervals, configurations, status.

    Args:
        points: One row per point, as `Result.points`.
        metrics: Metrics to show; a point that lacks one shows it undefined.
        fields: Configuration fields to show.
    """
    return _table(points.iloc[:MOST_ROWS], metrics, fields, len(points), ("replicates", "status"))


def _table(
    points: pd.DataFrame,
    metrics: Sequence[str],
    fields: Sequence[str],
    total: int,
    others: Sequence[str] = (),
) -> Table:
    rows = [
        (
            *(interval(row, metric).plus_minus for metric in metrics),
            *(setting(config_of(row)[field]) for field in fields),
            *(str(row[other]) for other in others),
            str(row["point_id"]),
        )
        for row in points.to_dict("records")
    ]
    return cut((*metrics, *fields, *others, "point"), rows, total)


def best_first(front: pd.DataFrame, objectives: Objectives) -> pd.DataFrame:
    """The front's rows in order of the first objective, the best first."""
    metric, direction = next(iter(objectives.items()))
    return front.sort_values(metric, ascending=direction == "min", kind="stable")


def spread(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """At most so many rows, evenly spread, the first and the last among them."""
    if len(rows) <= most:
        return rows
    places = [round(index * (len(rows) - 1) / (most - 1)) for index in range(most)]
    return rows.iloc[places]


def described(config: Mapping[str, Any], fields: Sequence[str]) -> str:
    """The fields in which points differ, as `field = value`."""
    return ", ".join(f"{f} = {setting(config.get(f))}" for f in fields) or "the only point"


def cut(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], total: int) -> Table:
    """A table of the first rows out of a total, which says how many it leaves out."""
    shown = tuple(rows[:MOST_ROWS])
    note = f"{total - len(shown):,} more are not shown." if total > len(shown) else ""
    return Table(columns, shown, note)
