"""Ends what a local Ray leaves behind, however its owner went.

Run as `python -m cluster.reaper DIRECTORY` with a pipe as standard input. The pipe closes when the
owner closes it or dies. Ray's own processes follow a dead owner, but its agents take about a minute
and its files stay for ever; this takes both away at once.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

_ROUNDS = 50
_ROUND_SECONDS = 0.1
_TITLE = b"ray::"


def main() -> None:
    """Wait for the owner, then end what it left running, and remove its files."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.read()
    directory = sys.argv[1]
    for _ in range(_ROUNDS):
        left = _left(directory)
        for pid in left:
            _kill(pid)
        if not left:
            break
        time.sleep(_ROUND_SECONDS)
    shutil.rmtree(directory, ignore_errors=True)


def _left(directory: str) -> list[int]:
    """Ray's processes whose files are below a directory, as Linux shows it in /proc.

    Ray's servers need little help, as the kernel ends them with their owner.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if _belongs(process, directory):
                found.append(int(process.name))
        except OSError:
            continue  # it ended, or belongs to someone else
    return [pid for pid in found if pid != os.getpid()]


def _belongs(process: Path, directory: str) -> bool:
    """Told by the command line, or for those that put a title in its place, by open files.

    Drivers have files open there too, and are none of our business.
    """
    command = (process / "cmdline").read_bytes()
    if command.startswith(_TITLE):
        links = (process / "fd").iterdir()
        return any(os.readlink(link).startswith(f"{directory}/") for link in links)
    return directory.encode() in command


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    main()
