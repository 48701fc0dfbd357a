"""A store copied from the cache equals MLflow's own, whatever happened to the cache."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from made_points import made_points

import tracking
from tracking.database import schema, sqlite

TIMES = {"creation_time", "last_update_time"}
MLFLOW_ALONE = """
import sys
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
SqlAlchemyStore(*sys.argv[1:])
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("PRIVNETS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tracking"


@pytest.fixture(scope="module")
def valid_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valid cached store; MLflow takes seconds to build one."""
    folder = tmp_path_factory.mktemp("valid_cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRIVNETS_CACHE", str(folder))
        sqlite.build_empty_store()
    return cached_file(folder / "tracking")


def create(folder: Path) -> Path:
    uri = tracking.create(f"sqlite:///{folder}/mlflow.db")
    assert tracking.record(made_points(1), sweep="s", tracking_uri=uri) == 1
    return folder / "mlflow.db"


def cached_file(cache: Path) -> Path:
    (found,) = cache.glob("*.db")
    return found


def schema_of(path: Path) -> list[tuple[str, str, str, list[str]]]:
    """Every table, index and trigger; MLflow's migrations put constraints in any order."""
    with closing(sqlite3.connect(path)) as database:
        found = database.execute(
            "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master ORDER BY type, name"
        ).fetchall()
    return [(*what, sorted(line.strip(" \t,") for line in sql.split("\n"))) for *what, sql in found]


def content_of(path: Path) -> dict[str, list[dict[str, object]]]:
    """Every table's rows without the times of their making, and relative to the store."""
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        tables = [name for kind, name, *_ in schema_of(path) if kind == "table"]
        return {
            table: [
                {k: _relative(row[k], path) for k in row.keys() if k not in TIMES}  # noqa: SIM118
                for row in database.execute(f'SELECT * FROM "{table}" ORDER BY 1')
            ]
            for table in tables
        }


def _relative(value: object, path: Path) -> object:
    return value.replace(str(path.parent), ".") if isinstance(value, str) else value


def test_a_copied_store_is_the_one_mlflow_makes(tmp_path: Path) -> None:
    """Table by table, index by index and row by row."""
    (tmp_path / "theirs").mkdir()
    theirs, ours = tmp_path / "theirs" / "mlflow.db", tmp_path / "ours" / "mlflow.db"
    root = (theirs.parent / "mlruns").as_uri()
    made = [sys.executable, "-c", MLFLOW_ALONE, f"sqlite:///{theirs}", root]
    subprocess.run(made, check=True, capture_output=True)
    tracking.create(f"sqlite:///{ours}")
    assert schema_of(ours) == schema_of(theirs)
    assert content_of(ours) == content_of(theirs)
    with closing(sqlite3.connect(ours)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.slow
def test_processes_without_a_cache_do_not_disturb_each_other(tmp_path: Path, cache: Path) -> None:
    code = (
        "import sys, tracking; from tracking.client import connect;"
        "connect(tracking.create(f'sqlite:///{sys.argv[1]}/mlflow.db'))"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / name)], stderr=subprocess.PIPE)
        for name in "ab"
    ]
    ended = [(process.communicate(timeout=400)[1], process.returncode) for process in started]
    assert ended == [(b"", 0)] * 2
    assert content_of(create(tmp_path / "a")).keys() == content_of(create(tmp_path / "b")).keys()
    assert schema.read_empty_store() == cached_file(cache).read_bytes()[32:]


def another_revision(content: bytes) -> bytes:
    """A cached store of another build with the same version and another schema."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(content[32:])
        database.execute("UPDATE alembic_version SET version_num = 'another'")
        database.commit()
        changed = database.serialize()
    return hashlib.sha256(changed).digest() + changed


def test_a_damaged_cache_is_rebuilt(tmp_path: Path, cache: Path, valid_cache: Path) -> None:
    cache.mkdir(parents=True)
    path = cache / valid_cache.name
    path.write_bytes(valid_cache.read_bytes()[:-1])
    assert schema.read_empty_store() is None
    path.write_bytes(another_revision(valid_cache.read_bytes()))
    create(tmp_path / "store")
    with (
        closing(sqlite3.connect(":memory:")) as database,
        closing(sqlite3.connect(":memory:")) as other,
    ):
        database.deserialize(valid_cache.read_bytes()[32:])
        other.deserialize(schema.read_empty_store() or b"")
        assert schema.read_revision(other) == schema.read_revision(database)
    assert path.read_bytes()[:32] == hashlib.sha256(schema.read_empty_store() or b"").digest()


def test_a_store_is_created_where_the_cache_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PRIVNETS_CACHE", str(tmp_path / "file"))
    assert create(tmp_path / "store").is_file()


def _check(*uris: str) -> str:
    """Whether checks of stores have loaded MLflow."""
    checks = [f"tracking.check({uri!r});" for uri in uris]
    code = f"import sys, tracking; {' '.join(checks)} print('mlflow' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    return done.stdout.strip()


def test_a_store_is_checked_without_loading_mlflow(tmp_path: Path, cache: Path) -> None:
    """A new one, and one whose schema MLflow has accepted before."""
    uri = tracking.create(f"sqlite:///{tmp_path}/mlflow.db")
    assert _check(f"sqlite:///{tmp_path}/new.db", uri) == "False"
    for path in cache.iterdir():
        path.unlink()
    assert [_check(uri) for _ in range(2)] == ["True", "False"]


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    uri = tracking.create(f"sqlite:///{tmp_path}/mlflow.db")
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = 'another'")
    with pytest.raises(tracking.TrackingError, match="another"):
        tracking.check(uri)
