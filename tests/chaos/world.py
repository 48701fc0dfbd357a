"""A world of its own for everything that a chaos run starts: processes, network, files.

It is made of Linux namespaces: when its first process ends the kernel ends all others, and nothing
in it can be reached from, or reach, the machine that it runs on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

FOLDER = "PRIVNETS_CHAOS_FOLDER"
BRIDGE = "chaos"
HEAD = "10.77.0.1"

_ROOT = Path(__file__).resolve().parents[2]
_APART = ("--fork", "--kill-child", "--pid", "--mount-proc", "--net", "--mount")
_PRIVATE_MEMORY = ("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")


def missing() -> str | None:
    """Reason why the faults cannot be injected on this machine; None where they can."""
    for tool in ("unshare", "nsenter", "ip", "mount"):
        if shutil.which(tool) is None:
            return f"no command {tool!r}"
    script = "mount -t tmpfs tmpfs /dev/shm && ip link add c0 type bridge && unshare --net true"
    tried = subprocess.run(
        [*_unshare(), "sh", "-c", f"{script}; exit $?"], capture_output=True, text=True, check=False
    )
    return None if tried.returncode == 0 else f"no namespaces: {tried.stderr.strip()}"


def run_inside(module: str, arguments: Sequence[str]) -> int:
    """Run a module of this repository in a world of its own.

    Args:
        module: As `python -m` takes it.
        arguments: Its command line.

    Returns:
        Its exit code.
    """
    # Short, as Ray's Unix sockets live below it.
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp") as folder:
        inner = [sys.executable, "-m", module, *arguments]
        # A shell as the first process takes in the orphans of all others.
        command = [*_unshare(), "sh", "-c", '"$@"; exit $?', "sh", *inner]
        environment = {**os.environ, FOLDER: folder}
        return subprocess.run(command, cwd=_ROOT, env=environment, check=False).returncode


def settle() -> Path:
    """Prepare the world that this process is in: files in memory, a bridge, a way out of it.

    Returns:
        A short, empty folder of this world's own.
    """
    folder = Path(os.environ[FOLDER])
    call("mount", "-t", "tmpfs", "-o", "size=4g", "tmpfs", str(folder))
    call(*_PRIVATE_MEMORY)
    call("ip", "link", "set", "lo", "up")
    call("ip", "link", "add", BRIDGE, "type", "bridge")
    call("ip", "address", "add", f"{HEAD}/24", "dev", BRIDGE)
    call("ip", "link", "set", BRIDGE, "up")
    # Ray learns its own address from the way that a packet to the outside would take.
    call("ip", "route", "add", "default", "dev", BRIDGE)
    return folder


def call(*command: str) -> None:
    """Run a command.

    Raises:
        RuntimeError: If it fails, with what it said.
    """
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{' '.join(command)}: {ran.stderr.strip()}")


def _unshare() -> list[str]:
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    return ["unshare", *user, *_APART]
