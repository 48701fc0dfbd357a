"""Direct access to SQLite stores: creation, and whole runs written in one transaction per batch.

MLflow's client writes value by value through its object-relational mapping, which takes ten times
as long (`tests/benchmarks/publishing.py`). The rows that it would write are known for the schemas
in `SCHEMAS`; a test compares both ways row by row. All other stores, and unusual runs, are left to
the client.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import sqlite3
import sys
import tempfile
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from operator import itemgetter
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from filelock import FileLock
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException

from tracking import runs, schema
from tracking.client import set_environment, translate_errors
from tracking.mlflow_internals import open_database
from tracking.run_record import RunRecord

SCHEMAS = frozenset({"dc11669786a5"})
"""Known revisions of MLflow's schema; the first is that of MLflow 3.17."""

# A subset of the names that MLflow accepts on every platform.
_NAME = re.compile(r"[\w-][\w. -]*(/[\w-][\w. -]*)*")
_MAX_NAME = 200
_LOCK_SECONDS = 20
_CREATION_LOCK_SECONDS = 120
_MOUNTS = Path("/proc/self/mounts")
_NETWORK_FILESYSTEMS = set(
    "9p afs beegfs ceph cifs fuse gpfs lustre nfs nfs4 smb3 virtiofs".split()  # noqa: SIM905
)
_CHILDREN = f"""
    SELECT runs.run_uuid, runs.status, tags.key, tags.value
    FROM tags AS chosen JOIN runs USING (run_uuid) JOIN tags USING (run_uuid)
    WHERE chosen.key = 'sweep' AND chosen.value = ? AND runs.experiment_id = ?
    AND runs.lifecycle_stage = 'active' AND tags.key IN ({", ".join("?" * len(runs.CHILD_TAGS))})
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

_Rows = dict[str, list[tuple[str | int | float | bool | None, ...]]]
"""New rows of each table."""


def create_store(path: Path, uri: str, artifact_root: str | None) -> None:
    """Creates a store with its complete schema unless another process has just done so.

    Several processes that open a new store at once would all run its migrations and fail. So one
    process creates it under a lock as a temporary file, and moves it into place.

    Raises:
        TrackingError: If the file cannot be created.
    """
    set_environment()
    with translate_errors(uri):
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock"), timeout=_CREATION_LOCK_SECONDS):
            if not path.exists():
                _create_store(path, uri, artifact_root)


def children(path: Path, parent: runs.ParentRun, sweep: str) -> list[runs.ChildRun] | None:
    """Returns the child runs of a sweep, complete or not; None where the schema is unknown.

    Raises:
        sqlite3.Error: If the store fails or does not exist.
    """
    with closing(_open(path)) as database:
        if schema.read_revision(database) not in SCHEMAS:
            return None
        arguments = (sweep, int(parent.experiment_id), *runs.CHILD_TAGS)
        statuses: dict[str, str] = {}
        tags: dict[str, dict[str, str]] = {}
        for run_id, status, key, value in database.execute(_CHILDREN, arguments):
            statuses[run_id] = status
            tags.setdefault(run_id, {})[key] = value
    return [
        runs.ChildRun.from_tags(run_id, status, tags[run_id])
        for run_id, status in statuses.items()
        if runs.POINT_ID in tags[run_id]
    ]


def insert(
    path: Path,
    parent: runs.ParentRun,
    sweep: str,
    records: Sequence[RunRecord],
    columns: Sequence[str],
) -> dict[str, str]:
    """Creates complete runs for all points that can be written directly.

    Args:
        path: SQLite file.
        parent: Parent run of the sweep.
        sweep: Name of the sweep.
        records: Points that have no run yet.
        columns: Metrics of every run.

    Returns:
        Point id to run id. Points that are missing here are left to MLflow's client.

    Raises:
        sqlite3.Error: If the store fails or does not exist; no run was created.
        OSError: If a file cannot be written; no run was created.
    """
    with closing(_open(path)) as database:
        location = _artifact_location(database, parent)
        folder = _local_folder(location or "")
        ordinary = [record for record in records if _is_ordinary(record, columns)]
        if location is None or folder is None or not ordinary:
            return {}
        run_ids = {record.point.point_id: uuid.uuid4().hex for record in ordinary}
        rows: _Rows = {table: [] for table in _INSERTS}
        try:
            for record in ordinary:
                run_id = run_ids[record.point.point_id]
                _add(rows, run_id, record, parent, sweep, columns, location)
                write_files(folder / run_id / "artifacts", record.files)
            database.execute("PRAGMA foreign_keys = ON")
            with database:
                for table, names in _INSERTS.items():
                    marks = ", ".join("?" * len(names.split(",")))
                    statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"
                    database.executemany(statement, rows[table])
        except BaseException:
            # Where the store cannot say which runs it holds, no folder may be removed.
            with suppress(sqlite3.Error):
                held = {run_id for (run_id,) in database.execute("SELECT run_uuid FROM runs")}
                for run_id in set(run_ids.values()) - held:
                    shutil.rmtree(folder / run_id, ignore_errors=True)
            raise
    return run_ids


def write_files(folder: Path, files: Mapping[PurePosixPath, bytes]) -> None:
    """Writes the artifacts of a run into a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def is_on_network_filesystem(folder: Path) -> bool:
    """Whether other machines may have mounted a folder too; False where no mounts are listed.

    For a folder that does not exist its nearest existing parent counts.
    """
    if not _MOUNTS.exists():
        return False
    kinds: dict[Path, str] = {}
    for line in _MOUNTS.read_text().splitlines():
        _, mount_point, kind, *_ = line.split(" ")
        kinds[Path(mount_point.replace("\\040", " "))] = kind
    real = folder.resolve()
    nearest = next((kinds[path] for path in (real, *real.parents) if path in kinds), "")
    return nearest.partition(".")[0] in _NETWORK_FILESYSTEMS


