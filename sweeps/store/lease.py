"""Lease on a sweep: one driver runs it at a time, and only workers of its latest run write to it.

A lease has three parts. A file lock keeps a second driver out where the storage is a directory. The
run id in `lease.json` is a fencing token: workers compare it with their own before they write, so a
worker that outlives its driver changes nothing. The heartbeat in `progress.json` shows that the
driver is alive, and its progress.

The operating system frees the file lock of a dead process. Object stores have no locks, and a file
server may keep the lock of a machine that crashed: there, a lease without a heartbeat for a minute
counts as abandoned, and the next driver takes it over.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from socket import gethostname
from typing import Final

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from sweeps.errors import InputError, make_printable
from sweeps.store.filesystem import Directory
from sweeps.store.status import ABANDONED_SECONDS, STATUS_FILE, Phase, SweepStatus

HEARTBEAT_SECONDS: Final = 5.0
_LOCK_FILE: Final = ".lock"
_LEASE_FILE: Final = "lease.json"
_MAX_BYTES: Final = 64 * 1024
_LAST_HEARTBEAT_SECONDS: Final = 15.0
_OLD_TEMPORARY_SECONDS: Final = 3600.0


class RunSupersededError(RuntimeError):
    """Raised when a worker is about to write for a run that has ended or was taken over."""


class _Holder(BaseModel):
    """Content of `lease.json`.

    Attributes:
        run_id: The latest run; None once it has ended.
        host: Name of the driver's machine.
        process: Process id of the driver.
    """

    model_config = ConfigDict(frozen=True)

    run_id: str | None = None
    host: str = "another machine"
    process: int = 0


class RunLease:
    """Lease that a run holds; writes the run's status every few seconds as a heartbeat.

    Attributes:
        directory: Directory of the sweep, for processes that write for this run.
        phase: Current phase of the driver.
        problem: Why the last heartbeat could not be written; None if it was written.
        is_superseded: Whether another driver has taken the sweep over.
    """

    def __init__(self, directory: Directory) -> None:
        """Writes the first heartbeat, and starts a thread for the next ones."""
        self.directory = directory
        self.phase: Phase = "starting"
        self.problem: str | None = None
        self.is_superseded = False
        self._status = SweepStatus(updated_at=datetime.now(UTC))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._write()
        self._thread.start()

    def update(self, status: SweepStatus) -> None:
        """Sets the status that the next heartbeat shows, apart from the phase and the time."""
        self._status = status

    def stop(self) -> None:
        """Stops the thread and writes the last heartbeat, unless the storage hangs."""
        self._stopping.set()
        self._thread.join(_LAST_HEARTBEAT_SECONDS)
        if not self._thread.is_alive():
            self.phase = "stopped" if self.phase == "stopped" else "ended"
            self._write()

    def _run(self) -> None:
        while not self._stopping.wait(HEARTBEAT_SECONDS):
            self._write()

    def _write(self) -> None:
        try:
            check_lease(self.directory)
            now = {"phase": self.phase, "updated_at": datetime.now(UTC)}
            status = self._status.model_copy(update=now)
            self.directory.write(STATUS_FILE, status.model_dump_json().encode())
            self.problem = None
        except RunSupersededError as error:
            self.problem, self.is_superseded = f"this run was stopped: {error}", True
        except OSError as error:
            self.problem = f"{STATUS_FILE} could not be written: {error}"


@contextmanager
def acquire_lease(sweep: Directory) -> Iterator[RunLease]:
    """Makes this process the only driver of a sweep while the block runs.

    Workers of every earlier run are fenced off. Temporary files that killed writers left behind
    are deleted.

    Yields:
        The lease, whose heartbeat has started; workers need the run id of its `directory`. Its
        last phase is `ended`, or `stopped` if it was set to that or the block raised.

    Raises:
        InputError: If another driver holds the lease, or the directory cannot be locked or written.
    """
    with _acquire_lock(sweep):
        lease = RunLease(_start_run(sweep))
        try:
            yield lease
        except BaseException:
            lease.phase = "stopped"
            raise
        finally:
            lease.stop()
            own = lease.directory
            with suppress(OSError, RunSupersededError):  # the next run deletes what is left
                check_lease(own)
                own.write(_LEASE_FILE, _Holder().model_dump_json().encode())  # workers stop writing
                _delete_temporary_files(own)


def check_lease(sweep: Directory) -> None:
    """Checks that the run that writes to a directory is the latest one of its sweep.

    Processes without a run, such as `sweeps sync`, need no lease.

    Raises:
        RunSupersededError: If the run has ended, or another one has begun.
        OSError: If the lease cannot be read.
    """
    if sweep.run_id is not None and _read_lease(sweep).run_id != sweep.run_id:
        raise RunSupersededError(
            f"{sweep.path}/{_LEASE_FILE} does not name the run that this process works for: that "
            "run has ended, another one has begun, or this machine does not share the storage"
        )


def _acquire_lock(sweep: Directory) -> AbstractContextManager[object]:
    """Holds the file lock of a sweep; on storage without locks, heartbeats alone decide."""
    try:
        sweep.create()
        if sweep.local_path is None:
            _refuse_unless_abandoned(sweep)
            return nullcontext()
        path = sweep.local_path / _LOCK_FILE
        lock = FileLock(path, timeout=0, thread_local=False, fallback_to_soft=False)
        try:
            return lock.acquire()
        except Timeout:
            _refuse_unless_abandoned(sweep)
            path.unlink(missing_ok=True)  # the next acquire locks a new file
            return lock.acquire()
    except Timeout as error:
        raise InputError(f"another driver just took over {sweep.path}; try again later") from error
    except OSError as error:
        raise InputError(
            f"{sweep.path} must be a writable directory on a file system with locks (flock); "
            f"got: {error}"
        ) from error


def _refuse_unless_abandoned(sweep: Directory) -> None:
    """Raises an InputError that names the lease's holder, unless the holder is gone."""
    holder = _read_lease(sweep)
    times = [sweep.modified_at(name) for name in (_LEASE_FILE, STATUS_FILE)]
    last = max((each for each in times if each is not None), default=None)
    age = 0.0 if last is None else max(0.0, time.time() - last)  # by this machine's clock
    # A file server may keep the lock of a machine that crashed; this machine keeps none.
    is_alive = sweep.local_path is not None and holder.host == gethostname()
    has_ended = sweep.local_path is None and holder.run_id is None
    is_silent = age > ABANDONED_SECONDS and holder.run_id is not None
    if has_ended or (is_silent and not is_alive):
        return
    host = "this machine" if is_alive else make_printable(holder.host)
    by = f"process {holder.process} on {host}" if holder.process else "another process"
    hint = (
        f"; if it is dead, try again {ABANDONED_SECONDS:.0f} s after its last heartbeat, which was "
        f"{age:.0f} s ago"
    )
    name = sweep.path.rpartition("/")[2]
    raise InputError(
        f"the sweep {name!r} is being run by {by}; wait for it or stop it{'' if is_alive else hint}"
    )


