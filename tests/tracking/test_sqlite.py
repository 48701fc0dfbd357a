"""Runs written straight into the database are those that MLflow's client writes."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from made_points import LOG_SCALED, made_point, made_points
from mlflow import MlflowClient

import tracking
from privnets.points import Curve, Replicate, TradeoffPoint
from tracking.database import new_runs, schema

# The moment of writing, and of the experiment's making.
MOMENTS = ("recorded_at", "creation_time", "last_update_time")


def record(points: Sequence[TradeoffPoint], folder: Path) -> Path:
    uri = tracking.create(f"sqlite:///{folder}/mlflow.db")
    told = tracking.record(
        points, sweep="s", tracking_uri=uri, log_scaled=LOG_SCALED, name_fields=("train_size",)
    )
    assert told == len(points)
    return folder / "mlflow.db"


def odd_curve() -> TradeoffPoint:
    """Steps twice and out of order, and values that SQL does not have."""
    curve = Curve((3, 1, 1, 1, 3, 3), (0.1, 2.0, 5.0, 2.0, math.nan, -math.inf))
    metrics = {"privacy/a": math.inf, "utility/b": -math.inf, "utility/c": math.nan}
    replicate = Replicate(0, metrics, curves={"x": curve}, finished_at=1.7e9)
    return TradeoffPoint("odd", "e", {"train_size": 1}, (replicate,))


def every_row(path: Path) -> dict[str, list[str]]:
    """Table by table, with what differs from store to store and run to run replaced."""
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        points = database.execute("SELECT run_uuid, value FROM tags WHERE key = 'point_id'")
        names = {run_id: f"run of {point_id}" for run_id, point_id in points.fetchall()}
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        found = {name: database.execute(f'SELECT * FROM "{name}"').fetchall() for (name,) in tables}
    parents = {row["run_uuid"] for row in found["runs"]} - names.keys()
    names |= dict.fromkeys(parents, "parent") | {str(path.parent): "."}
    pattern = re.compile("|".join(map(re.escape, names)))

    def row_text(row: sqlite3.Row) -> str:
        kept = {k: row[k] for k in row.keys() if k not in MOMENTS}  # noqa: SIM118
        if row.keys()[0] == "key" and row["key"] in MOMENTS:
            kept["value"] = ""
        if kept.get("run_uuid") in parents:
            kept.pop("start_time", None)  # of the sweep's own run: when it was begun
        return pattern.sub(lambda match: names[match[0]], repr(kept))

    return {name: sorted(map(row_text, rows)) for name, rows in found.items()}


def files(folder: Path) -> list[tuple[str, bytes]]:
    """Artifacts, wherever their runs lie."""
    paths = [path for path in (folder / "mlruns").rglob("*") if path.is_file()]
    return sorted(("/".join(p.parts[p.parts.index("artifacts") :]), p.read_bytes()) for p in paths)


def folders(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "mlruns").rglob("*") if path.is_dir())


def test_both_ways_make_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every table: of points that finished, failed or were stopped, with odd values and all."""
    points = [*made_points(2), made_point(7, failed=True), odd_curve()]
    stopped = Replicate(0, {}, stopped="dominated", finished_at=1.7e9)
    points += [TradeoffPoint("early", "e", {"train_size": 2}, (stopped,))]
    ours = every_row(record(points, tmp_path / "ours"))
    monkeypatch.setattr(new_runs, "SCHEMAS", frozenset())
    assert ours == every_row(record(points, tmp_path / "theirs"))
    assert len(files(tmp_path / "ours")) == 2
    assert files(tmp_path / "ours") == files(tmp_path / "theirs")


def insert_rows(points: Sequence[TradeoffPoint], folder: Path) -> list[str]:
    """Ids of the points that go straight into a fresh store."""
    recorder = tracking.Recorder("s", tracking_uri=f"sqlite:///{folder}/mlflow.db")
    records = recorder._build(points)
    left = recorder._insert(records, ["privacy/a"], recorder._read())
    return sorted(record.point.point_id for record in records if record not in left)


def test_the_installed_schema_is_known(tmp_path: Path) -> None:
    """If not, everything still works, but slowly: compare both ways with it, and add it."""
    with closing(sqlite3.connect(record([made_point(0)], tmp_path))) as database:
        assert schema.read_revision(database) in new_runs.SCHEMAS


def test_names_that_mlflow_might_refuse_are_left_to_it(tmp_path: Path) -> None:
    """Or that its platforms take differently."""
    odd = [
        replace(made_point(1 + i), config={name: 1})
        for i, name in enumerate(("a/../b", "/a", "a:b", "", "x" * 300))
    ]
    assert insert_rows([made_point(0), *odd], tmp_path) == [made_point(0).point_id]


def test_artifacts_that_go_elsewhere_are_left_to_mlflow(tmp_path: Path) -> None:
    """A server with the same database may have created the experiment."""
    uri = tracking.create(f"sqlite:///{tmp_path}/mlflow.db")
    MlflowClient(uri).create_experiment("s", artifact_location="s3://bucket/folder")
    assert insert_rows([made_point(0)], tmp_path) == []


def test_an_unknown_schema_is_left_to_mlflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_runs, "SCHEMAS", frozenset({"another"}))
    assert insert_rows([made_point(0)], tmp_path) == []


def test_a_batch_is_written_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    uri = tracking.create(f"sqlite:///{tmp_path}/mlflow.db")
    points = made_points(3)
    recorder = tracking.Recorder("s", tracking_uri=uri)
    recorder.record(points[:1])
    before, kept = files(tmp_path), folders(tmp_path)
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database, database:
        database.execute(
            "CREATE TRIGGER full AFTER INSERT ON latest_metrics BEGIN "
            "SELECT RAISE(ABORT, 'database or disk is full'); END"
        )
    with pytest.raises(tracking.TrackingError, match="disk is full"):
        recorder.record(points)
    assert tracking.load_points("s", uri).point_id.tolist() == [points[0].point_id]
    assert files(tmp_path) == before
    assert folders(tmp_path) == kept
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database, database:
        database.execute("DROP TRIGGER full")
    assert recorder.record(points) == 2
    assert tracking.compare(points, "s", uri) == []


def test_connecting_creates_no_store(tmp_path: Path) -> None:
    """The name of its folder does not matter."""
    folder = tmp_path / "no #1"
    folder.mkdir()
    uri = tracking.create(f"sqlite:///{folder}/mlflow.db")
    recorder = tracking.Recorder("s", tracking_uri=uri)
    recorder.record([made_point(0)])
    (folder / "mlflow.db").rename(folder / "moved.db")
    with pytest.raises(tracking.TrackingError, match="unable to open"):
        recorder.record([made_point(1)])
    assert not (folder / "mlflow.db").exists()
