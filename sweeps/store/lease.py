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
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from socket import gethostname
from typing import Annotated, Final, Literal

from filelock import FileLock, Timeout
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from sweeps.errors import InputError, make_printable
from sweeps.store.filesystem import Directory

HEARTBEAT_SECONDS: Final = 5.0
ABANDONED_SECONDS: Final = 60.0
"""Age of the last heartbeat beyond which another driver may take a lease over."""

_LOCK_FILE: Final = ".lock"
_LEASE_FILE: Final = "lease.json"
_HEARTBEAT_FILE: Final = "progress.json"
_MAX_BYTES: Final = 64 * 1024
_LAST_HEARTBEAT_SECONDS: Final = 15.0
_OLD_TEMPORARY_SECONDS: Final = 3600.0

_Count = Annotated[int, Field(ge=0)]
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class RunSupersededError(RuntimeError):
    """Raised when a worker is about to write for a run that has ended or was taken over."""


class Lease(BaseModel):
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


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """Resources of the cluster that a sweep trains on.

    Attributes:
        packs: Packs in training.
        nodes: Nodes that are alive and have CPUs or GPUs for packs.
        busy_nodes: Nodes that train.
        cpus: CPUs of all nodes, as Ray counts them; likewise `gpus`.
        busy_cpus: CPUs given to packs in training; likewise `busy_gpus`.
    """

    packs: int
    nodes: int
    busy_nodes: int
    cpus: float
    busy_cpus: float
    gpus: float
    busy_gpus: float


Phase = Literal["starting", "training", "publishing", "ended", "stopped"]


@dataclass(frozen=True, slots=True)
class Outage:
    """Time in which no points reach MLflow; training continues.

    Attributes:
        since: Unix time of the first attempt that failed.
        reason: Why the last attempt failed.
        waiting: Complete points that wait for MLflow.
    """

    since: float
    reason: str
    waiting: _Count

    def __str__(self) -> str:
        """One line for people, with the time of this machine."""
        start = datetime.fromtimestamp(self.since).astimezone()
        return (
            f"no points have reached MLflow since {start:%Y-%m-%d %H:%M:%S %Z} "
            f"({self.waiting} wait, training continues): {self.reason}"
        )


class RunProgress(BaseModel):
    """Progress of one run of a sweep.

    Attributes:
        activity: Preparation in progress, in words; None while packs are trained.
        waiting: Reason why no pack starts, in words; None without one.
        share: Share of this run's work that is done.
        rate: Trainings per minute in this run, parts of trainings included; None before any.
        eta: Estimated seconds left; None while unknown.
        use: Resources in use; None before they are known.
        live: Values to watch, such as losses: means over the packs in training.
        trainings: Replicates finished, and replicates in all; None if unknown.
        warning_count: Number of warnings, mostly of packs that were lost and are tried again.
        last_warning: The last warning.
        outage: Present outage of MLflow; None while it takes points.
    """

    model_config = ConfigDict(frozen=True)

    activity: str | None = None
    waiting: str | None = None
    share: Annotated[float, Field(ge=0, le=1)] = 0.0
    rate: _Amount | None = None
    eta: _Amount | None = None
    use: ResourceUse | None = None
    live: dict[str, float] = {}
    trainings: tuple[_Count, _Count] | None = None
    warning_count: _Count = 0
    last_warning: str | None = None
    outage: Outage | None = None


class Heartbeat(RunProgress):
    """Content of `progress.json`: state of the driver when it last wrote.

    Attributes:
        phase: Current phase; the last heartbeat of a driver has `ended` or `stopped`.
        updated_at: Time of writing by the driver's clock.
    """

    format: Literal[1] = 1
    phase: Phase
    updated_at: AwareDatetime

    @property
    def is_final(self) -> bool:
        """Whether the driver announced its end."""
        return self.phase in ("ended", "stopped")

    @property
    def age(self) -> float:
        """Seconds since it was written, at least 0, by this machine's clock."""
        return max(0.0, (datetime.now(UTC) - self.updated_at).total_seconds())

    @property
    def is_abandoned(self) -> bool:
        """Whether the driver stopped writing without announcing its end."""
        return not self.is_final and self.age > ABANDONED_SECONDS


