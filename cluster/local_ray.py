"""Directory of a local Ray, and the clean-up of what Ray leaves behind.

Runs as `python -m cluster.local_ray DIRECTORY` with a pipe as standard input, which closes when the
owner closes it or dies. Ray's own servers end with their owner, but its agents take about a minute
and its files stay; this process removes both at once. It must not load Ray.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_CLEANUP_SECONDS = 15.0
_ROUNDS = 50
_ROUND_SECONDS = 0.1
_WORKER_TITLE = b"ray::"
# Unix sockets lie below the directory, and their paths must stay under 108 characters.
_MAX_PARENT = 22


@contextmanager
def ray_directory() -> Iterator[str]:
    """Yields a new directory for a Ray; it and Ray's processes go at the end, or at our death.

    Ray lets every user write to its directory, so that lies in one which only we can enter.
    """
    parent = tempfile.gettempdir()
    parent = parent if len(parent) <= _MAX_PARENT else "/tmp"
    directory = tempfile.mkdtemp(prefix="local-ray-", dir=parent)
    cleaner = subprocess.Popen(
        [sys.executable, "-m", "cluster.local_ray", directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    try:
        yield f"{directory}/ray"
    finally:
        if cleaner.stdin is not None:
            cleaner.stdin.close()
        with suppress(subprocess.TimeoutExpired):  # a slow disk; it continues by itself
            cleaner.wait(_CLEANUP_SECONDS)


def main() -> None:
    """Waits for the owner's end, then ends its Ray's processes and removes the directory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.read()
    directory = sys.argv[1]
    for _ in range(_ROUNDS):
        pids = _processes(directory)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            break
        time.sleep(_ROUND_SECONDS)
    shutil.rmtree(directory, ignore_errors=True)


def _processes(directory: str) -> list[int]:
    """Ray's processes whose files are below a directory, from Linux's /proc."""
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to another user
            command = (process / "cmdline").read_bytes()
            is_used = directory.encode() in command
            # Workers replace their command line by a title, so their open files decide. Drivers
            # have files open there too, and are not part of a Ray.
            if command.startswith(_WORKER_TITLE):
                links = (process / "fd").iterdir()
                is_used = any(os.readlink(link).startswith(f"{directory}/") for link in links)
            if is_used:
                pids.append(int(process.name))
    return [pid for pid in pids if pid != os.getpid()]


if __name__ == "__main__":
    main()
