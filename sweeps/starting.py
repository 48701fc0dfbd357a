"""Before a sweep starts: its name, that nobody else runs it, that it is the sweep it says it is."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

from sweeps.errors import InputError
from sweeps.ledger import Ledger
from sweeps.manifest import Manifest, describe, differences, read_manifest
from sweeps.planning import Plan
from sweeps.storage import directory

_LOCK = ".lock"


def new_name(storage: str, study: str) -> str:
    """A name for a new sweep of a study: the study's, with the local time, not taken yet.

    Raises:
        InputError: If the storage cannot be looked into.
    """
    try:
        taken = set(directory(storage).directories())
    except OSError as error:
        raise InputError(f"storage {storage} cannot be read: {error}") from error
    base = f"{study}-{datetime.now():%Y%m%d-%H%M%S}"
    names = (base if i == 1 else f"{base}-{i}" for i in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)


def manifest_of(ledger: Ledger, plan: Plan, *, command: str, tracking_uri: str) -> Manifest:
    """The manifest of a sweep: as written when it was started, or a new one.

    Raises:
        InputError: If a sweep of that name was started with another plan.
    """
    if not ledger.has_spec():
        return describe(plan, ledger.sweep, command=command, tracking_uri=tracking_uri)
    manifest = read_manifest(ledger)
    if reasons := differences(manifest, plan):
        raise InputError(
            f"the name {ledger.sweep!r} is taken by another sweep in {ledger.directory.path}: "
            f"{'; '.join(reasons)}. Choose another name, or leave --name out"
        )
    return manifest


@contextmanager
def locked(ledger: Ledger) -> Iterator[None]:
    """Be the only one on this machine who runs a sweep.

    The kernel lets go of the lock when its holder dies. Only local and shared file systems have
    locks; elsewhere two drivers would train some points twice, and each would be read once.

    Raises:
        InputError: If someone runs it already, or its directory cannot be locked.
    """
    place = ledger.directory.local
    if place is None:
        yield
        return
    descriptor = _lock(place, ledger.sweep)
    try:
        yield
    finally:
        os.close(descriptor)


def _lock(place: Path, sweep: str) -> int:
    with ExitStack() as stack:
        try:
            place.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(place / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"the sweep {sweep!r} is being run by another process; wait for it or stop it"
            ) from error
        except OSError as error:
            raise InputError(
                f"{place} must be a directory on a file system with locks (flock), to be written "
                f"to; got: {error}"
            ) from error
        stack.pop_all()
    return descriptor
