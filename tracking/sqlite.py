"""Whole runs straight into a SQLite store and its folder, a batch in one transaction.

MLflow's own client writes value by value through its object-relational mapping, which takes ten
times as long. What it would write is known for the schemas in `SCHEMAS`, where a test holds both
ways to the same rows; any other store, and any run out of the ordinary, is the client's.
"""

from __future__ import annotations

import math
import re
import shutil
import sqlite3
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tracking import runs, schema
from tracking.run_record import RunRecord

if TYPE_CHECKING:
    from mlflow.entities import Metric

SCHEMAS = frozenset({"dc11669786a5"})
"""Revisions of MLflow's schema that are known here; the first is that of MLflow 3.17."""

# Names that MLflow takes on every platform; it knows more of them.
_NAME = re.compile(r"[\w-][\w. -]*(/[\w-][\w. -]*)*")
_LONGEST_NAME = 200
_LOCKED_SECONDS = 20
_CHILDREN = f"""
    SELECT runs.run_uuid, runs.status, tags.key, tags.value
    FROM tags AS chosen JOIN runs USING (run_uuid) JOIN tags USING (run_uuid)
    WHERE chosen.key = 'sweep' AND chosen.value = ? AND runs.experiment_id = ?
    AND runs.lifecycle_stage = 'active' AND tags.key IN ({", ".join("?" * len(runs.TAGS_OF_CHILD))})
"""
_INSERTS = {
    "runs": (
        "run_uuid, name, source_type, source_name, entry_point_name, user_id, status, start_time, "
        "end_time, source_version, lifecycle_stage, artifact_uri, experiment_id"
    ),
    "tags": "run_uuid, key, value",
    "params": "run_uuid, key, value",
    "metrics": "run_uuid, key, value, is_nan, timestamp, step",
    "latest_metrics": "run_uuid, key, value, is_nan, timestamp, step",
}

_Row = tuple[str | int | float | bool | None, ...]


@dataclass
class _Rows:
    """What goes into each table."""

    runs: list[_Row] = field(default_factory=list)
    tags: list[_Row] = field(default_factory=list)
    params: list[_Row] = field(default_factory=list)
    metrics: list[_Row] = field(default_factory=list)
    latest_metrics: list[_Row] = field(default_factory=list)


def children(path: Path, home: runs.Home, sweep: str) -> list[runs.Child] | None:
    """The child runs of a sweep, complete or not; None where the schema is not known here.

    Args:
        path: The SQLite store.
        home: The sweep's.
        sweep: The sweep's name.

    Raises:
        sqlite3.Error: If the store fails, or there is none.
    """
    with closing(_open(path)) as database:
        if schema.revision(database) not in SCHEMAS:
            return None
        wanted = (sweep, int(home.experiment_id), *runs.TAGS_OF_CHILD)
        statuses: dict[str, str] = {}
        tags: dict[str, dict[str, str]] = {}
        for run_id, status, key, value in database.execute(_CHILDREN, wanted):
            statuses[run_id] = status
            tags.setdefault(run_id, {})[key] = value
    return [
        runs.Child.of(run_id, status, tags[run_id])
        for run_id, status in statuses.items()
        if runs.POINT_ID in tags[run_id]
    ]


def insert(
    path: Path, home: runs.Home, sweep: str, sheets: Sequence[RunRecord], columns: Sequence[str]
) -> dict[str, str]:
    """Create the runs of those points that can be written this way, complete.

    Args:
        path: The SQLite store.
        home: The sweep's.
        sweep: The sweep's name.
        sheets: Points without a run that could be completed.
        columns: The metrics of every run.

    Returns:
        Point id to its new run's; points that are not in it are left to MLflow's client.

    Raises:
        sqlite3.Error: If the store fails, or there is none; there are no new runs then.
        OSError: If a file cannot be written; there are no new runs then.
    """
    with closing(_open(path)) as database:
        location = _location(database, home)
        folder = _local(location or "")
        ordinary = [sheet for sheet in sheets if _is_ordinary(sheet, columns)]
        if location is None or folder is None or not ordinary:
            return {}
        made = {sheet.point.point_id: uuid.uuid4().hex for sheet in ordinary}
        rows = _Rows()
        try:
            for sheet in ordinary:
                run_id = made[sheet.point.point_id]
                _add(rows, run_id, sheet, home, sweep, columns, location)
                write_files(folder / run_id / "artifacts", sheet.files)
            _execute(database, rows)
        except BaseException:
            _clear(database, folder, made.values())
            raise
    return made


