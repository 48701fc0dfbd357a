"""An empty SQLite store, made once per machine and MLflow version.

MLflow makes one by all the migrations of its history, which take seconds every time.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import tempfile
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path

import platformdirs

_DIGEST_BYTES = hashlib.sha256().digest_size


def empty_store() -> bytes:
    """The file of a SQLite store of the installed MLflow that holds nothing yet."""
    return _kept() or make()


def make() -> bytes:
    """Have MLflow make an empty store, and keep it in the cache for `empty_store`.

    Raises:
        MlflowException: If it cannot.
        OSError: If there is no place for temporary files.
    """
    with tempfile.TemporaryDirectory(prefix="tracking-schema-") as folder:
        path = Path(folder, "mlflow.db")
        open_once(f"sqlite:///{path}", folder)
        with closing(sqlite3.connect(path)) as database, database:
            # The only row that says where the store lies; MLflow adds it where it is missing.
            database.execute("DELETE FROM experiments")
            found = revision(database)
        content = path.read_bytes()
    _keep(_path("db"), hashlib.sha256(content).digest() + content)
    if found is not None:
        remember(found)
    return content


def open_once(uri: str, root: str | None) -> None:
    """Open a database as MLflow does, which completes and verifies its schema, and close it.

    Args:
        uri: Of the database.
        root: Where its artifacts go.

    Raises:
        MlflowException: If its schema is another MLflow version's.
    """
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    SqlAlchemyStore(uri, root).engine.dispose()  # type: ignore[no-untyped-call]


def expected_revision() -> str | None:
    """The schema's revision that the installed MLflow wants; None until it was once loaded."""
    try:
        return _path("revision").read_text()
    except (OSError, UnicodeDecodeError):
        return None


def remember(revision: str) -> None:
    """Keep the revision of a schema that MLflow has accepted, for `expected_revision`."""
    _keep(_path("revision"), revision.encode())


def revision(database: sqlite3.Connection) -> str | None:
    """The schema's revision in an open database; None where it has none.

    Raises:
        sqlite3.Error: If it is no database.
    """
    if not database.execute("PRAGMA table_info(alembic_version)").fetchall():
        return None
    found = database.execute("SELECT version_num FROM alembic_version").fetchall()
    return str(found[0][0]) if len(found) == 1 else None


def _kept() -> bytes | None:
    try:
        content = _path("db").read_bytes()
    except OSError:
        return None
    digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return body if hashlib.sha256(body).digest() == digest else None


def _path(kind: str) -> Path:
    chosen = os.environ.get("PRIVNETS_CACHE")
    if chosen:
        folder = Path(chosen).expanduser().absolute()
    else:
        folder = platformdirs.user_cache_path("privnets", appauthor=False)
    return folder / "tracking" / f"mlflow-{version('mlflow')}.{kind}"


def _keep(path: Path, content: bytes) -> None:
    # A read-only or full disk must not stop a sweep.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as aside:
            try:
                aside.write(content)
                aside.close()
                os.replace(aside.name, path)
            except BaseException:
                os.unlink(aside.name)
                raise
