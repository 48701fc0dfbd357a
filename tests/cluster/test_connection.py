"""A local Ray listens on loopback alone, and leaves nothing behind however its owner ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.ray

_GONE_SECONDS = 120.0
_HANDLER = """
import os, signal, sys, time

class Terminated(BaseException): pass

def handle(number, frame):
    raise Terminated

def is_handled():
    line = next(l for l in open("/proc/self/status") if l.startswith("SigCgt"))
    return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)

signal.signal(signal.SIGTERM, handle)
"""
# Each Ray has a process of its own; this one may hold a connection that other tests share.
_OWNER = (
    _HANDLER
    + """
import json, psutil
import cluster
assert "ray" not in sys.modules
with cluster.connect({address!r}, cpus=2) as connection:
    import ray

    @ray.remote
    def look():
        return os.getpid(), os.environ.get("OMP_NUM_THREADS")

    pid, threads = ray.get(look.remote())
    children = psutil.Process().children(recursive=True)
    listening = [
        (p.name(), c.laddr.ip)
        for p in children
        for c in p.net_connections(kind="inet")
        if c.status == psutil.CONN_LISTEN
    ]
    print(json.dumps(dict(
        address=connection.address, started=connection.started, threads=threads,
        cpus=sum(machine.cpus for machine in connection.machines()), listening=listening,
        pids=[p.pid for p in children], commands=[" ".join(p.cmdline()) for p in children],
        token=os.environ.get("RAY_AUTH_TOKEN"), handled=is_handled(),
    )), flush=True)
    sys.stdin.readline()
assert is_handled()
try:
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(1000):
        time.sleep(0.1)
    raise SystemExit("SIGTERM was not handled")
except Terminated:
    pass
