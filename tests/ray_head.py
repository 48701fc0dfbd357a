"""Head of a real Ray cluster with a job server, on loopback and free ports, with a token."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError

_START_SECONDS = 300.0
_PORTS = (
    "port",
    "dashboard-port",
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "runtime-env-agent-port",
    "metrics-export-port",
    "node-manager-port",
    "object-manager-port",
)


@dataclass(frozen=True)
class Head:
    """A running head.

    Attributes:
        address: Address of its job server.
        gcs: `HOST:PORT` for drivers and other nodes.
        token: Token that it requires.
        folder: Directory of its files.
    """

    address: str
    gcs: str
    token: str
    folder: Path


@contextmanager
def ray_head(
    cpus: int = 2, scaling: Mapping[str, Any] | None = None, **environment: str
) -> Iterator[Head]:
    """Starts a head for the block; removes its processes and files afterwards.

    Args:
        cpus: CPUs for tasks.
        scaling: Settings of an autoscaler, without the head's address; None for no autoscaler.
        environment: Variables to add to those of this process.

    Raises:
        TimeoutError: If its job server does not answer in three minutes.
    """
    folder = Path(tempfile.mkdtemp(prefix="rh-", dir="/tmp"))  # short, for Unix sockets
    token, ports = secrets.token_hex(32), dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
        *("--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1", "--disable-usage-stats"),
        *(f"--num-cpus={cpus}", f"--temp-dir={folder}", "--object-store-memory=100000000"),
        *("--min-worker-port=0", "--max-worker-port=0"),
        *(f"--{name}={port}" for name, port in ports.items()),
    ]
    if scaling is not None:
        provider = {**scaling["provider"], "gcs_address": f"127.0.0.1:{ports['port']}"}
        (folder / "scaling.json").write_text(json.dumps({**scaling, "provider": provider}))
        command.append(f"--autoscaling-config={folder / 'scaling.json'}")
    with (folder.with_suffix(".log")).open("wb") as log:
        process = subprocess.Popen(
            command, env={**_environment(token), **environment}, cwd="/",
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True, preexec_fn=_in_background,
        )  # fmt: skip
    head = Head(
        f"http://127.0.0.1:{ports['dashboard-port']}", f"127.0.0.1:{ports['port']}", token, folder
    )
    try:
        _wait_for_answer(head, process, folder.with_suffix(".log"))
        yield head
    finally:
        process.terminate()
        process.wait()
        subprocess.run(
            [sys.executable, "-m", "cluster.local_ray", str(folder)],
            stdin=subprocess.DEVNULL, check=True,
        )  # fmt: skip
        folder.with_suffix(".log").unlink()


def _in_background() -> None:
    """Ignores SIGINT, as a process that a script starts with `&`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _environment(token: str) -> dict[str, str]:
    """Variables of this process, without those about another Ray."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_AUTH", "RAY_ADDRESS"))}
    # Ray would kill workers because of the memory that other processes use.
    unwatched = {"RAY_memory_monitor_refresh_ms": "0"}
    return {**kept, **unwatched, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in taken:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in taken]


def _wait_for_answer(head: Head, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise TimeoutError(f"the head ended: {log.read_text(errors='replace')[-2000:]}")
        request = urllib.request.Request(
            f"{head.address}/api/jobs/", headers={"Authorization": f"Bearer {head.token}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=60):
                return
        except (URLError, OSError):
            time.sleep(0.5)
    raise TimeoutError(f"no job server answers at {head.address}: {log.read_text()[-2000:]}")
