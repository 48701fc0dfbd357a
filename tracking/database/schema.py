"""Schema of SQLite stores: its revision, and the cache of an empty store.

MLflow builds a new store by running all migrations of its history, which takes seconds. So an
empty store is kept per machine and MLflow version. Importing this module does not load MLflow.
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

from tracking.errors import TrackingError

_DIGEST_BYTES = hashlib.sha256().digest_size


def expected_revision() -> str | None:
    """Returns the schema revision of the installed MLflow, None until MLflow was loaded once."""
    try:
        return _cache_path("revision").read_text()
    except (OSError, UnicodeDecodeError):
        return None


def remember_revision(revision: str) -> None:
    """Caches a schema revision that MLflow has accepted, for `expected_revision`."""
    _write_cache(_cache_path("revision"), revision.encode())


def cache_empty_store(content: bytes) -> None:
    """Caches the file of an empty store, for `read_empty_store`."""
    _write_cache(_cache_path("db"), hashlib.sha256(content).digest() + content)


def read_revision(database: sqlite3.Connection) -> str | None:
    """Returns the schema revision of an open database, None where it has no schema.

    Raises:
        sqlite3.Error: If it is not a database.
    """
    if not database.execute("PRAGMA table_info(alembic_version)").fetchall():
        return None
    rows = database.execute("SELECT version_num FROM alembic_version").fetchall()
    return str(rows[0][0]) if len(rows) == 1 else None


def read_file_revision(path: Path) -> str | None:
    """Returns the revision of a SQLite store's schema, None where it has no schema yet.

    Raises:
        TrackingError: If the file is absent or is not a SQLite database. MLflow itself would
            retry for about two minutes.
    """
    if not path.exists():
        raise TrackingError(f"no tracking store exists at {path}.")
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True)) as database:
            return read_revision(database)
    except sqlite3.Error as error:
        raise TrackingError(f"{path} cannot be used as a SQLite database: {error}.") from error


def read_empty_store() -> bytes | None:
    """Returns the cached file of an empty store, None where it is absent or damaged."""
    try:
        content = _cache_path("db").read_bytes()
    except OSError:
        return None
    digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return body if hashlib.sha256(body).digest() == digest else None


def _write_cache(path: Path, content: bytes) -> None:
    # A read-only or full disk must not stop a sweep.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as temporary:
            try:
                temporary.write(content)
                temporary.close()
                os.replace(temporary.name, path)
            except BaseException:
                os.unlink(temporary.name)
                raise


def _cache_path(kind: str) -> Path:
    chosen = os.environ.get("PRIVNETS_CACHE")
    if chosen:
        folder = Path(chosen).expanduser().absolute()
    else:
        folder = platformdirs.user_cache_path("privnets", appauthor=False)
    return folder / "tracking" / f"mlflow-{version('mlflow')}.{kind}"
