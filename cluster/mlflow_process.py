"""MLflow's server as a guest of this process."""

from __future__ import annotations

import os
import shlex
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

from cluster.guests import ServerFailed, guests

_STDERR = 2
_START_SECONDS = 120.0
_ENVIRONMENT = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
# Whatever these say in our own environment is meant for clients, or would change who may do what.
_FOREIGN = ("MLFLOW_AUTH_", "MLFLOW_SERVER_", "MLFLOW_TRACKING_", "MLFLOW_ENABLE_WORKSPACES")
# MLflow's own affair.
_HUSHED = "ignore:starlette.middleware.wsgi is deprecated"
_UVICORN = "--log-level warning --timeout-graceful-shutdown 3"
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True)
class Certificate:
    """What a server proves its name with.

    Attributes:
        certificate: A PEM file: its own certificate, then those between it and the authority.
        key: A PEM file: its private key, which nobody else may read.
    """

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Place:
    """Where a server listens.

    Attributes:
        host: An address of this machine, or a name of one.
        port: A free one.
        certificate: For TLS; None for plain HTTP.
    """

    host: str
    port: int
    certificate: Certificate | None = None

    @property
    def uri(self) -> str:
        """Where this machine finds it."""
        scheme = "http" if self.certificate is None else "https"
        host = _EVERYWHERE.get(self.host, self.host)
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    def ask(self, path: str, headers: Mapping[str, str]) -> int | None:
        """The status of its answer to a GET; None if it does not answer."""
        # Not urllib, which would ask a proxy where one is set.
        connection = self._connection()
        try:
            connection.request("GET", path, headers=dict(headers))
            return connection.getresponse().status
        except (OSError, HTTPException):
            return None
        finally:
            connection.close()

    def _connection(self) -> HTTPConnection:
        host = _EVERYWHERE.get(self.host, self.host)
        if self.certificate is None:
            return HTTPConnection(host, self.port, timeout=10)
        # It is ours, on this machine, and its certificate speaks of another name.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return HTTPSConnection(host, self.port, timeout=10, context=context)


@contextmanager
def serving(
    store: str,
    place: Place,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    workers: int = 1,
) -> Iterator[subprocess.Popen[bytes]]:
    """Serve a store while the block runs.

    Args:
        store: A resolved URI of a store; it may hold credentials.
        place: Where.
        options: More of `mlflow server`, which everybody on the machine can read.
        environment: More for the server's environment; secrets belong here.
        workers: How many processes answer. One answers ten times as fast as several, whose
            connections lack TCP_NODELAY.

    Yields:
        The server, once it answers.

    Raises:
        ServerFailed: If it ends before it answers, or does not answer in two minutes; it has said
            why on standard error.
    """
    warnings = ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), _HUSHED)))
    ours = {"MLFLOW_BACKEND_STORE_URI": store, "PYTHONWARNINGS": warnings, **_ENVIRONMENT}
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
    with guests() as group:
        # What it says is no answer of ours, so it goes to standard error.
        server = group.start(
            _command(place, options, workers), inherited | ours | dict(environment or {}), _STDERR
        )
        _await(server, place)
        yield server


def _command(place: Place, options: Sequence[str], workers: int) -> list[str]:
    command = [sys.executable, "-m", "mlflow", "server", "--workers", str(workers)]
    command += ["--host", place.host, "--port", str(place.port)]
    uvicorn = _UVICORN
    if place.certificate is not None:
        key, certificate = place.certificate.key, place.certificate.certificate
        files = ["--ssl-keyfile", str(key), "--ssl-certfile", str(certificate)]
        uvicorn = f"{uvicorn} {shlex.join(files)}"
    return [*command, "--uvicorn-opts", uvicorn, *options]


def _await(server: subprocess.Popen[bytes], place: Place) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while place.ask("/health", {}) != 200:
        if server.poll() is not None:
            raise ServerFailed(f"the MLflow server did not start (exit code {server.returncode})")
        if time.monotonic() > deadline:
            raise ServerFailed(f"the MLflow server did not answer in {_START_SECONDS:.0f} s")
        time.sleep(0.1)
