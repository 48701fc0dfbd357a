"""Runs written into MLflow's database by rows, a batch in one transaction.

MLflow's client writes value by value through its object-relational mapping, which takes ten times
as long (`tests/benchmarks/publishing.py`). The rows that it would write are known for the schemas
in `SCHEMAS`; tests compare both ways row by row.
"""

from __future__ import annotations

import io
import math
import sqlite3
import sys
import tempfile
from collections.abc import Collection, Sequence
from contextlib import closing
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Annotated, Final, Literal

import sqlalchemy
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter
from sqlalchemy import Connection, Engine

from tracking.uris import sqlite_path

SCHEMAS = frozenset({"dc11669786a5"})
"""Known revisions of MLflow's schema; the first is that of MLflow 3.17."""

MAX_RUNS: Final = 1000
"""Largest number of runs in one list."""

LOCK_SECONDS: Final = 20

# A subset of the names that MLflow accepts on every platform; no part of it is `..`.
_NAME: Final = r"^[A-Za-z0-9_-][A-Za-z0-9_. -]*(/[A-Za-z0-9_-][A-Za-z0-9_. -]*)*$"
_NO_NUL: Final = r"^[^\x00]*$"  # PostgreSQL has no such text
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
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
_RUN_ID: Final[sqlalchemy.ColumnClause[str]] = sqlalchemy.column("run_uuid")

Name = Annotated[str, Field(pattern=_NAME, max_length=200)]
Milliseconds = Annotated[int, Field(ge=1, lt=2**63)]
Value = tuple[Name, float, Milliseconds, Annotated[int, Field(ge=-(2**63), lt=2**63)]]
"""Key, value, timestamp and step of a metric."""


def _check_folders(files: dict[str, bytes]) -> dict[str, bytes]:
    folders = {str(parent) for name in files for parent in PurePosixPath(name).parents}
    if not folders.isdisjoint(files):
        raise ValueError("a file and a folder have the same name")
    return files


class NewRun(BaseModel):
    """Complete run that a store does not hold yet; its names are those that MLflow accepts."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        ser_json_inf_nan="constants",
        ser_json_bytes="base64",
        val_json_bytes="base64",
    )

    run_id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    name: Annotated[str, Field(pattern=_NO_NUL, min_length=1, max_length=250)]
    status: Literal["FINISHED", "KILLED", "FAILED"]
    started: Milliseconds
    ended: Milliseconds
    tags: dict[Name, Annotated[str, Field(pattern=_NO_NUL, max_length=8000)]]
    params: dict[Name, Annotated[str, Field(pattern=_NO_NUL, max_length=6000)]]
    metrics: Annotated[list[Value], Field(fail_fast=True)]
    files: Annotated[dict[Name, bytes], AfterValidator(_check_folders)]


def _check_ids(runs: list[NewRun]) -> list[NewRun]:
    if len({run.run_id for run in runs}) < len(runs):
        raise ValueError("two runs have the same id")
    return runs


# An error takes far more memory than the value that it is about.
NEW_RUNS: Final = TypeAdapter(
    Annotated[list[NewRun], Field(fail_fast=True, max_length=MAX_RUNS), AfterValidator(_check_ids)]
)


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


def artifact_location(connection: Connection, experiment_id: str) -> str | None:
    """Returns the artifact location of an active experiment, None where rows must not be written.

    Raises:
        SQLAlchemyError: If the store fails or does not exist.
    """
    query = sqlalchemy.text("SELECT version_num FROM alembic_version")
    if connection.scalars(query).one_or_none() not in SCHEMAS:
        return None
    query = sqlalchemy.text(
        "SELECT artifact_location FROM experiments "
        "WHERE experiment_id = :id AND lifecycle_stage = 'active'"
    )
    location: str | None = connection.scalar(query, {"id": int(experiment_id)})
    return location


def held(connection: Connection, run_ids: Collection[str]) -> set[str]:
    """Returns those of at most `MAX_RUNS` ids that the store already holds."""
    query = sqlalchemy.select(_RUN_ID).select_from(_TABLES["runs"]).where(_RUN_ID.in_(run_ids))
    return set(connection.scalars(query))


def insert(
    connection: Connection,
    experiment_id: str,
    location: str,
    artifacts: ArtifactRepository,
    folder: str,
    runs: Sequence[NewRun],
) -> None:
    """Writes runs with their files inside the transaction of a connection.

    A failure may leave files behind. They are not deleted, as a second request for the same runs
    may have stored them too.

    Args:
        connection: Connection to a database of a known schema.
        experiment_id: Experiment of the runs.
        location: Artifact location of the experiment.
        artifacts: Place of the files.
        folder: Folder of the experiment in that place, empty for the place itself.
        runs: Runs that the store does not hold.

    Raises:
        SQLAlchemyError: If the store fails; of PostgreSQL also psycopg2.Error.
        OSError: If a file cannot be written.
        MlflowException: If a file cannot be stored elsewhere.
    """
    # Rows first: a locked database then fails before any file is written.
    _insert_rows(connection, experiment_id, location, runs)
    if isinstance(artifacts, LocalArtifactRepository):
        _write_files(Path(artifacts.artifact_dir, folder), runs)
    elif any(run.files for run in runs):
        with tempfile.TemporaryDirectory(prefix="tracking-") as temporary:
            _write_files(Path(temporary), runs)
            artifacts.log_artifacts(temporary, folder or None)  # type: ignore[no-untyped-call]


def _write_files(place: Path, runs: Sequence[NewRun]) -> None:
    for run in runs:
        for name, content in run.files.items():
            path = place / run.run_id / "artifacts" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


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
    for name, new in rows.items():
        _insert_into(connection, _TABLES[name], new)


def _insert_into(
    connection: Connection, table: sqlalchemy.TableClause, rows: Sequence[tuple[object, ...]]
) -> None:
    if not rows:
        return
    keys = table.columns.keys()
    if connection.dialect.driver == "psycopg2":  # faster than statements
        _copy(connection, f"COPY {table.name} ({', '.join(keys)}) FROM STDIN", rows)
    elif connection.dialect.name == "sqlite":  # tuples take half the processor time of dictionaries
        marks = ", ".join("?" * len(keys))
        statement = f"INSERT INTO {table.name} ({', '.join(keys)}) VALUES ({marks})"
        connection.exec_driver_sql(statement, list(rows))
    else:  # SQLAlchemy sends many rows in one statement
        connection.execute(table.insert(), [dict(zip(keys, row, strict=True)) for row in rows])


def _copy(connection: Connection, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Sends rows in PostgreSQL's text format, where a backslash escapes separators and itself."""
    text = "".join("\t".join(str(v).translate(_ESCAPES) for v in row) + "\n" for row in rows)
    with closing(connection.connection.cursor()) as cursor:
        cursor.copy_expert(statement, io.StringIO(text))


def _metric_row(
    run_id: str, key: str, value: float, timestamp: int, step: int
) -> tuple[str, str, float, bool, int, int]:
    # SQL has neither NaN nor infinities.
    largest = sys.float_info.max
    undefined = math.isnan(value)
    value = 0.0 if undefined else min(max(value, -largest), largest)
    return (run_id, key, value, undefined, timestamp, step)
