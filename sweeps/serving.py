"""MLflow's server as a guest of this process: none of its processes outlives us."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException

from sweeps.errors import InputError

HOST = "127.0.0.1"

_STDERR = 2
_START_SECONDS = 120.0
_GRACE_SECONDS = 6.0
_ENVIRONMENT = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
# MLflow's own affair.
_HUSHED = "ignore:starlette.middleware.wsgi is deprecated"

# Leads the server's process group and ends it when the pipe closes, as it does when its owner
# closes it, and also when its owner is killed.
_GUARD = "trap '' INT TERM HUP; cat; kill -TERM 0; sleep 5; kill -KILL 0"


class ServerFailed(RuntimeError):
    """The server ended by itself, or never answered; it has said why on standard error."""


def check_port(port: int) -> None:
    """Refuse a port that another server has: its pages would be taken for ours.

    Raises:
        InputError: If it cannot be listened on.
    """
    with socket.socket() as probe:
        # As the server does: connections that were closed just now are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(f"port {port}: {reason}; give another with --port") from error


@contextmanager
def serving(uri: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Serve a store's pages on loopback while the block runs.

    Args:
        uri: A resolved URI of a store that exists.
        port: A free one.

    Yields:
        The server, once it answers.

    Raises:
        ServerFailed: If it ends before it answers, or does not answer in two minutes.
    """
    guard = subprocess.Popen(
        ["/bin/sh", "-c", _GUARD],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    server = None
    try:
        server = _start(uri, port, guard.pid)
        _await(server, port)
        yield server
    finally:
        _end(guard, server)


def _start(uri: str, port: int, group: int) -> subprocess.Popen[bytes]:
    # One worker answers ten times as fast as several, and jobs would take seven processes more.
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    command += ["--host", HOST, "--port", str(port)]
    command += ["--uvicorn-opts", "--log-level warning --timeout-graceful-shutdown 3"]
    # The URI may hold credentials, so it travels in the environment.
    warnings = ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), _HUSHED)))
    environment = {"MLFLOW_BACKEND_STORE_URI": uri, "PYTHONWARNINGS": warnings, **_ENVIRONMENT}
    return subprocess.Popen(
        command,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=_STDERR,  # what it says is no answer of ours
        process_group=group,
    )


def _await(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not _answers(port):
        if server.poll() is not None:
            raise ServerFailed(f"the MLflow server did not start (exit code {server.returncode})")
        if time.monotonic() > deadline:
            raise ServerFailed(f"the MLflow server did not answer in {_START_SECONDS:.0f} s")
        time.sleep(0.1)


def _answers(port: int) -> bool:
    # Not urllib, which would ask a proxy where one is set.
    connection = HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _end(guard: subprocess.Popen[bytes], server: subprocess.Popen[bytes] | None) -> None:
    """Ask the group to end, and kill what has not after the grace, or at a second signal."""
    if guard.stdin is not None:
        guard.stdin.close()
    try:
        if server is not None:
            with suppress(subprocess.TimeoutExpired):
                server.wait(_GRACE_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(guard.pid, signal.SIGKILL)
        for process in (guard, server):
            if process is not None:
                process.wait()
