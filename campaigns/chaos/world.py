"""Linux namespaces for all that a chaos run starts: processes, network, files.

When their first process ends, the kernel ends all others. Nothing inside reaches the machine, and
the machine reaches nothing inside.
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


def missing_support() -> str | None:
    """Returns why faults cannot be injected on this machine; None if they can."""
    for tool in ("unshare", "nsenter", "ip", "mount"):
        if shutil.which(tool) is None:
            return f"no command {tool!r}"
    script = "mount -t tmpfs tmpfs /dev/shm && ip link add c0 type bridge && unshare --net true"
    tried = subprocess.run(
        [*_unshare(), "sh", "-c", f"{script}; exit $?"], capture_output=True, text=True, check=False
    )
    return None if tried.returncode == 0 else f"no namespaces: {tried.stderr.strip()}"


def run_inside(module: str, arguments: Sequence[str]) -> int:
    """Runs a module of this repository in namespaces of its own.

    Args:
        module: Dotted name.
        arguments: Command line of the module.

    Returns:
        Exit code of the module.
    """
    # Short, as Ray's Unix sockets live below it.
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp") as folder:
        inner = [sys.executable, "-m", module, *arguments]
        # The first process must reap orphans, which a shell does.
        command = [*_unshare(), "sh", "-c", '"$@"; exit $?', "sh", *inner]
        environment = {**os.environ, FOLDER: folder}
        return subprocess.run(command, cwd=_ROOT, env=environment, check=False).returncode


def enter_namespace() -> Path:
    """Prepares this process's namespaces: files in memory, a bridge, a default route.

    Returns:
        Empty directory with a short path.
    """
    folder = Path(os.environ[FOLDER])
    call("mount", "-t", "tmpfs", "-o", "size=4g", "tmpfs", str(folder))
    call(*_PRIVATE_MEMORY)
    call("ip", "link", "set", "lo", "up")
    call("ip", "link", "add", BRIDGE, "type", "bridge")
    call("ip", "address", "add", f"{HEAD}/24", "dev", BRIDGE)
    call("ip", "link", "set", BRIDGE, "up")
    # Ray derives its own address from the default route.
    call("ip", "route", "add", "default", "dev", BRIDGE)
    return folder


def call(*command: str) -> None:
    """Runs a command.

    Raises:
        RuntimeError: If the command fails; has its error output.
    """
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{' '.join(command)}: {ran.stderr.strip()}")


def _unshare() -> list[str]:
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    return ["unshare", *user, *_APART]