def _create_store(path: Path, uri: str, artifact_root: str | None) -> None:
    temporary = path.with_name(f".{path.name}.creating")
    # SQLite would replay the log of a deleted database into a new one of the same name.
    for stale in (temporary, *_log_files(temporary), *_log_files(path)):
        stale.unlink(missing_ok=True)
    _write_empty_store(temporary, artifact_root)
    # Write-ahead logging needs shared memory, so it cannot be used on a network file system.
    if not is_on_network_filesystem(path.parent):
        with closing(sqlite3.connect(temporary)) as database:
            database.execute("PRAGMA journal_mode = WAL")
    os.replace(temporary, path)
    # Drops connections that this process may hold to an earlier file of the same name.
    open_database(uri, artifact_root)


def _write_empty_store(path: Path, artifact_root: str | None) -> None:
    path.write_bytes(schema.read_empty_store() or build_empty_store())
    try:
        open_database(f"sqlite:///{path}", artifact_root)
    except MlflowException:
        # Another build of the same version wrote the cache, as a development version may.
        path.write_bytes(build_empty_store())
        open_database(f"sqlite:///{path}", artifact_root)


def build_empty_store() -> bytes:
    """Lets MLflow build an empty store, and caches it.

    Returns:
        The content of the file.

    Raises:
        MlflowException: If MLflow fails.
        OSError: If temporary files cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="tracking-schema-") as folder:
        path = Path(folder, "mlflow.db")
        open_database(f"sqlite:///{path}", folder)
        with closing(sqlite3.connect(path)) as database, database:
            # The only row that contains the store's location; MLflow adds it where it is missing.
            database.execute("DELETE FROM experiments")
            revision = schema.read_revision(database)
        content = path.read_bytes()
    schema.cache_empty_store(content)
    if revision is not None:
        schema.remember_revision(revision)
    return content


def _log_files(database: Path) -> list[Path]:
    return [database.with_name(database.name + end) for end in ("-wal", "-shm", "-journal")]


def _open(path: Path) -> sqlite3.Connection:
    """Opens an existing store; by default SQLite would create an empty one."""
    return sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=_LOCK_SECONDS)


def _is_ordinary(record: RunRecord, columns: Iterable[str]) -> bool:
    """Whether MLflow certainly accepts every name of a run."""
    names = (*columns, *record.point.curves, *(param.key for param in record.params))
    return all(len(name) <= _MAX_NAME and _NAME.fullmatch(name) for name in names)


def _artifact_location(database: sqlite3.Connection, parent: runs.ParentRun) -> str | None:
    """Returns the artifact location of an experiment, None where rows must not be written."""
    if schema.read_revision(database) not in SCHEMAS:
        return None
    row = database.execute(
        "SELECT artifact_location FROM experiments WHERE experiment_id = ? AND "
        "lifecycle_stage = 'active'",
        (int(parent.experiment_id),),
    ).fetchone()
    return None if row is None else str(row[0])


def _local_folder(location: str) -> Path | None:
    """Returns the folder of an artifact location, None if it is not on this machine."""
    parts = urlsplit(location)
    plain = parts.scheme == "file" and not (parts.netloc or parts.query or parts.fragment)
    return Path(unquote(parts.path)) if plain else None


def _add(
    rows: _Rows,
    run_id: str,
    record: RunRecord,
    parent: runs.ParentRun,
    sweep: str,
    columns: Sequence[str],
    location: str,
) -> None:
    folder = f"{location.rstrip('/')}/{run_id}/artifacts"
    source = ("UNKNOWN", "", "", "unknown")
    times = (record.started, record.ended)
    rest = ("", "active", folder, int(parent.experiment_id))
    rows["runs"].append((run_id, record.run_name, *source, record.status, *times, *rest))
    tags = {**record.tags(sweep, parent.run_id), "mlflow.runName": record.run_name}
    rows["tags"] += [(run_id, key, value) for key, value in tags.items()]
    rows["params"] += [(run_id, param.key, param.value) for param in record.params]
    values = list(dict.fromkeys(_metric_row(run_id, m) for m in record.metrics(columns)))
    rows["metrics"] += values
    latest = {value[1]: value for value in sorted(values, key=itemgetter(5, 4, 2))}
    rows["latest_metrics"] += (latest[key] for key in dict.fromkeys(v[1] for v in values))


def _metric_row(run_id: str, metric: Metric) -> tuple[str, str, float, bool, int, int]:
    # SQL has neither NaN nor infinities.
    largest = sys.float_info.max
    undefined = math.isnan(metric.value)
    value = 0.0 if undefined else min(max(metric.value, -largest), largest)
    return (run_id, metric.key, value, undefined, metric.timestamp, metric.step)
