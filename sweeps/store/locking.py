"""That nobody else runs a sweep."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, Field, ValidationError

from sweeps.errors import InputError, make_printable
from sweeps.store.ledger import Ledger
from tracking.mounts import is_shared

_LOCK: Final = ".lock"
_MOST_BYTES: Final = 1000
_PATIENCE_SECONDS: Final = 180.0
_TRY_SECONDS: Final = 1.0
# Differs from machine to machine, and from start to start of one; containers share their machine's.
_KERNEL: Final = Path("/proc/sys/kernel/random/boot_id")


class Holder(BaseModel):
    """Who has a lock, as it wrote into it.

    Attributes:
        kernel: That lets go of the lock when its holder dies; empty where it cannot be told apart.
        host: The name of its machine.
        process: Its number there.
    """

    kernel: Annotated[str, Field(max_length=100)] = ""
    host: Annotated[str, Field(max_length=300)] = "another machine"
    process: int = 0


@contextmanager
def locked(
    ledger: Ledger,
    breakable: Callable[[], AbstractContextManager[None]] = nullcontext,
    patience: float | None = None,
) -> Iterator[None]:
    """Be the only one who runs a sweep.

    The kernel lets go of the lock when its holder dies. Where the holder was on another machine it
    is the file server that does, once it has missed that machine for long enough: so there the lock
    is waited for. Only local and shared file systems have locks; elsewhere two drivers would train
    some points twice, and each would be read once.

    Args:
        ledger: The sweep's.
        breakable: Gives a block that signals break off, to wait in.
        patience: Seconds to wait for a lock from another machine; by default more than file servers
            take, and none where the file system is this machine's own.

    Raises:
        InputError: If someone runs it already, or its directory cannot be locked.
    """
    place = ledger.directory.local_path
    if place is None:
        yield
        return
    if patience is None:
        patience = _PATIENCE_SECONDS if is_shared(place) else 0.0
    with _told(place):
        place.mkdir(parents=True, exist_ok=True)
    lock = _taken(place, ledger, patience, breakable)
    try:
        yield
    finally:
        os.close(lock)


def _taken(
    place: Path,
    ledger: Ledger,
    patience: float,
    breakable: Callable[[], AbstractContextManager[None]],
) -> int:
    """The lock, which closing lets go of; who has it is written into it."""
    began, told = time.monotonic(), False
    while (lock := _tried(place)) is None:
        holder = _holder(ledger)
        if holder.kernel and holder.kernel == _kernel():
            patience = 0.0
        if time.monotonic() - began >= patience:
            raise InputError(_refusal(ledger, holder, patience))
        if not told:
            told = True
            _tell(ledger, holder, patience)
        with breakable():
            time.sleep(_TRY_SECONDS)
    with _told(place), _closed_on_failure(lock):
        own = Holder(kernel=_kernel(), host=socket.gethostname()[:300], process=os.getpid())
        os.ftruncate(lock, 0)
        os.pwrite(lock, own.model_dump_json().encode(), 0)
        os.fsync(lock)
    return lock


def _tried(place: Path) -> int | None:
    """The lock, as soon as it is tried; None if somebody has it.

    The file is opened anew each time, as somebody may delete it, and another one is locked then.
    """
    with _told(place):
        while True:
            # What it leads to, or is beside, is not to be written to.
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(place / _LOCK, flags, 0o644)
            with _closed_on_failure(lock):
                found = os.fstat(lock)
                if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                    raise OSError(errno.EINVAL, "not a plain file of one name", str(place / _LOCK))
                free = _free(lock)
                if free and _is_named(lock, place):
                    return lock
            os.close(lock)
            if not free:
                return None


@contextmanager
def _closed_on_failure(lock: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        os.close(lock)
        raise


def _free(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_named(lock: int, place: Path) -> bool:
    """Whether it is the file of that name still, which others would lock."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(place / _LOCK, follow_symlinks=False))
    except FileNotFoundError:
        return False


@contextmanager
def _told(place: Path) -> Iterator[None]:
    """A block whose failure is told of as one of the place."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{place} must be a directory on a file system with locks (flock), to be written "
            f"to; got: {error}"
        ) from error


def _holder(ledger: Ledger) -> Holder:
    """Who has the lock; somebody unknown where that cannot be read."""
    try:
        return Holder.model_validate_json(ledger.directory.read(_LOCK, _MOST_BYTES))
    except (OSError, ValidationError):
        return Holder()


def _kernel() -> str:
    return _KERNEL.read_text().strip() if _KERNEL.exists() else ""


def _tell(ledger: Ledger, holder: Holder, patience: float) -> None:
    print(
        f"The sweep {ledger.sweep!r} is locked by a run on {make_printable(holder.host)} (process "
        f"{holder.process}). If that is gone, the file server lets go of its lock within a minute "
        f"or two: waiting for up to {patience:.0f} s ...",
        file=sys.stderr,
        flush=True,
    )


def _refusal(ledger: Ledger, holder: Holder, patience: float) -> str:
    if not patience:
        return f"the sweep {ledger.sweep!r} is being run by another process; wait for it or stop it"
    return (
        f"the sweep {ledger.sweep!r} is being run on {make_printable(holder.host)} (process "
        f"{holder.process}), which has not let go of its lock within {patience:.0f} s; wait for it "
        "or stop it. If that machine is gone for good and its file server never notices, as those "
        f"of NFS 3, delete {ledger.directory.path}/{_LOCK}"
    )
