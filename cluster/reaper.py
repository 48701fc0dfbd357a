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

MARK = "SWEEPS_RAY_DIRECTORY"
_GRACE_SECONDS = 1.0
_ROUNDS = 20


def main() -> None:
    """Wait for the owner, then end every process that carries its mark, and remove its files."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.read()
    directory = sys.argv[1]
    for _ in range(_ROUNDS):
        marked = _marked(f"{MARK}={directory}")
        for pid in marked:
            _kill(pid)
        if not marked:
            break
        time.sleep(_GRACE_SECONDS / 10)
    shutil.rmtree(directory, ignore_errors=True)


def _marked(mark: str) -> list[int]:
    """Processes of this user with `mark` in their environment, as Linux shows it in /proc."""
    found = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = place.read_bytes()
        except OSError:
            continue  # it ended, or belongs to someone else
        if mark.encode() in environment.split(b"\0"):
            found.append(int(place.parent.name))
    return [pid for pid in found if pid != os.getpid()]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    main()
