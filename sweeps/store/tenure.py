"""Whose work a sweep takes: that of the run which began last, until it ends.

A worker may outlive its driver: on a node that is cut off, or for as long as nodes go on without a
head. What it trains, the run that resumed the sweep trains as well, in other packs perhaps. So
each run puts its own sign up before it reads the ledger, and takes it down at its end; nobody
writes to the sweep who does not find there the sign that he began under.

A file system that machines share over a network may show a directory as it was up to a minute ago.
Whoever writes to a directory on NFS sees it as it is. So a run writes to those that it is about to
read, and a worker who does not find his sign writes and looks again, for as long as machines keep
what they have seen. What remains: a worker may see his sign for so long after another run began.
What he writes then is whole, is of the same sweep, and takes the place of no pack that is there; at
the worst something is trained twice, and read once.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

from sweeps.errors import InputError
from sweeps.store.filesystem import Directory
from tracking.mounts import is_shared

_SIGN: Final = ".run"
_LOOK: Final = ".look"
_MOST_BYTES: Final = 100
# Of which it matters that nothing in them is overlooked.
_READ: Final = ("ledger", "checkpoints")
# NFS keeps what it knows of a directory for a minute at the most, unless it was mounted otherwise.
_STALE_SECONDS: Final = 65.0
_LOOK_SECONDS: Final = 1.0
# For which nobody writes at a file.
_OLD_SECONDS: Final = 3600.0


class RunSupersededError(RuntimeError):
    """Nobody waits for this work any more."""


@contextmanager
def tenure(sweep: Directory) -> Iterator[str]:
    """A block that is the only run of a sweep; whoever worked for another is not heard any more.

    What writers of runs that have ended left half-written is deleted, before and after. Who is of
    no run, as `sweeps sync`, may still be writing: his is deleted when it is old.

    Args:
        sweep: Its directory; whoever else would run it is kept out otherwise.

    Yields:
        The run's own name, for those who work for it.

    Raises:
        InputError: If the sweep's directory cannot be written.
    """
    run = uuid.uuid4().hex
    try:
        replace(sweep, run_id=run).write(_SIGN, run.encode())
        for name in _READ:
            freshen(sweep / name)
        _tidy(sweep)
    except OSError as error:
        raise InputError(f"{sweep.path} must be writable; got: {error}") from error
    try:
        yield run
    finally:
        with suppress(OSError):  # the next run does it, then
            if _sign(sweep) == run:
                sweep.delete(_SIGN)
                _tidy(sweep)


def check(sweep: Directory, run: str, patience: float | None = None) -> None:
    """Make sure that the work of a run is still wanted.

    Args:
        sweep: The sweep's directory.
        run: The run.
        patience: Seconds for which to look again where its sign is not there; by default as long as
            a machine may not see what others wrote.

    Raises:
        RunSupersededError: If the run has ended, or another has begun.
        OSError: If that cannot be told.
    """
    if _sign(sweep) == run:
        return
    if patience is None:
        patience = _STALE_SECONDS if _is_shared(sweep) else 0.0
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        freshen(sweep)
        if _sign(sweep) == run:
            return
    raise RunSupersededError(
        f"{sweep.path} does not show the run that this work is for: it has ended, another one "
        "has begun, or this machine does not share the storage"
    )


def freshen(place: Directory) -> None:
    """Have this machine see a directory as it is: its own change tells it of those of others.

    One that is not there is not made: somebody may have deleted the sweep.

    Args:
        place: The directory; nothing is done to one that machines do not share.

    Raises:
        OSError: If it cannot be written to.
    """
    if place.local_path is None or not is_shared(place.local_path):
        return
    look = place.local_path / _LOOK
    with suppress(FileNotFoundError):  # another one looks too, and deletes it
        os.close(os.open(look, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
        os.unlink(look)


def _is_shared(sweep: Directory) -> bool:
    return sweep.local_path is not None and is_shared(sweep.local_path)


def _sign(sweep: Directory) -> str | None:
    try:
        return sweep.read(_SIGN, _MOST_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return None


def _tidy(sweep: Directory) -> None:
    for path, of_run in sweep.temporary_files().items():
        if of_run or _is_old(sweep, path):
            with suppress(FileNotFoundError):
                sweep.delete(path)


def _is_old(sweep: Directory, path: str) -> bool:
    """Whether a file was written long before the run began, both by the clock of the storage."""
    written, began = sweep.modified_at(path), sweep.modified_at(_SIGN)
    return written is not None and began is not None and began - written > _OLD_SECONDS
