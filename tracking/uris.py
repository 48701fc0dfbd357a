"""URIs of tracking stores, and files of SQLite stores. Importing this does not load MLflow."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from privnets.credentials import redact
from tracking.errors import TrackingError

_SQLITE = "sqlite:///"
_SERVERS = ("http", "https")
_DATABASES = ("postgresql", "mysql", "mssql")


def resolve_uri(uri: str | None = None) -> str:
    """Returns the absolute form of a tracking URI.

    Args:
        uri: An `http(s)` server, a database, or None for `MLFLOW_TRACKING_URI`; where that is not
            set, `mlflow.db` in the working directory.

    Returns:
        The URI; a SQLite path in it is absolute.

    Raises:
        TrackingError: If it is neither a server nor a database (MLflow's file store included).
    """
    given = uri or os.environ.get("MLFLOW_TRACKING_URI") or f"{_SQLITE}mlflow.db"
    scheme = given.partition(":")[0].partition("+")[0].lower() if ":" in given else ""
    if scheme == "sqlite":
        return _absolute_sqlite_uri(given)
    if scheme in (*_SERVERS, *_DATABASES):
        with suppress(ValueError):  # an unclosed bracket, or a port that is not a number
            parts = urlsplit(given)
            if parts.scheme not in _SERVERS or (parts.hostname and parts.port != 0):
                return given.rstrip("/")
    raise TrackingError(
        f"a tracking URI must be http(s)://HOST:PORT, sqlite:///PATH/mlflow.db or a "
        f"postgresql:// or other database URI (MLflow no longer keeps runs in plain files); "
        f"got {redact(given)!r}."
    )


def is_server(uri: str) -> bool:
    """Whether a resolved URI names an `http(s)` server."""
    return uri.startswith(_SERVERS)


def sqlite_path(uri: str) -> Path | None:
    """Returns the file of a resolved SQLite URI, None for any other store."""
    if not uri.startswith("sqlite"):
        return None
    return Path(uri.partition(":///")[2].partition("?")[0])


def check_file(path: Path) -> None:
    """Checks that a file is a SQLite database; MLflow itself would retry for two minutes.

    Raises:
        TrackingError: If it is absent or no database.
    """
    if not path.exists():
        raise TrackingError(f"no tracking store exists at {path}.")
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            database.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.Error as error:
        raise TrackingError(f"{path} cannot be used as a SQLite database: {error}.") from error


def artifact_root(uri: str) -> str | None:
    """Returns the artifact location of a SQLite store, None where the store itself decides."""
    path = sqlite_path(uri)
    return None if path is None else (path.parent / "mlruns").as_uri()


def _absolute_sqlite_uri(uri: str) -> str:
    scheme, separator, rest = uri.partition(":///")
    file, question, options = rest.partition("?")
    if not separator or file in ("", ":memory:"):
        raise TrackingError(
            f"a SQLite store needs a file, as in sqlite:///mlflow.db; got {redact(uri)!r}."
        )
    path = Path(unquote(file)).absolute()
    # Some versions of SQLAlchemy decode an escaped path and others do not.
    if {"%", "?"} & set(str(path)):
        raise TrackingError(f"a SQLite store's path must be free of % and ?; got {path}.")
    try:
        os.fsencode(path).decode()
        path.stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass  # reported when the store is used
    except (OSError, ValueError) as error:  # invalid characters, or too many of them
        raise TrackingError(f"a SQLite store cannot be at {str(path)!r}: {error}") from error
    return f"{scheme}:///{path}{question}{options}"
