"""What a report says in tables: all cells are text, escaped where they meet HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from privnets.points import TradeoffPoint
from sweeps.pareto import Objectives
from sweeps.plots import BOUNDS, interval

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
    """The front's points, best in the first objective first: metrics with intervals, configs.

    Args:
        front: As `pareto_front` gives.
        objectives: Metric to `min` or `max`.
        fields: Configuration fields to show.
    """
    bounds = [BOUNDS[metric] for metric in objectives if BOUNDS.get(metric) in front]
    metrics = [*objectives, *bounds]
    shown = spread(best_first(front, objectives), MOST_ROWS)
    rows = tuple(
        (
            *(interval(row, metric).plus_minus for metric in metrics),
            *(str(row[f"config/{field}"]) for field in fields),
            str(row["replicates"]),
            str(row["point_id"]),
        )
        for row in shown.to_dict("records")
    )
    note = f"{len(shown)} of {len(front)} points, evenly spread along the front."
    columns = (*metrics, *fields, "replicates", "point")
    return Table(columns, rows, note if len(shown) < len(front) else "")


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


def notes_table(points: Iterable[TradeoffPoint], fields: Sequence[str]) -> Table:
    """Why metrics are undefined and flags raised, and for how many points."""
    found: Counter[tuple[str, str, str]] = Counter()
    examples: dict[tuple[str, str, str], str] = {}
    for point in points:
        for key, reason in point.notes.items():
            value = point.metrics.get(key)
            kind = "undefined" if value is not None and value != value else "flag"
            found[kind, key, reason] += 1
            examples.setdefault((kind, key, reason), described(point.config, fields))
    rows = [(*entry, str(count), examples[entry]) for entry, count in found.most_common()]
    return _cut(("kind", "metric or flag", "reason", "points", "for example"), rows)


def failures_table(
    points: Iterable[TradeoffPoint], failures: Mapping[str, str], fields: Sequence[str]
) -> Table:
    """What failed and why: points by their first failed replicate, and packs as a whole."""
    failed = [p for p in points if p.failure is not None]
    rows = [(described(p.config, fields), str(p.failure), p.point_id) for p in failed]
    packs = [("pack", reason, pack_id) for pack_id, reason in failures.items()]
    return _cut(("what", "why", "id"), [*packs, *rows])


def facts_table(content: Mapping[str, Any]) -> Table:
    """Nested plain values, a row per leaf."""
    return Table(("what", "value"), tuple(_leaves(content, "")))


def described(config: Mapping[str, Any], fields: Sequence[str]) -> str:
    """The fields in which points differ, as `field = value`."""
    return ", ".join(f"{field} = {config.get(field)}" for field in fields) or "the only point"


def row_config(row: Mapping[Hashable, Any]) -> dict[str, Any]:
    """A row's configuration, by field."""
    return {
        str(column).removeprefix("config/"): value
        for column, value in row.items()
        if str(column).startswith("config/")
    }


def _cut(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    note = f"{len(rows) - MOST_ROWS} more are not shown." if len(rows) > MOST_ROWS else ""
    return Table(columns, tuple(rows[:MOST_ROWS]), note)


def _leaves(content: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{key} ")
        elif isinstance(value, list | tuple):
            yield f"{path}{key}", ", ".join(map(str, value))
        else:
            yield f"{path}{key}", str(value)
