"""Benchmarks that end take along what they started: servers, contestants, and theirs."""

from __future__ import annotations

import ctypes
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NoReturn

import psutil

_PATIENCE = 30.0
"""Seconds that processes have to end by themselves, a sweep with a last checkpoint."""
_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def run(main: Callable[[], None]) -> None:
    """Run a benchmark; on SIGTERM its descendants end, then its blocks, with exit code 143.

    Descendants end first, because a folder cannot be removed while they write to it. PostgreSQL
    is not a descendant and ends with its block.
    """
    signal.signal(signal.SIGTERM, _leave)
    main()


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)
    _adopt_orphans()
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            child.terminate()
    deadline = time.monotonic() + _PATIENCE
    while left := _descendants():
        if time.monotonic() > deadline:
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        time.sleep(0.1)
    raise SystemExit(128 + number)


def _adopt_orphans() -> None:
    """Become the parent of what descendants leave behind, so as to see it; on Linux alone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _descendants() -> list[psutil.Process]:
    """Returns the descendants that have not ended, without waiting for them."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