class HeartbeatWriter:
    """Writes the heartbeat of a run every few seconds.

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
        self._progress = RunProgress()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._write()
        self._thread.start()

    def update(self, progress: RunProgress) -> None:
        """Sets the progress that the next heartbeat shows."""
        self._progress = progress

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
            values = {**dict(self._progress), "phase": self.phase, "updated_at": datetime.now(UTC)}
            beat = Heartbeat.model_validate(values)
            self.directory.write(_HEARTBEAT_FILE, beat.model_dump_json().encode())
            self.problem = None
        except RunSupersededError as error:
            self.problem, self.is_superseded = f"this run was stopped: {error}", True
        except (OSError, ValidationError) as error:
            self.problem = f"{_HEARTBEAT_FILE} could not be written: {error}"


@contextmanager
def acquire_lease(sweep: Directory) -> Iterator[HeartbeatWriter]:
    """Makes this process the only driver of a sweep while the block runs.

    Workers of every earlier run are fenced off. Temporary files that killed writers left behind
    are deleted.

    Yields:
        The run's heartbeat, already started; workers need the run id of its `directory`. Its last
        phase is `ended`, or `stopped` if it was set to that or the block raised.

    Raises:
        InputError: If another driver holds the lease, or the directory cannot be locked or written.
    """
    with _acquire_lock(sweep):
        heartbeat = HeartbeatWriter(_start_run(sweep))
        try:
            yield heartbeat
        except BaseException:
            heartbeat.phase = "stopped"
            raise
        finally:
            heartbeat.stop()
            _end_run(heartbeat.directory)


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


def read_heartbeat(sweep: Directory) -> Heartbeat | None:
    """Last heartbeat of a sweep's driver; None if there is none that can be read."""
    try:
        return Heartbeat.model_validate_json(sweep.read(_HEARTBEAT_FILE, _MAX_BYTES))
    except (OSError, ValidationError):
        return None


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
    holder, age = _read_lease(sweep), _heartbeat_age(sweep)
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


def _heartbeat_age(sweep: Directory) -> float:
    """Seconds since the holder last wrote, by this machine's clock."""
    times = [sweep.modified_at(name) for name in (_LEASE_FILE, _HEARTBEAT_FILE)]
    last = max((each for each in times if each is not None), default=None)
    return 0.0 if last is None else max(0.0, time.time() - last)


def _start_run(sweep: Directory) -> Directory:
    """Writes the lease of a new run; returns the directory for its processes."""
    run_id = uuid.uuid4().hex
    own = replace(sweep, run_id=run_id)
    lease = Lease(run_id=run_id, host=gethostname(), process=os.getpid())
    try:
        own.write(_LEASE_FILE, lease.model_dump_json().encode())
        for name in ("ledger", "checkpoints"):
            (own / name).refresh()
        _delete_temporary_files(sweep)
    except OSError as error:
        raise InputError(f"{sweep.path} must be writable; got: {error}") from error
    return own


def _end_run(sweep: Directory) -> None:
    """Ends a run, so that its workers no longer write."""
    with suppress(OSError, RunSupersededError):  # the next run deletes what is left
        check_lease(sweep)
        sweep.write(_LEASE_FILE, Lease().model_dump_json().encode())
        _delete_temporary_files(sweep)


def _delete_temporary_files(sweep: Directory) -> None:
    """Deletes temporary files of all runs, and old ones of processes without a run."""
    began = sweep.modified_at(_LEASE_FILE) or 0.0
    for path, is_of_run in sweep.temporary_files().items():
        written = sweep.modified_at(path)
        if is_of_run or (written is not None and began - written > _OLD_TEMPORARY_SECONDS):
            with suppress(FileNotFoundError):
                sweep.delete(path)


def _read_lease(sweep: Directory) -> Lease:
    """The lease; one without a run where there is none, or its content is not one."""
    try:
        return Lease.model_validate_json(sweep.read(_LEASE_FILE, _MAX_BYTES))
    except (FileNotFoundError, ValidationError):
        return Lease()
