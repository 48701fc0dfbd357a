"""MLflow's server as a child process: for the pages of one user, or with accounts for a team."""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tracking.client import check_database
from tracking.errors import TrackingError

ADMIN = "admin"
PASSWORD_VARIABLE = "MLFLOW_AUTH_ADMIN_PASSWORD"

_START_SECONDS = 120.0
_STOP_SECONDS = 6.0
# Each of the server's 40 threads may hold one connection to the database and wait for a second one.
# MLflow's default of 15 connections lets all threads wait; 45 do not.
SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_SQLALCHEMYSTORE_MAX_OVERFLOW": "40",
    "PYTHONWARNINGS": "ignore:starlette.middleware.wsgi is deprecated",
}
# Variables for clients, or that would change which requests are allowed.
_NOT_INHERITED = ("MLFLOW_AUTH_", "MLFLOW_SERVER_", "MLFLOW_TRACKING_", "MLFLOW_ENABLE_WORKSPACES")
_LOOPBACK = ("localhost", "127.0.0.1", "[[]::1]")  # MLflow's patterns: "[" begins a set
# Leader of the server's process group; ends the group when this process dies or closes the pipe.
_GUARD = "trap '' INT TERM HUP; cat; kill -TERM 0; sleep 5; kill -KILL 0"
_ACCOUNT_SETTINGS = """[mlflow]
default_permission = {permission}
database_uri = {database}
admin_username = admin
admin_password = {password}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
auth_cache_ttl_seconds = 60
"""


class ServerStoppedError(TrackingError):
    """MLflow's server ended by itself, or did not start; it has printed why."""


class Server(NamedTuple):
    """A server that answers, at `uri` for clients on this machine."""

    uri: str
    process: subprocess.Popen[bytes]

    def wait(self) -> None:
        """Waits until the server ends by itself, and raises `ServerStoppedError`."""
        code = self.process.wait()
        raise ServerStoppedError(f"the MLflow server ended by itself (exit code {code})")


@contextmanager
def mlflow_server(
    store: str,
    host: str = "127.0.0.1",
    port: int = 5000,
    tls: tuple[Path, Path] | None = None,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Serves a store while the block runs; the server ends with this process, however that ends.

    Args:
        store: URI of the store; it may hold a password.
        host: Address of this machine to listen on.
        port: Free port.
        tls: Files of the certificate and of its key; None for plain HTTP.
        options: Further options of `mlflow server`, which every user of this machine can read.
        environment: Further variables of the server; secrets belong here.

    Raises:
        TrackingError: If the host or port cannot be listened on.
        ServerStoppedError: If the server ends before it answers, or does not answer in two minutes.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
    except OSError as error:
        place = f"cannot listen on {host}, port {port}: {error.strerror}"
        raise TrackingError(place, "give another --port") from error
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_INHERITED)}
    variables = {**inherited, **SETTINGS, "MLFLOW_BACKEND_STORE_URI": store, **(environment or {})}
    files = [] if tls is None else ["--ssl-certfile", str(tls[0]), "--ssl-keyfile", str(tls[1])]
    uvicorn = shlex.join(["--log-level", "warning", "--timeout-graceful-shutdown", "3", *files])
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", host]
    command += ["--port", str(port), "--uvicorn-opts", uvicorn, *options]
    own = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    scheme = "http" if tls is None else "https"
    with _child(command, variables) as process:
        _wait_until_listening(process, own, port)
        yield Server(f"{scheme}://{f'[{own}]' if ':' in own else own}:{port}", process)


