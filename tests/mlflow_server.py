"""Servers on free loopback ports, ended with the block that started them: MLflow, or a stand-in."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from urllib.error import URLError

from tracking.server import SETTINGS


@dataclass(frozen=True)
class Server:
    """A running server: its address, and the process that leads its group."""

    uri: str
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """End it and its children at once, as a crash does."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def mlflow_server(
    folder: Path, port: int | None = None, lean: bool = True, store: str | None = None
) -> Iterator[Server]:
    """Serve the store in `folder`, created if need be.

    Args:
        folder: Holds `mlflow.db`, artifacts and the server's log.
        port: The port to listen on; a free one by default.
        lean: One worker and the settings of `sweeps ui`, in place of MLflow's defaults.
        store: Another database's URI.

    Raises:
        TimeoutError: If it does not answer within three minutes.
    """
    chosen = port or free_port()
    command = _command(folder, chosen, lean, store or f"sqlite:///{folder}/mlflow.db")
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=_environment(lean), stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    server = Server(f"http://127.0.0.1:{chosen}", process)
    try:
        _await(server, folder / "server.log")
        yield server
    finally:
        server.kill()


@contextmanager
def answering_server(status: int, body: bytes = b"") -> Iterator[str]:
    """URI of a server that gives one answer to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def free_port() -> int:
    """Returns a loopback port without a listener."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _command(folder: Path, port: int, lean: bool, store: str) -> list[str]:
    # One worker: several stall 40 ms on every request of a kept connection.
    return [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port),
        "--backend-store-uri", store,
        "--artifacts-destination", f"{folder}/artifacts", *(("--workers", "1") if lean else ()),
    ]  # fmt: skip


def _environment(lean: bool) -> dict[str, str]:
    return os.environ | (SETTINGS if lean else {"MLFLOW_DISABLE_TELEMETRY": "true"})


def _await(server: Server, log: Path) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and server.process.poll() is None:
        try:
            with urllib.request.urlopen(f"{server.uri}/health", timeout=60):
                return
        except (URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
    raise TimeoutError(f"the server did not start:\n{log.read_text()[-2000:]}")
