"""Runs written into MLflow's database by rows, a batch in one transaction.

MLflow's client writes value by value through its object-relational mapping, which takes ten times
as long (`tests/benchmarks/publishing.py`). The rows that it would write are known for the schemas
in `SCHEMAS`; tests compare both ways row by row.
"""

from __future__ import annotations

import math
import sqlite3
import sys
import tempfile
from collections.abc import Collection, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Final, Literal

import sqlalchemy
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from tracking.uris import sqlite_path

SCHEMAS = frozenset({"dc11669786a5"})
"""Known revisions of MLflow's schema; the first is that of MLflow 3.17."""

LOCK_SECONDS: Final = 20

# A subset of the names that MLflow accepts on every platform; no part of it is `..`.
_NAME: Final = r"^[\w-][\w. -]*(/[\w-][\w. -]*)*$"
_TABLES: Final = {
    name: sqlalchemy.table(name, *map(sqlalchemy.column, columns.split()))
    for name, columns in {
        "runs": "run_uuid name source_type source_name entry_point_name user_id status start_time "
        "end_time source_version lifecycle_stage artifact_uri experiment_id",
        "tags": "run_uuid key value",
        "params": "run_uuid key value",
        "metrics": "run_uuid key value is_nan timestamp step",
        "latest_metrics": "run_uuid key value is_nan timestamp step",
    }.items()
}
_RUN_ID: Final[sqlalchemy.ColumnClause[str]] = sqlalchemy.column("run_uuid")

Name = Annotated[str, Field(pattern=_NAME, max_length=200)]
Milliseconds = Annotated[int, Field(ge=1, lt=2**63)]
Value = tuple[Name, float, Milliseconds, Annotated[int, Field(ge=-(2**63), lt=2**63)]]
"""Key, value, timestamp and step of a metric."""


class NewRun(BaseModel):
    """Complete run that a store does not hold yet; its names are those that MLflow accepts."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        ser_json_inf_nan="constants",
        ser_json_bytes="base64",
        val_json_bytes="base64",
    )

    run_id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    name: Annotated[str, Field(max_length=250)]
    status: Literal["FINISHED", "KILLED", "FAILED"]
    started: Milliseconds
    ended: Milliseconds
    tags: dict[Name, Annotated[str, Field(max_length=8000)]]
    params: dict[Name, Annotated[str, Field(max_length=6000)]]
    metrics: list[Value]
    files: dict[Name, bytes]


NEW_RUNS: Final = TypeAdapter(list[NewRun])


def open_engine(uri: str) -> Engine:
    """Returns the engine of an existing database; a SQLite file is not created."""
    path = sqlite_path(uri)
    if path is None:
        return sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool)
    return sqlalchemy.create_engine(
        "sqlite://", creator=lambda: open_sqlite(path), poolclass=sqlalchemy.NullPool
    )


def open_sqlite(path: Path) -> sqlite3.Connection:
    """Opens an existing store; by default SQLite would create an empty one."""
    database = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=LOCK_SECONDS)
    database.execute("PRAGMA foreign_keys = ON")
    return database


def artifact_location(engine: Engine, experiment_id: str) -> str | None:
    """Returns the artifact location of an active experiment, None where rows must not be written.

    Raises:
        SQLAlchemyError: If the store fails or does not exist.
    """
    with engine.connect() as connection:
        query = sqlalchemy.text("SELECT version_num FROM alembic_version")
        if connection.scalars(query).one_or_none() not in SCHEMAS:
            return None
        query = sqlalchemy.text(
            "SELECT artifact_location FROM experiments "
            "WHERE experiment_id = :id AND lifecycle_stage = 'active'"
        )
        location: str | None = connection.scalar(query, {"id": int(experiment_id)})
        return location


def insert(
    engine: Engine,
    experiment_id: str,
    location: str,
    artifacts: ArtifactRepository,
    folder: str,
    runs: Sequence[NewRun],
) -> None:
    """Writes runs with their files, except those that the store already holds.

    Args:
        engine: Database of a known schema.
        experiment_id: Experiment of the runs.
        location: Artifact location of the experiment.
        artifacts: Place of the files.
        folder: Folder of the experiment in that place, empty for the place itself.
        runs: Runs with different ids.

    Raises:
        SQLAlchemyError: If the store fails or does not exist; no run was created.
        OSError: If a file cannot be written; no run was created.
        MlflowException: If a file cannot be stored elsewhere; no run was created.
    """
    ids = [run.run_id for run in runs]
    with engine.connect() as connection:
        held = _held(connection, ids)
    new = [run for run in runs if run.run_id not in held]
    try:
        _store_files(new, artifacts, folder)
        with engine.begin() as connection:
            _insert_rows(connection, experiment_id, location, new)
    except BaseException:
        # Where the store cannot say which runs it holds, no folder may be removed.
        with suppress(SQLAlchemyError, MlflowException, OSError), engine.connect() as connection:
            held = _held(connection, ids)
            for run in new:
                if run.files and run.run_id not in held:
                    path = f"{folder}/{run.run_id}".lstrip("/")
                    artifacts.delete_artifacts(path)  # type: ignore[no-untyped-call]
        raise


def _held(connection: Connection, run_ids: Collection[str]) -> set[str]:
    query = sqlalchemy.select(_RUN_ID).select_from(_TABLES["runs"]).where(_RUN_ID.in_(run_ids))
    return set(connection.scalars(query))


def _store_files(runs: Sequence[NewRun], artifacts: ArtifactRepository, folder: str) -> None:
    if not any(run.files for run in runs):
        return
    with tempfile.TemporaryDirectory(prefix="tracking-") as temporary:
        for run in runs:
            for name, content in run.files.items():
                path = Path(temporary, run.run_id, "artifacts", name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        artifacts.log_artifacts(temporary, folder or None)  # type: ignore[no-untyped-call]


def _insert_rows(
    connection: Connection, experiment_id: str, location: str, runs: Sequence[NewRun]
) -> None:
    rows: dict[str, list[tuple[object, ...]]] = {table: [] for table in _TABLES}
    for run in runs:
        run_id, place = run.run_id, f"{location.rstrip('/')}/{run.run_id}/artifacts"
        source = ("UNKNOWN", "", "", "unknown")
        times = (run.started, run.ended)
        rest = ("", "active", place, int(experiment_id))
        rows["runs"].append((run_id, run.name, *source, run.status, *times, *rest))
        tags = {**run.tags, "mlflow.runName": run.name}
        rows["tags"] += [(run_id, key, value) for key, value in tags.items()]
        rows["params"] += [(run_id, key, value) for key, value in run.params.items()]
        metrics = list(dict.fromkeys(_metric_row(run_id, *value) for value in run.metrics))
        rows["metrics"] += metrics
        latest = {metric[1]: metric for metric in sorted(metrics, key=itemgetter(5, 4, 2))}
        rows["latest_metrics"] += (latest[key] for key in dict.fromkeys(m[1] for m in metrics))
    for name, table in _TABLES.items():
        if rows[name]:
            keys = table.columns.keys()
            connection.execute(
                table.insert(), [dict(zip(keys, r, strict=True)) for r in rows[name]]
            )


def _metric_row(
    run_id: str, key: str, value: float, timestamp: int, step: int
) -> tuple[str, str, float, bool, int, int]:
    # SQL has neither NaN nor infinities.
    largest = sys.float_info.max
    undefined = math.isnan(value)
    value = 0.0 if undefined else min(max(value, -largest), largest)
    return (run_id, key, value, undefined, timestamp, step)