@contextmanager
def team_server(
    folder: Path,
    database: str | None = None,
    artifacts: str | None = None,
    host: str = "127.0.0.1",
    port: int = 5000,
    tls: tuple[Path, Path] | None = None,
    allowed_hosts: Sequence[str] = (),
    permission: str = "EDIT",
) -> Iterator[Server]:
    """Serves a team's runs like `mlflow_server`, but each request needs one of MLflow's accounts.

    The arguments that are not listed are those of `mlflow_server`.

    The first account is `admin`, with the password of the variable MLFLOW_AUTH_ADMIN_PASSWORD or
    else of `<folder>/admin-password`, created at the first start.

    Args:
        folder: Directory of the password, and of the default database and artifacts.
        database: SQLAlchemy URI; SQLite in the folder by default.
        artifacts: Directory or URI; `<folder>/artifacts` by default.
        allowed_hosts: Names by which clients call the server, required beyond loopback: without
            them any web page could reach it through a reader's browser.
        permission: MLflow's permission of an account for the experiments of others.

    Raises:
        TrackingError: If the database, host or port cannot be used, or the password is readable.
        ServerStoppedError: If MLflow does not start.
    """
    if not allowed_hosts and not host.startswith("127.") and host not in ("localhost", "::1"):
        raise TrackingError(f"{host} is reachable by others", "give --allowed-hosts NAME[,NAME...]")
    if database is not None:
        database = database.replace("postgresql://", "postgresql+psycopg2://", 1)  # as installed
        check_database(database)
    folder = folder.expanduser().absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = [pattern for name in allowed_hosts for pattern in (name, f"{name}:*")]
    hosts = [*names, *_LOOPBACK, *(f"{name}:*" for name in _LOOPBACK)]
    options = ["--app-name", "basic-auth", "--allowed-hosts", ",".join(hosts), "--serve-artifacts"]
    options += ["--artifacts-destination", artifacts or str(folder / "artifacts")]
    # MLflow 3.6 compares origins as they are, so the server's port is named too.
    origin_hosts = [*names, *(f"{name}:{port}" for name in allowed_hosts)]
    origins = [f"{scheme}://{name}" for name in origin_hosts for scheme in ("http", "https")]
    options += ["--cors-allowed-origins", ",".join(origins)] if origins else []
    environment = {
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_urlsafe(32),
        "MLFLOW_AUTH_CONFIG_PATH": str(_write_account_settings(folder, database, permission)),
    }
    store = database or f"sqlite:///{folder}/mlflow.db"
    with mlflow_server(store, host, port, tls, options, environment) as server:
        yield server


def _write_account_settings(folder: Path, database: str | None, permission: str) -> Path:
    """Writes the settings of MLflow's accounts, which hold a password; returns their file."""
    password, file = os.environ.get(PASSWORD_VARIABLE), folder / "admin-password"
    if not password and not file.exists():
        file.touch(0o600, exist_ok=False)
        file.write_text(secrets.token_urlsafe(32))
    if not password and file.stat().st_mode & 0o077:
        raise TrackingError(f"other users can read {file}", f"chmod 600 {file} and change it")
    values = {
        "permission": permission,
        "database": database or f"sqlite:///{folder}/accounts.db",
        "password": password or file.read_text().strip(),
    }
    text = _ACCOUNT_SETTINGS.format(**{k: v.replace("%", "%%") for k, v in values.items()})
    settings = folder / "accounts.ini"
    settings.unlink(missing_ok=True)
    settings.touch(0o600, exist_ok=False)
    settings.write_text(text)
    return settings


def _wait_until_listening(process: subprocess.Popen[bytes], host: str, port: int) -> None:
    """Waits for MLflow to open its port, which it does once it can answer."""
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError):
            return socket.create_connection((host, port), timeout=10).close()
        time.sleep(0.1)
    state = "did not answer" if process.returncode is None else f"ended ({process.returncode})"
    raise ServerStoppedError(f"the MLflow server {state} while it started")


@contextmanager
def _child(
    command: Sequence[str], variables: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with its own children at the end of the block, or of this process."""
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    shell = ["/bin/sh", "-c", _GUARD]
    guard = subprocess.Popen(shell, stdin=pipe, stdout=null, stderr=null, process_group=0)
    process = subprocess.Popen(
        command, env=variables, stdin=null, stdout=2, process_group=guard.pid, umask=0o077
    )
    try:
        yield process
    finally:
        try:
            os.killpg(guard.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
        finally:
            os.killpg(guard.pid, signal.SIGKILL)
            process.wait()
            guard.communicate()
