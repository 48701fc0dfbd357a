"""What a report says in tables beside its points; cells are text, escaped where they meet HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from sweeps.analysis.tables import MAX_ROWS, Table, describe_config, limit_rows
from sweeps.report.sources import ReportSource
from sweeps.store.columns import Note

_KINDS = ("flag", "undefined", "note")
_NUMBER = re.compile(r"\d+(\.\d+)?(e[-+]?\d+)?")


def notes_table(notes: Sequence[Note], points: pd.DataFrame, fields: Sequence[str]) -> Table:
    """Why flags are raised and metrics undefined, what else is noted, and for how many points.

    Reasons that differ in numbers alone are one, told with the numbers of its first point.

    Args:
        notes: What is said of points.
        points: One row per point, as `Result.points`.
        fields: Configuration fields that tell points apart.
    """
    keys = {note.key for note in notes} & {*points.columns}
    undefined = {key: {*points.loc[points[key].isna(), "point_id"]} for key in keys}
    found: dict[tuple[str, str, str], list[Note]] = {}
    for note in notes:
        kind = "flag" if note.key.startswith("flag/") else "note"
        kind = "undefined" if note.point_id in undefined.get(note.key, ()) else kind
        found.setdefault((kind, note.key, _NUMBER.sub("#", note.reason)), []).append(note)
    entries = sorted(found.items(), key=lambda entry: (_KINDS.index(entry[0][0]), -len(entry[1])))
    examples = {own[0].point_id for _, own in entries[:MAX_ROWS]}
    chosen = points.loc[points["point_id"].isin(examples)]
    configs = {row["point_id"]: row for row in chosen.to_dict("records")}
    rows = [
        (kind, key, own[0].reason, str(len(own)), describe_config(configs[own[0].point_id], fields))
        for (kind, key, _), own in entries[:MAX_ROWS]
    ]
    return limit_rows(
        ("kind", "metric or flag", "reason", "points", "for example"), rows, len(found)
    )


def failures_table(data: ReportSource, points: pd.DataFrame, fields: Sequence[str]) -> Table:
    """What failed and why: packs, files, and points with their first failed replicate's reason.

    Args:
        data: The sweep.
        points: Its points, one row each.
        fields: Configuration fields that tell points apart.
    """
    others = [
        *(("pack", reason, "", pack_id) for pack_id, reason in data.failures.items()),
        *(("damaged file", reason, "", name) for name, reason in data.unreadable.items()),
    ]
    failed = points.loc[points["status"] == "failed"]
    rows = [*others, *_reasons(data, failed, fields, "failure", "failed")]
    return limit_rows(_REASON_COLUMNS, rows, len(rows))


def stopped_table(data: ReportSource, points: pd.DataFrame, fields: Sequence[str]) -> Table:
    """Which points were stopped early and why; one of which a replicate failed counts as failed.

    Args:
        data: The sweep.
        points: Its points, one row each.
        fields: Configuration fields that tell points apart.
    """
    stopped = points.loc[points["status"] == "stopped"]
    rows = list(_reasons(data, stopped, fields, "stopped", "were stopped"))
    return limit_rows(_REASON_COLUMNS, rows, len(rows))


_REASON_COLUMNS = ("what, or the first", "why", "points", "id")


def _reasons(
    data: ReportSource, points: pd.DataFrame, fields: Sequence[str], column: str, what: str
) -> Iterator[tuple[str, str, str, str]]:
    """The first reason that a point's replicates give, once: its first point, and how many."""
    kept = data.replicates[data.replicates["point_id"].isin(points["point_id"])]
    said = kept.groupby("point_id")[column].agg(["first", "count", "size"])
    told = points.join(said, on="point_id")
    for _, group in told.groupby(["first", "count", "size"], sort=False):
        row = group.iloc[0].to_dict()
        why = f"{row['first']} ({row['count']} of {row['size']} replicates {what})"
        yield describe_config(row, fields), why, str(len(group)), str(row["point_id"])


def facts_table(content: Mapping[str, Any]) -> Table:
    """Nested plain values, a row per leaf."""
    return Table(("what", "value"), tuple(_leaves(content, "")))


def _leaves(content: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{key} ")
        elif isinstance(value, list | tuple):
            yield f"{path}{key}", ", ".join(map(str, value)) or "none"
        else:
            yield f"{path}{key}", "none" if value is None else str(value)
