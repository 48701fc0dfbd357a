"""What a report says in tables beside its points; cells are text, escaped where they meet HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from sweeps.columns import Note
from sweeps.frames import config_of
from sweeps.report.source import ReportSource
from sweeps.tables import MOST_ROWS, Table, cut, described


def notes_table(notes: Sequence[Note], points: pd.DataFrame, fields: Sequence[str]) -> Table:
    """Why metrics are undefined and flags raised, and for how many points.

    Args:
        notes: What is said of points.
        points: One row per point, as `Result.points`.
        fields: Configuration fields that tell points apart.
    """
    keys = {note.key for note in notes} & {*points.columns}
    undefined = {key: {*points.loc[points[key].isna(), "point_id"]} for key in keys}
    found: Counter[tuple[str, str, str]] = Counter()
    examples: dict[tuple[str, str, str], str] = {}
    for note in notes:
        kind = "undefined" if note.point_id in undefined.get(note.key, ()) else "flag"
        found[kind, note.key, note.reason] += 1
        examples.setdefault((kind, note.key, note.reason), note.point_id)
    shown = found.most_common(MOST_ROWS)
    chosen = points.loc[points["point_id"].isin([examples[entry] for entry, _ in shown])]
    configs = {row["point_id"]: config_of(row) for row in chosen.to_dict("records")}
    rows = [
        (*entry, str(count), described(configs[examples[entry]], fields)) for entry, count in shown
    ]
    return cut(("kind", "metric or flag", "reason", "points", "for example"), rows, len(found))


def failures_table(data: ReportSource, points: pd.DataFrame, fields: Sequence[str]) -> Table:
    """What failed and why: packs, files, and points with their first failed replicate's reason.

    Args:
        data: The sweep.
        points: Its points, one row each.
        fields: Configuration fields that tell points apart.
    """
    others = [
        *(("pack", reason, pack_id) for pack_id, reason in data.failures.items()),
        *(("damaged file", reason, name) for name, reason in data.unreadable.items()),
    ]
    failed = points.loc[points["status"] == "failed"]
    rows = [*others, *_reasons(data, failed, fields, "failure", "failed")]
    return cut(("what", "why", "id"), rows, len(others) + len(failed))


def stopped_table(data: ReportSource, points: pd.DataFrame, fields: Sequence[str]) -> Table:
    """Which points were stopped early and why; one of which a replicate failed counts as failed.

    Args:
        data: The sweep.
        points: Its points, one row each.
        fields: Configuration fields that tell points apart.
    """
    stopped = points.loc[points["status"] == "stopped"]
    rows = list(_reasons(data, stopped, fields, "stopped", "were stopped"))
    return cut(("what", "why", "id"), rows, len(stopped))


def _reasons(
    data: ReportSource, points: pd.DataFrame, fields: Sequence[str], column: str, what: str
) -> Iterator[tuple[str, str, str]]:
    """The first points of some, the first reason that their replicates give, and the point's id."""
    if points.empty:
        return
    shown = points.iloc[:MOST_ROWS]
    of_point = data.replicates.groupby("point_id")[column]
    for row in shown.to_dict("records"):
        reasons = of_point.get_group(row["point_id"])
        said = reasons.dropna()
        why = f"{said.iloc[0]} ({len(said)} of {len(reasons)} replicates {what})"
        yield described(config_of(row), fields), why, str(row["point_id"])


def facts_table(content: Mapping[str, Any]) -> Table:
    """Nested plain values, a row per leaf."""
    return Table(("what", "value"), tuple(_leaves(content, "")))


def _leaves(content: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{key} ")
        elif isinstance(value, list | tuple):
            yield f"{path}{key}", ", ".join(map(str, value))
        else:
            yield f"{path}{key}", str(value)
