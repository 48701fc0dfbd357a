"""Tables of a report beside its points; cells are text, escaped on the page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from sweeps.analysis.results import Result
from sweeps.analysis.tables import MAX_ROWS, Table, describe_config, limit_rows
from sweeps.store.reader import Note

_KINDS = ("flag", "undefined", "note")
_NUMBER = re.compile(r"\d+(\.\d+)?(e[-+]?\d+)?")
_REASON_COLUMNS = ("item, or the first of them", "reason", "points", "id")


def notes_table(notes: Sequence[Note], points: pd.DataFrame, fields: Sequence[str]) -> Table:
    """Reasons of raised flags and undefined metrics, and other notes, with numbers of points.

    Reasons that differ only in numbers are one row, with the numbers of its first point.

    Args:
        notes: Notes of points.
        points: One row per point, as `Result.points`.
        fields: Configuration fields that identify a point.
    """
    keys = {note.key for note in notes} & {*points.columns}
    undefined = {key: {*points.loc[points[key].isna(), "point_id"]} for key in keys}
    groups: dict[tuple[str, str, str], list[Note]] = {}
    for note in notes:
        kind = "flag" if note.key.startswith("flag/") else "note"
        kind = "undefined" if note.point_id in undefined.get(note.key, ()) else kind
        groups.setdefault((kind, note.key, _NUMBER.sub("#", note.reason)), []).append(note)
    entries = sorted(groups.items(), key=lambda entry: (_KINDS.index(entry[0][0]), -len(entry[1])))
    examples = {own[0].point_id for _, own in entries[:MAX_ROWS]}
    chosen = points.loc[points["point_id"].isin(examples)].to_dict("records")
    configs = {row["point_id"]: describe_config(row, fields) for row in chosen}
    rows = [
        (kind, key, own[0].reason, str(len(own)), configs[own[0].point_id])
        for (kind, key, _), own in entries[:MAX_ROWS]
    ]
    columns = ("kind", "metric or flag", "reason", "points", "example")
    return limit_rows(columns, rows, len(groups))


def failures_table(result: Result, points: pd.DataFrame, fields: Sequence[str]) -> Table:
    """Failed packs, damaged files, and failed points with the reason of the first replicate.

    Args:
        result: The sweep.
        points: Its points, one row each.
        fields: Configuration fields that identify a point.
    """
    failed = points.loc[points["status"] == "failed"]
    rows = [
        *(("pack", reason, "", pack_id) for pack_id, reason in result.failures.items()),
        *(("damaged file", reason, "", name) for name, reason in result.unreadable.items()),
        *_reasons(result, failed, fields, "failure", "failed"),
    ]
    return limit_rows(_REASON_COLUMNS, rows, len(rows))


def stopped_table(result: Result, points: pd.DataFrame, fields: Sequence[str]) -> Table:
    """Points that were stopped early; a point with a failed replicate counts as failed.

    Args:
        result: The sweep.
        points: Its points, one row each.
        fields: Configuration fields that identify a point.
    """
    stopped = points.loc[points["status"] == "stopped"]
    rows = list(_reasons(result, stopped, fields, "stopped", "were stopped"))
    return limit_rows(_REASON_COLUMNS, rows, len(rows))


def _reasons(
    result: Result, points: pd.DataFrame, fields: Sequence[str], column: str, verb: str
) -> Iterator[tuple[str, str, str, str]]:
    """Each different reason once, with its first point and the number of points."""
    own = result.replicates[result.replicates["point_id"].isin(points["point_id"])]
    reasons = own.groupby("point_id")[column].agg(["first", "count", "size"])
    joined = points.join(reasons, on="point_id")
    for _, group in joined.groupby(["first", "count", "size"], sort=False):
        row = group.iloc[0].to_dict()
        reason = f"{row['first']} ({row['count']} of {row['size']} replicates {verb})"
        yield describe_config(row, fields), reason, str(len(group)), str(row["point_id"])


def facts_table(content: Mapping[str, Any]) -> Table:
    """Nested plain values, one row per leaf."""
    return Table(("fact", "value"), tuple(_leaves(content, "")))


def _leaves(content: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{key} ")
        elif isinstance(value, list | tuple):
            yield f"{path}{key}", ", ".join(map(str, value)) or "none"
        else:
            yield f"{path}{key}", "none" if value is None else str(value)