print(json.dumps({{k: v for k, v in os.environ.items() if k.startswith("RAY_AUTH")}}), flush=True)
"""
)


class Owner:
    """A process that holds a connection."""

    def __init__(self, temporary: Path, address: str | None = None, **environment: str) -> None:
        self.temporary = temporary
        self.process = subprocess.Popen(
            [sys.executable, "-c", _OWNER.format(address=address)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**_environment(), "TMPDIR": str(temporary), **environment},
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the owner did not connect"
        self.report: dict[str, Any] = json.loads(line)

    def end(self) -> dict[str, str]:
        said, _ = self.process.communicate("\n", timeout=240)
        after: dict[str, str] = json.loads(said.splitlines()[-1])
        return after


def _environment() -> dict[str, str]:
    """This process's environment without the variables of its own connection."""
    return {k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH")}


@contextmanager
def owner(address: str | None = None, **environment: str) -> Iterator[Owner]:
    # Short: Ray's Unix sockets live below it.
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as folder:
        made = Owner(Path(folder), address, **environment)
        try:
            yield made
        finally:
            made.process.kill()
            made.process.communicate()
            wait_until_gone(made)


def wait_until_gone(made: Owner) -> None:
    deadline = time.monotonic() + _GONE_SECONDS
    while time.monotonic() < deadline and (alive(made) or list(made.temporary.iterdir())):
        time.sleep(0.1)


def alive(made: Owner) -> list[str]:
    commands = []
    for pid in made.report["pids"]:
        try:
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                commands.append(" ".join(process.cmdline()))
        except psutil.NoSuchProcess:
            continue
    return commands


def test_a_local_ray_listens_on_loopback_for_its_token_and_leaves_nothing_behind() -> None:
    """A process that joins it leaves without ending it; Ray replaces no handler of SIGTERM."""
    with owner() as made:
        report = made.report
        assert (report["started"], report["cpus"], report["threads"]) == (True, 2, "1")
        assert report["handled"]
        (directory,) = made.temporary.iterdir()
        assert directory.stat().st_mode & 0o077 == 0, "others can enter Ray's directory"
        assert report["listening"], "Ray listens somewhere"
        assert {ip.removeprefix("::ffff:") for _, ip in report["listening"]} == {"127.0.0.1"}
        stranger = subprocess.run(
            [sys.executable, "-c", _STRANGER.format(address=report["address"])],
            env={**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert "InvalidAuthToken" in stranger.stdout + stranger.stderr
        assert stranger.returncode != 0
        with owner(report["address"], RAY_AUTH_TOKEN=report["token"]) as guest:
            assert guest.report["address"] == report["address"]
            assert (guest.report["started"], guest.report["cpus"]) == (False, 2)
            assert guest.end() == {"RAY_AUTH_TOKEN": report["token"]}
        servers = {Path(command.split()[0]).name for command in alive(made) if command}
        assert {"gcs_server", "raylet"} <= servers
        assert made.end() == {}, "variables of this Ray are restored"
        wait_until_gone(made)
        assert alive(made) == []
        assert list(made.temporary.iterdir()) == []


_STRANGER = """
from ray._raylet import GcsClient
print(GcsClient("{address}", cluster_id=None).get_all_node_info(timeout=5))
"""


# SIGTERM comes where Ray would have installed its own handler, in the middle of its start.
_TERMINATED = (
    _HANDLER
    + """
import cluster
from ray._private import node

begin = node.Node.start_head_processes

def terminated(self):
    os.kill(os.getpid(), signal.SIGTERM)
    begin(self)

node.Node.start_head_processes = terminated
try:
    cluster.connect(cpus=1)
except Terminated:
    print("handled")
assert is_handled()
"""
)


@pytest.mark.slow
def test_sigterm_while_ray_starts_reaches_the_handler_of_the_process() -> None:
    asked = subprocess.run(
        [sys.executable, "-c", _TERMINATED],
        env={**_environment(), "TMPDIR": "/tmp"}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert (asked.stdout, asked.returncode) == ("handled\n", 0), asked.stderr


_FIRST_FAILS = """
import os, signal, threading, time
from pathlib import Path
import cluster
from cluster.local_ray import _processes

def kill_raylet():
    while True:
        for directory in Path("/tmp").glob("local-ray-*"):
            for pid in _processes(str(directory)):
                if b"raylet" in Path(f"/proc/{pid}/cmdline").read_bytes() and own(pid):
                    return os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)

def own(pid):
    return f"\\nPPid:\\t{os.getpid()}\\n" in Path(f"/proc/{pid}/status").read_text()

threading.Thread(target=kill_raylet, daemon=True).start()
with cluster.connect(cpus=1) as connection:
    print(len(connection.machines()))
"""


@pytest.mark.slow
def test_a_local_ray_that_fails_to_start_is_started_again() -> None:
    asked = subprocess.run(
        [sys.executable, "-c", _FIRST_FAILS],
        env={**_environment(), "TMPDIR": "/tmp"}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert asked.stdout == "1\n"
    assert "Ray did not start within 30 seconds" in asked.stderr


_GARBAGE = """
import gc, threading
from pathlib import Path
import cluster

def threads():
    for task in Path("/proc/self/task").iterdir():
        try:
            yield (task / "comm").read_text()
        except OSError:  # it has just ended
            pass

def collect_as_ray_ends():
    while "worker.io\\n" in threads():
        pass
    print(gc.isenabled())
    gc.collect()

with cluster.connect(cpus=1):
    import ray
    gc.disable()
    task = ray.remote(lambda: 0).remote()
    ray.get(task)
    cycle = [task]
    cycle.append(cycle)
    del cycle, task
    threading.Thread(target=collect_as_ray_ends).start()
    gc.enable()
print(gc.isenabled())
"""


def test_another_thread_that_collects_garbage_as_ray_ends_does_not_end_the_process() -> None:
    asked = subprocess.run(
        [sys.executable, "-c", _GARBAGE],
        env={**_environment(), "TMPDIR": "/tmp"}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert (asked.stdout, asked.returncode) == ("False\nTrue\n", 0), asked.stderr