def _start_run(sweep: Directory) -> Directory:
    """Writes the lease of a new run; returns the directory for its processes."""
    run_id = uuid.uuid4().hex
    own = replace(sweep, run_id=run_id)
    lease = _Holder(run_id=run_id, host=gethostname(), process=os.getpid())
    try:
        own.write(_LEASE_FILE, lease.model_dump_json().encode())
        for name in ("ledger", "checkpoints"):
            (own / name).refresh()
        _delete_temporary_files(sweep)
    except OSError as error:
        raise InputError(f"{sweep.path} must be writable; got: {error}") from error
    return own


def _delete_temporary_files(sweep: Directory) -> None:
    """Deletes temporary files of all runs, and old ones of processes without a run."""
    began = sweep.modified_at(_LEASE_FILE) or 0.0
    for path, is_of_run in sweep.temporary_files().items():
        written = sweep.modified_at(path)
        if is_of_run or (written is not None and began - written > _OLD_TEMPORARY_SECONDS):
            with suppress(FileNotFoundError):
                sweep.delete(path)


def _read_lease(sweep: Directory) -> _Holder:
    """The lease; one without a run where there is none, or its content is not one."""
    try:
        return _Holder.model_validate_json(sweep.read(_LEASE_FILE, _MAX_BYTES))
    except (FileNotFoundError, ValidationError):
        return _Holder()
