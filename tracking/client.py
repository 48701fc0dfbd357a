"""MLflow clients: connections to a tracking store, and translation of their errors."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sqlalchemy
from alembic.util import CommandError
from google.protobuf.json_format import (  # type: ignore[import-untyped, unused-ignore]
    Error as ProtobufError,
)
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from requests import exceptions
from sqlalchemy.exc import SQLAlchemyError

from privnets.credentials import redact
from tracking.errors import CredentialsRejectedError, RejectedRecordError, TrackingError
from tracking.uris import check_file, is_server, sqlite_path

_CHECK_SECONDS = 10
_UNAUTHORIZED, _FORBIDDEN = 401, 403
_MAX_QUOTE = 200
_MAX_MESSAGE = 1000
# MLflow's defaults retry for several minutes; the publisher tries again anyway. A request may wait
# 20 s for SQLite's lock and 30 s for a connection to the database. It may be repeated: of two runs
# for one point the recorder deletes one. Redirects would send credentials to another server, and
# ~/.netrc would replace the account that the user gave.
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",
    "MLFLOW_ALLOW_HTTP_REDIRECTS": "false",
    "NETRC": os.devnull,
}
_QUICK = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": str(_CHECK_SECONDS),
}
# Pooled connections would keep using a SQLite file that was deleted, in place of a new one.
_WITHOUT_POOL = {"MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "NullPool"}
_ENVIRONMENT_LOCK = threading.Lock()
# Raised by MLflow's client when the response of a server has an unexpected form.
_MALFORMED_RESPONSE = (
    json.JSONDecodeError,
    ProtobufError,
    RecursionError,
    AttributeError,
    TypeError,
    KeyError,
)


def connect(uri: str) -> MlflowClient:
    """Returns a client of an existing store; the URI must be one that `resolve_uri` returned.

    Raises:
        TrackingError: If the store does not exist, or another version of MLflow made its schema.
    """
    _set_environment()
    path = sqlite_path(uri)
    if path is not None:
        check_file(path)
    elif not is_server(uri):
        check_database(uri)
    with translate_errors(uri), _environment({} if path is None else _WITHOUT_POOL):
        return MlflowClient(uri)


def initialise(uri: str) -> None:
    """Lets MLflow write its schema into a new database."""
    _set_environment()
    logging.disable(logging.INFO)  # a line per migration, whatever the level of its logger
    try:
        MlflowClient(uri).search_experiments(max_results=1)
    finally:
        logging.disable(logging.NOTSET)


def check_server(uri: str) -> None:
    """Checks within seconds that an MLflow server responds and accepts the account.

    Raises:
        TrackingError: If it does not.
    """
    _set_environment()
    with translate_errors(uri), _environment(_QUICK):
        MlflowClient(uri).search_experiments(max_results=1)


def artifacts(client: MlflowClient, run_id: str) -> Any:
    """Returns the `ArtifactRepository` of a run, most of whose methods have no types.

    The client of MLflow 3.6 asks the server that the process uses, whatever its own URI is.
    """
    folder: Any = client.get_run(run_id).info.artifact_uri
    return get_artifact_repository(folder, tracking_uri=client.tracking_uri)


@contextmanager
def translate_errors(uri: str) -> Iterator[None]:
    """Turns errors of MLflow, its database and its transport into `TrackingError`.

    Raises:
        RejectedRecordError: If the store rejects the data as invalid.
        TrackingError: In all other cases.
    """
    expected: tuple[type[Exception], ...]
    expected = (MlflowException, SQLAlchemyError, CommandError, sqlite3.Error, ImportError, OSError)
    if is_server(uri):
        expected += _MALFORMED_RESPONSE
    try:
        yield
    except expected as error:
        failure = TrackingError(f"{uri}: {error}")
        if is_server(uri):
            failure = _explain_server_error(uri, error)
        if isinstance(error, MlflowException) and error.error_code == "INVALID_PARAMETER_VALUE":
            failure = RejectedRecordError(str(failure))
        text = f"{uri} {error}"
        # A cause that contains credentials would show them in the traceback.
        raise failure from (error if redact(text) == text else None)


def check_database(uri: str) -> None:
    """Connects once to a database: MLflow itself would retry for about two minutes.

    Raises:
        TrackingError: If that fails.
    """
    try:
        url = sqlalchemy.make_url(uri)
        has_limit = url.get_backend_name() in ("postgresql", "mysql")
        options = {"connect_timeout": _CHECK_SECONDS} if has_limit else {}
        sqlalchemy.create_engine(
            url, poolclass=sqlalchemy.NullPool, connect_args=options
        ).connect().close()
    except ValueError as error:  # the port is not a number
        raise TrackingError(f"{uri} is not the address of a database: {error}") from None
    except (SQLAlchemyError, ImportError) as error:
        reason = " ".join(str(getattr(error, "orig", error)).split())
        raise TrackingError(f"the database {uri} cannot be used: {reason}") from None


def _set_environment() -> None:
    """Sets MLflow's environment variables, except those that the user has set."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # Their messages also arrive as exceptions where they matter.
    for name in (
        "mlflow.store.db",
        "mlflow.store.db.utils",
        "alembic",
        "alembic.runtime.migration",
    ):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables for a block, one at a time as each restores what it found."""
    if not variables:
        yield
        return
    with _ENVIRONMENT_LOCK:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _explain_server_error(uri: str, error: Exception) -> TrackingError:
    status = None
    if isinstance(error, exceptions.HTTPError) and error.response is not None:
        status = int(error.response.status_code)
    elif isinstance(error, MlflowException):
        status = int(error.get_http_status_code())  # type: ignore[no-untyped-call]
    if status in (_UNAUTHORIZED, _FORBIDDEN):
        quote = " ".join(str(error)[:_MAX_QUOTE].split())
        if "Invalid Host" in str(error):
            return TrackingError(
                f"{uri} rejects this host name ({quote})", "start the server with --allowed-hosts"
            )
        # MLflow's text for 401 only points to its manual.
        code = str(status) if status == _UNAUTHORIZED else f"{status}: {quote}"
        return CredentialsRejectedError(
            f"{uri} rejects the credentials ({code})",
            "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD (or "
            "MLFLOW_TRACKING_TOKEN), or write the former two into ~/.mlflow/credentials "
            "(chmod 600)",
        )
    # MLflow wraps errors of requests, which wrap errors of urllib3, and so on.
    chain = list(_causes(error))
    if any(isinstance(e, exceptions.ConnectionError | exceptions.Timeout) for e in chain):
        return TrackingError(
            f"no MLflow server answers at {uri} ({_innermost_text(chain)})",
            "start it, or leave --tracking-uri out and publish later with `sweeps sync`",
        )
    malformed = (exceptions.RetryError, exceptions.ContentDecodingError, *_MALFORMED_RESPONSE)
    if any(isinstance(e, malformed) for e in chain):
        return TrackingError(
            f"{uri} does not answer as an MLflow server: {_innermost_text(chain)}."
        )
    return TrackingError(f"{uri}: {' '.join(str(error)[:_MAX_MESSAGE].split())}")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        # urllib3 keeps the error that ended its retries in `reason`, sometimes only there.
        reason = getattr(error, "reason", None)
        linked = error.__cause__ or error.__context__
        error = linked or (reason if isinstance(reason, BaseException) else None)


def _innermost_text(chain: list[BaseException]) -> str:
    innermost = chain[-1]
    text = innermost.strerror if isinstance(innermost, OSError) else None
    return " ".join((text or str(innermost))[:_MAX_QUOTE].split())
