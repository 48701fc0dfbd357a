"""The private interfaces of MLflow that this project uses; the only module that touches them.

Checked against MLflow 3.17, which `pyproject.toml` pins. `tests/tracking/test_mlflow_internals.py`
fails when an upgrade changes one of them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.utils import request_utils
from mlflow.utils.credentials import get_default_host_creds
from mlflow.utils.request_utils import TCPKeepAliveHTTPAdapter
from mlflow.utils.rest_utils import http_request
from requests import PreparedRequest, Response
from requests.exceptions import ContentDecodingError, RequestException
from urllib3.util import Retry

MAX_RESPONSE_BYTES: Final = 2**29
"""Largest accepted response; a thousand runs with all their values take some tens of MB."""

MAX_RESPONSE_SECONDS: Final = 300.0
"""Longest accepted time for the body of a response."""

_CHUNK_BYTES: Final = 2**16
_lock = threading.Lock()
_users = 0


def open_database(uri: str, artifact_root: str | None) -> None:
    """Opens a database as MLflow does, which completes and verifies its schema, and closes it.

    Raises:
        MlflowException: If the schema belongs to another version of MLflow.
    """
    SqlAlchemyStore(uri, artifact_root).engine.dispose()  # type: ignore[no-untyped-call]


def ask_server(uri: str, timeout: float) -> Response:
    """Asks a server for one experiment, with the user's credentials and without a retry.

    Raises:
        MlflowException: If the server does not respond.
    """
    return http_request(  # type: ignore[no-any-return, no-untyped-call]
        get_default_host_creds(uri),  # type: ignore[no-untyped-call]
        "/api/2.0/mlflow/experiments/search",
        "POST",
        max_retries=0,
        timeout=timeout,
        raise_on_status=False,
        json={"max_results": 1},
    )


def post_to_server(
    uri: str, path: str, experiment_id: str, body: bytes, max_retries: int | None = None
) -> Response:
    """Posts JSON for an experiment with the user's credentials.

    Raises:
        MlflowException: If the server does not respond.
    """
    return http_request(  # type: ignore[no-any-return, no-untyped-call]
        get_default_host_creds(uri),  # type: ignore[no-untyped-call]
        path,
        "POST",
        max_retries=max_retries,
        raise_on_status=False,
        params={"experiment_id": experiment_id},
        data=body,
        extra_headers={"Content-Type": "application/json"},
    )


def create_team_app(path: str, view: Callable[[], Any], may_call: Callable[[], bool]) -> object:
    """Returns MLflow's app with accounts and one more path to post to.

    MLflow asks `may_call` after it has checked the password; for administrators it does not.
    """
    import mlflow.server  # clients must not wait for the server's modules
    from mlflow.server import auth

    app = mlflow.server.app
    app.add_url_rule(path, view_func=view, methods=["POST"])
    auth.BEFORE_REQUEST_VALIDATORS[path, "POST"] = may_call
    return auth.create_app(app)


def may_create_and_update_runs(experiment_id: str) -> bool:
    """Whether the account of the current request may, as MLflow decides for its own calls."""
    from mlflow.server import auth
    from mlflow.server.auth.permissions import RESOURCE_TYPE_EXPERIMENT, RESOURCE_TYPE_RUN
    from mlflow.server.auth.requirements import Requirement

    if auth.sender_is_admin():  # type: ignore[no-untyped-call]
        return True
    experiment = (RESOURCE_TYPE_EXPERIMENT, experiment_id)
    update = Requirement(RESOURCE_TYPE_RUN, "*", "update", fallback_if_no_grant=(experiment,))
    return bool(auth._authorize_create_in_experiment(experiment_id, RESOURCE_TYPE_RUN, [update]))


def run_mlflow(app: str) -> None:
    """Runs the command line of `mlflow`, whose `server` serves an app given as MODULE:FUNCTION."""
    import mlflow.server
    from mlflow.cli import cli

    # MLflow looks only for apps of installed packages.
    mlflow.server._find_app = lambda app_name: app
    cli()


def silence_logs() -> None:
    """Silences messages of MLflow and Alembic that also arrive as exceptions where they matter."""
    for name in ("mlflow.store.db", "mlflow.store.db.utils", "alembic"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


class _BoundedAdapter(TCPKeepAliveHTTPAdapter):
    """Rejects responses that are too long or take too long, and ignores Retry-After."""

    def __init__(self, *args: Any, **options: Any) -> None:
        retries = options.get("max_retries")
        if isinstance(retries, Retry):
            options["max_retries"] = retries.new(respect_retry_after_header=False)
        super().__init__(*args, **options)

    def send(  # type: ignore[override]
        self, request: PreparedRequest, stream: bool = False, **options: Any
    ) -> Response:
        response = super().send(request, stream=stream, **options)
        if not stream:
            _read_body(response)
        return response


@contextmanager
def bounded_responses() -> Iterator[None]:
    """Makes MLflow's client reject endless responses inside the block.

    MLflow itself reads everything that a server sends, for as long as it sends. The original
    adapter is restored when the last of several concurrent blocks ends.
    """
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            _use_adapter(_BoundedAdapter)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _use_adapter(TCPKeepAliveHTTPAdapter)


def _use_adapter(adapter: type[TCPKeepAliveHTTPAdapter]) -> None:
    request_utils.TCPKeepAliveHTTPAdapter = adapter  # type: ignore[misc]
    request_utils._cached_get_request_session.cache_clear()  # sessions keep their adapter


def _read_body(response: Response) -> None:
    """Reads the body of a response within the bounds.

    Raises:
        ContentDecodingError: If it is too long, or takes too long.
    """
    body, expired = bytearray(), threading.Event()
    # The timeout of requests is per byte, so a slow sender could hold a call for ever.
    timer = threading.Timer(MAX_RESPONSE_SECONDS, _abort, [response, expired])
    timer.daemon = True
    timer.start()
    failure = None
    try:
        for part in response.iter_content(_CHUNK_BYTES):
            body += part
            if len(body) > MAX_RESPONSE_BYTES:
                break
    except RequestException as error:  # also raised by the abort
        failure = error
    finally:
        timer.cancel()
    if expired.is_set() or len(body) > MAX_RESPONSE_BYTES:
        response.close()
        raise ContentDecodingError(
            f"a response of more than {MAX_RESPONSE_BYTES >> 20} MiB "
            f"or {MAX_RESPONSE_SECONDS:.0f} s"
        )
    if failure is not None:
        raise failure
    response._content = bytes(body)


def _abort(response: Response, expired: threading.Event) -> None:
    expired.set()
    with suppress(ValueError, RuntimeError, OSError):  # the response has just ended
        response.raw.shutdown()
