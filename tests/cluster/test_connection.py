"""A local Ray keeps to itself, and leaves nothing behind however its owner goes."""

from __future__ import annotations

import json
import os
import signal
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

_GONE_SECONDS = 15.0
# A process of its own per Ray: this one may hold a connection that other tests share.
_OWNER = """
import json, os, sys, psutil
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
        address=connection.address, started=connection.started, cpus=connection.cpus(),
        gpus=connection.gpus(), threads=threads, listening=listening,
        pids=[p.pid for p in children], commands=[" ".join(p.cmdline()) for p in children],
        token=os.environ.get("RAY_AUTH_TOKEN"),
    )), flush=True)
    sys.stdin.readline()
print(json.dumps({{k: v for k, v in os.environ.items() if k.startswith("RAY_AUTH")}}), flush=True)
"""


class Owner:
    """A process that holds a connection."""

    def __init__(self, temporary: Path, address: str | None = None, **environment: str) -> None:
        self.temporary = temporary
        self.process = subprocess.Popen(
            [sys.executable, "-c", _OWNER.format(address=address)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**_foreign_to_ray(), "TMPDIR": str(temporary), **environment},
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the owner did not connect"
        self.told: dict[str, Any] = json.loads(line)

    def end(self) -> dict[str, str]:
        said, _ = self.process.communicate("\n", timeout=60)
        after: dict[str, str] = json.loads(said.splitlines()[-1])
        return after


def _foreign_to_ray() -> dict[str, str]:
    """This process's environment without what a connection of its own has put there."""
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
            wait_for_nothing(made)


def wait_for_nothing(made: Owner) -> None:
    deadline = time.monotonic() + _GONE_SECONDS
    while time.monotonic() < deadline and (alive(made) or list(made.temporary.iterdir())):
        time.sleep(0.1)


def alive(made: Owner) -> list[str]:
    found = []
    for pid in made.told["pids"]:
        try:
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except psutil.NoSuchProcess:
            continue
    return found


def test_a_local_ray_keeps_to_itself_and_goes_without_a_trace() -> None:
    with owner() as made:
        told = made.told
        assert (told["started"], told["cpus"], told["threads"]) == (True, 2, "1")
        assert told["listening"], "Ray listens somewhere"
        assert {ip.removeprefix("::ffff:") for _, ip in told["listening"]} == {"127.0.0.1"}
        servers = ("autoscaler", "dashboard/dashboard.py", "log_monitor.py")
        assert not [c for c in told["commands"] if any(server in c for server in servers)]
        assert made.end() == {}, "what was set for this Ray is taken back"
        wait_for_nothing(made)
        assert alive(made) == []
        assert list(made.temporary.iterdir()) == []


def test_a_killed_owner_leaves_nothing_behind_either() -> None:
    with owner() as made:
        os.kill(made.process.pid, signal.SIGKILL)
        wait_for_nothing(made)
        assert alive(made) == []
        assert list(made.temporary.iterdir()) == []


def test_who_has_the_token_joins_and_leaves_without_ending_it() -> None:
    with owner() as made:
        with owner(made.told["address"], RAY_AUTH_TOKEN=made.told["token"]) as guest:
            assert guest.told["address"] == made.told["address"]
            assert (guest.told["started"], guest.told["cpus"]) == (False, 2)
            assert guest.end() == {"RAY_AUTH_TOKEN": made.told["token"]}
        servers = {Path(command.split()[0]).name for command in alive(made) if command}
        assert {"gcs_server", "raylet"} <= servers
        assert made.end() == {}


def test_nobody_joins_a_local_ray_without_its_token() -> None:
    with owner() as made:
        stranger = subprocess.run(
            [sys.executable, "-c", _STRANGER.format(address=made.told["address"])],
            env={**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert "InvalidAuthToken" in stranger.stdout + stranger.stderr
        assert stranger.returncode != 0


_STRANGER = """
from ray._raylet import GcsClient
print(GcsClient("{address}", cluster_id=None).get_all_node_info(timeout=5))
"""


def test_importing_cluster_does_not_load_ray() -> None:
    code = "import sys, cluster; print('ray' in sys.modules)"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert asked.stdout.strip() == "False"


# A reaction to SIGTERM of its own: "told" is said wherever it is sent.
_TERMINATED = """
import os, signal, sys, threading, time
import cluster

class Told(BaseException): pass

def tell(number, frame):
    raise Told

def caught():
    line = next(l for l in open("/proc/self/status") if l.startswith("SigCgt"))
    return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)

signal.signal(signal.SIGTERM, tell)
{code}
"""
_AFTERWARDS = """
with cluster.connect(cpus=1):
    assert caught()
assert caught()
try:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5)
except Told:
    print("told")
"""
# Sent where Ray would just have installed its own handler, in the middle of its start.
_MEANWHILE = """
from ray._private import node
begin = node.Node.start_head_processes

def terminated(self):
    os.kill(os.getpid(), signal.SIGTERM)
    begin(self)

node.Node.start_head_processes = terminated
try:
    cluster.connect(cpus=1)
except Told:
    print("told")
assert caught()
"""


@pytest.mark.parametrize("code", [_AFTERWARDS, _MEANWHILE], ids=["afterwards", "meanwhile"])
def test_ray_does_not_take_sigterm_from_who_uses_it(code: str) -> None:
    asked = subprocess.run(
        [sys.executable, "-c", _TERMINATED.format(code=code)],
        env={**_foreign_to_ray(), "TMPDIR": "/tmp"}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert (asked.stdout, asked.returncode) == ("told\n", 0), asked.stderr


_READY = """
import cluster
with cluster.connect(cpus=1, modules=["colorsys", "there_is_none"]):
    import ray

    @ray.remote
    class Actor:
        def loaded(self):
            import sys
            return "colorsys" in sys.modules

    print(ray.get(Actor.remote().loaded.remote()))
"""


def test_processes_of_a_local_ray_load_modules_before_they_are_asked() -> None:
    """One that they lack is for whoever needs it to miss."""
    asked = subprocess.run(
        [sys.executable, "-c", _READY],
        env={**_foreign_to_ray(), "TMPDIR": "/tmp"}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert (asked.stdout, asked.returncode) == ("True\n", 0), asked.stderr
