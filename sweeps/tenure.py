"""Whose work a sweep takes: that of the run which began last, until it ends.

A worker may outlive its driver: on a node that is cut off, or for as long as nodes go on without a
head. What it trains, the run that resumed the sweep trains as well, in other packs perhaps. So
each run puts its own sign up before it reads the ledger, and takes it down at its end; nobody
writes to the sweep who does not find there the sign that he began under.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from sweeps.errors import InputError
from sweeps.storage import Directory

_SIGN: Final = ".run"
_MOST_BYTES: Final = 100


class Superseded(RuntimeError):
    """Nobody waits for this work any more."""


@contextmanager
def tenure(sweep: Directory) -> Iterator[str]:
    """A block that is the only run of a sweep; whoever worked for another is not heard any more.

    What writers that were killed left half-written is deleted, before and after.

    Args:
        sweep: Its directory; whoever else would run it is kept out otherwise.

    Yields:
        The run's own name, for those who work for it.

    Raises:
        InputError: If the sweep's directory cannot be written.
    """
    run = uuid.uuid4().hex
    try:
        sweep.write(_SIGN, run.encode())
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


def check(sweep: Directory, run: str) -> None:
    """Make sure that the work of a run is still wanted.

    Raises:
        Superseded: If the run has ended, or another has begun.
        OSError: If that cannot be told.
    """
    if _sign(sweep) != run:
        raise Superseded(
            f"{sweep.path} does not show the run that this work is for: it has ended, another one "
            "has begun, or this machine does not share the storage"
        )


def _sign(sweep: Directory) -> str | None:
    try:
        return sweep.read(_SIGN, _MOST_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return None


def _tidy(sweep: Directory) -> None:
    for path in sweep.asides():
        with suppress(FileNotFoundError):
            sweep.delete(path)