def write_files(folder: Path, files: Mapping[PurePosixPath, bytes]) -> None:
    """Put a run's files into a folder.

    Raises:
        OSError: If they cannot be written.
    """
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _open(path: Path) -> sqlite3.Connection:
    """A store that is there; SQLite would make an empty one where none is."""
    return sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=_LOCKED_SECONDS)


def _clear(database: sqlite3.Connection, folder: Path, run_ids: Iterable[str]) -> None:
    """Remove the folders of runs that are not in the store."""
    # Where the store cannot even say which runs it holds, no folder may go.
    with suppress(sqlite3.Error):
        for run_id in run_ids:
            known = database.execute("SELECT 1 FROM runs WHERE run_uuid = ?", (run_id,))
            if known.fetchone() is None:
                shutil.rmtree(folder / run_id, ignore_errors=True)


def _execute(database: sqlite3.Connection, rows: _Rows) -> None:
    database.execute("PRAGMA foreign_keys = ON")
    with database:
        for table, names in _INSERTS.items():
            places = ", ".join("?" * len(names.split(",")))
            statement = f"INSERT INTO {table} ({names}) VALUES ({places})"
            database.executemany(statement, getattr(rows, table))


def _is_ordinary(sheet: RunRecord, columns: Iterable[str]) -> bool:
    """Whether a run has no name that MLflow might refuse."""
    names = (*columns, *sheet.point.curves, *(param.key for param in sheet.params()))
    return all(len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) for name in names)


def _location(database: sqlite3.Connection, home: runs.Home) -> str | None:
    """Where an experiment's artifacts go; None if the experiment is not for this way of writing."""
    if schema.revision(database) not in SCHEMAS:
        return None
    found = database.execute(
        "SELECT artifact_location FROM experiments WHERE experiment_id = ? AND "
        "lifecycle_stage = 'active'",
        (int(home.experiment_id),),
    ).fetchone()
    return None if found is None else str(found[0])


def _local(location: str) -> Path | None:
    """The folder that a location of artifacts means; None if it is not on this machine."""
    parts = urlsplit(location)
    plain = parts.scheme == "file" and not (parts.netloc or parts.query or parts.fragment)
    return Path(unquote(parts.path)) if plain else None


def _add(
    rows: _Rows,
    run_id: str,
    sheet: RunRecord,
    home: runs.Home,
    sweep: str,
    columns: Sequence[str],
    location: str,
) -> None:
    folder = f"{location.rstrip('/')}/{run_id}/artifacts"
    source = ("UNKNOWN", "", "", "unknown")
    times = (sheet.started, sheet.ended)
    place = ("", "active", folder, int(home.experiment_id))
    rows.runs.append((run_id, sheet.run_name, *source, sheet.status, *times, *place))
    tags = {**sheet.tags(sweep, home.parent_id), "mlflow.runName": sheet.run_name}
    rows.tags += [(run_id, key, value) for key, value in tags.items()]
    rows.params += [(run_id, param.key, param.value) for param in sheet.params()]
    values = list(dict.fromkeys(_value(run_id, metric) for metric in sheet.metrics(columns)))
    rows.metrics += values
    latest: dict[str, tuple[str, str, float, bool, int, int]] = {}
    for value in values:
        latest[value[1]] = max(latest.get(value[1], value), value, key=_recency)
    rows.latest_metrics += latest.values()


def _value(run_id: str, metric: Metric) -> tuple[str, str, float, bool, int, int]:
    # SQL has neither NaN nor infinities.
    largest = sys.float_info.max
    value = 0.0 if math.isnan(metric.value) else min(max(metric.value, -largest), largest)
    undefined = math.isnan(metric.value)
    return (run_id, metric.key, value, undefined, metric.timestamp, metric.step)


def _recency(value: tuple[str, str, float, bool, int, int]) -> tuple[int, int, float]:
    return (value[5], value[4], value[2])
