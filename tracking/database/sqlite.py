"""SQLite stores: their creation, and the child runs that one holds."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from filelock import FileLock
from mlflow.exceptions import MlflowException

from tracking import runs
from tracking.client import set_environment, translate_errors
from tracking.database import schema
from tracking.database.new_runs import SCHEMAS, open_sqlite
from tracking.mlflow_internals import open_database

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
    with closing(open_sqlite(path)) as database:
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
