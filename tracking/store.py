"""Where MLflow keeps things: one absolute URI, a schema made once, errors that come soon.

What this sets in the environment, unless the user has set it already: no telemetry, no links
printed to standard output, and a retry policy that gives up within a minute instead of several
(`MLFLOW_HTTP_REQUEST_MAX_RETRIES=2`, `MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR=1`,
`MLFLOW_HTTP_REQUEST_TIMEOUT=20`, in seconds), because a caller who publishes tries again anyway;
a kept connection for each call in flight (`MLFLOW_HTTP_POOL_MAXSIZE`); no answer taken from
another server than the one asked (`MLFLOW_ALLOW_HTTP_REDIRECTS=false`); and no account taken from
`~/.netrc`, which would go before the one that was given (`NETRC=/dev/null`; set it to a file to
have that read). Proxies are used as the environment says. A server's answers are bounded: see
`tracking.bounded`.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tracking import schema
from tracking.bounded import bound_answers
from tracking.errors import RejectedRecordError, TrackingError
from tracking.http import REFUSED, is_refused, nonsense, refusal, told
from tracking.mounts import is_shared
from tracking.redaction import redact

if TYPE_CHECKING:
    from mlflow import MlflowClient

_SQLITE = "sqlite:///"
_SERVERS = ("http", "https")
_DATABASES = ("postgresql", "mysql", "mssql")
_QUICK = 3
_TO_SERVER = 16
# MLflow holds up to three of the fifteen connections that it opens to a database for one call.
_TO_DATABASE = 4
_SCHEMA_WAIT = 120
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_HTTP_POOL_MAXSIZE": str(_TO_SERVER),
    "MLFLOW_ALLOW_HTTP_REDIRECTS": "false",
    "NETRC": os.devnull,
}


def resolve_uri(uri: str | None = None) -> str:
    """The absolute form of a tracking URI.

    Args:
        uri: An `http(s)` server, a database, or None for `MLFLOW_TRACKING_URI` or else
            `mlflow.db` in the working directory.

    Returns:
        The URI; a SQLite path in it is absolute.

    Raises:
        TrackingError: If it is no server and no database (MLflow's file store included).
    """
    given = uri or os.environ.get("MLFLOW_TRACKING_URI") or f"{_SQLITE}mlflow.db"
    scheme = given.partition(":")[0].partition("+")[0].lower() if ":" in given else ""
    if scheme == "sqlite":
        return _absolute_sqlite(given)
    if scheme in (*_SERVERS, *_DATABASES) and _is_uri(given):
        return given.rstrip("/")
    raise TrackingError(
        f"a tracking URI must be http(s)://HOST:PORT, sqlite:///PATH/mlflow.db or a "
        f"postgresql:// or other database URI (MLflow no longer keeps runs in plain files); "
        f"got {redact(given)!r}."
    )


def check(uri: str | None = None) -> None:
    """Make sure, within seconds and without writing anything, that a store can be used.

    Args:
        uri: As `resolve_uri` takes it.

    Raises:
        TrackingError: If the server does not answer, refuses the credentials or is no MLflow
            server; if the database cannot be reached; if a SQLite file is not one, or could not
            be created where it is wanted.
    """
    resolved = resolve_uri(uri)
    path = sqlite_path(resolved)
    if path is not None and not path.exists():
        _check_creatable(path)
    elif path is not None:
        _check_schema(path, resolved)
    elif resolved.startswith(_SERVERS):
        _check_server(resolved)
    else:
        connect(resolved)


def create(uri: str | None = None) -> str:
    """Make sure that a SQLite store exists with its whole schema; nothing to do for others.

    Several processes that open a new store at once would run its migrations at once and fail, so
    one makes it aside, under a lock, and moves it into place complete.

    Args:
        uri: As `resolve_uri` takes it.

    Returns:
        The resolved URI.

    Raises:
        TrackingError: If the file cannot be created.
    """
    from filelock import FileLock

    resolved = resolve_uri(uri)
    path = sqlite_path(resolved)
    if path is not None and not path.exists():
        with translate_errors(resolved):
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(path.with_name(f".{path.name}.lock"), timeout=_SCHEMA_WAIT):
                if not path.exists():
                    _create_schema(path, resolved)
    return resolved


def connect(uri: str) -> MlflowClient:
    """A client of the store at a resolved URI, which must exist.

    Raises:
        TrackingError: If there is none, or its schema is another MLflow version's.
    """
    _settle_environment()
    path = sqlite_path(uri)
    if path is not None:
        _sqlite_revision(path)
    elif not uri.startswith(_SERVERS):
        _check_database(uri)
    with translate_errors(uri):
        from mlflow import MlflowClient

        _hush()
        if uri.startswith(_SERVERS):
            bound_answers()
        return MlflowClient(uri)


@contextmanager
def translate_errors(uri: str) -> Iterator[None]:
    """Turn what MLflow, its database and its transport raise into TrackingError.

    Raises:
        RejectedRecordError: Where what was sent is wrong.
        TrackingError: Else.
    """
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    expected: tuple[type[Exception], ...]
    expected = (MlflowException, SQLAlchemyError, sqlite3.Error, ImportError, OSError)
    if uri.startswith(_SERVERS):
        expected += nonsense()
    try:
        yield
    except expected as error:
        server = uri.startswith(_SERVERS)
        failure = told(uri, error) if server else TrackingError(f"{uri}: {error}")
        # A cause that holds credentials would show them in the traceback.
        whole = f"{uri} {error}"
        failure = RejectedRecordError(str(failure)) if is_refused(error) else failure
        raise failure from (error if redact(whole) == whole else None)


def in_flight(uri: str) -> int:
    """How many calls to a store to make at a time, to hide what each waits for."""
    if uri.startswith("sqlite"):
        return 1
    return _TO_SERVER if uri.startswith(_SERVERS) else _TO_DATABASE


def sqlite_path(uri: str) -> Path | None:
    """The file of a resolved SQLite URI; None for any other store."""
    if not uri.startswith("sqlite"):
        return None
    return Path(uri.partition(":///")[2].partition("?")[0])


def artifact_root(uri: str) -> str | None:
    """Where a SQLite store's artifacts go: beside it. None where the store itself knows."""
    path = sqlite_path(uri)
    return None if path is None else (path.parent / "mlruns").as_uri()


def _is_uri(text: str) -> bool:
    """Whether a URI's parts can be told apart; not whether there is anything at it."""
    try:
        parts = urlsplit(text)
        return parts.scheme not in _SERVERS or (bool(parts.hostname) and parts.port != 0)
    except ValueError:  # a bracket that does not close, a port that is no number
        return False


def _absolute_sqlite(uri: str) -> str:
    scheme, separator, rest = uri.partition(":///")
    file, question, options = rest.partition("?")
    if not separator or file in ("", ":memory:"):
        raise TrackingError(
            f"a SQLite store needs a file, as in sqlite:///mlflow.db; got {redact(uri)!r}."
        )
    path = Path(unquote(file)).absolute()
    # SQLAlchemy decodes an escaped path in some versions and not in others.
    if {"%", "?"} & set(str(path)):
        raise TrackingError(f"a SQLite store's path must be free of % and ?; got {path}.")
    try:
        os.fsencode(path).decode()
        path.stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass  # told where it is to be used
    except (OSError, ValueError) as error:  # a name of no characters, or of too many
        raise TrackingError(f"a SQLite store cannot be at {str(path)!r}: {error}") from error
    return f"{scheme}:///{path}{question}{options}"


def _settle_environment() -> None:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def _hush() -> None:
    # Each of these comes back as an exception where it matters.
    for name in ("mlflow.store.db", "mlflow.store.db.utils", "alembic"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # MLflow's own mapping of a table that is not used here, under SQLAlchemy 2.1.
    warnings.filterwarnings("ignore", message="The ``noload`` loader strategy is deprecated")


def _check_creatable(path: Path) -> None:
    parent = next(folder for folder in path.parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise TrackingError(f"cannot create {path}: {parent} is not a writable directory.")


def _sqlite_revision(path: Path) -> str | None:
    """The revision of a SQLite store's schema; None where it has none yet."""
    if not path.exists():
        raise TrackingError(f"there is no tracking store at {path}.")
    # MLflow itself would try ten times, for about two minutes.
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True)) as database:
            return schema.revision(database)
    except sqlite3.Error as error:
        raise TrackingError(f"{path} cannot be used as a SQLite database: {error}.") from error


def _check_schema(path: Path, uri: str) -> None:
    """Check a SQLite store, without loading MLflow if it has accepted such a schema before."""
    found = _sqlite_revision(path)
    if found is None or found != schema.expected_revision():
        connect(uri)
        if found is not None:
            schema.remember(found)


def _check_server(uri: str) -> None:
    _settle_environment()
    with translate_errors(uri):
        from mlflow.utils.credentials import get_default_host_creds
        from mlflow.utils.rest_utils import http_request

        bound_answers()
        answer = http_request(  # type: ignore[no-untyped-call]
            get_default_host_creds(uri),  # type: ignore[no-untyped-call]
            "/api/2.0/mlflow/experiments/search",
            "POST",
            max_retries=0,
            timeout=_QUICK,
            raise_on_status=False,
            json={"max_results": 1},
        )
    if answer.status_code in REFUSED:
        raise refusal(uri, answer.status_code, answer.text)
    is_json = answer.headers.get("Content-Type", "").startswith("application/json")
    if answer.status_code != 200 or not is_json:
        raise TrackingError(
            f"{redact(uri)} does not answer as an MLflow server: {answer.status_code} "
            f"{answer.text[:200].strip()!r}."
        )


def _check_database(uri: str) -> None:
    # MLflow itself would try ten times, for about two minutes.
    with translate_errors(uri):
        import sqlalchemy

        try:
            url = sqlalchemy.make_url(uri)
        except ValueError as error:  # a port that is no number
            raise TrackingError(redact(f"{uri} is no database's address: {error}")) from None
        options = {} if url.get_backend_name() == "mssql" else {"connect_timeout": _QUICK}
        engine = sqlalchemy.create_engine(url, connect_args=options)
        try:
            with engine.connect():
                pass
        finally:
            engine.dispose()


def _create_schema(path: Path, uri: str) -> None:
    _settle_environment()
    _hush()
    aside = path.with_name(f".{path.name}.creating")
    # SQLite would replay a deleted database's log into a new one of that name.
    for stale in (aside, *_logs(aside), *_logs(path)):
        stale.unlink(missing_ok=True)
    _fill(aside, artifact_root(uri))
    # The log wants shared memory, which machines that share a file system do not share.
    if not is_shared(path.parent):
        # Readers and the writer do not block each other, and a commit waits for the disk once
        # instead of thrice; the file keeps this setting.
        with closing(sqlite3.connect(aside)) as database:
            database.execute("PRAGMA journal_mode = WAL")
    os.replace(aside, path)
    # A file of this name may have been open in this process before: forget its connections.
    schema.open_once(uri, artifact_root(uri))


def _fill(path: Path, root: str | None) -> None:
    from mlflow.exceptions import MlflowException

    path.write_bytes(schema.empty_store())
    try:
        schema.open_once(f"{_SQLITE}{path}", root)
    except MlflowException:
        # Kept by another MLflow of the same version, as a development version is.
        path.write_bytes(schema.make())
        schema.open_once(f"{_SQLITE}{path}", root)


def _logs(database: Path) -> list[Path]:
    return [database.with_name(database.name + end) for end in ("-wal", "-shm", "-journal")]
