"""Trains packs with Ray Tune: one long trial per worker, which trains one pack after another.

A trial per pack would cost the start of an actor each time. Tune's `reuse_actors` does not help:
Tune gives a free actor to a trial that waits, and ends the actor that starts for that trial. So
packs shorter than a start would keep a sweep on a single actor.

The driver gives a worker its next pack when Tune reports the end of the last one.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

import ray
from ray import tune
from ray.tune import Callback, CheckpointConfig
from ray.tune.experiment import Trial
from ray.tune.search import Searcher
from ray.tune.stopper import Stopper

from privnets.references.user_files import portable_folder
from sweeps.engine.early_stopping import StoppingRule
from sweeps.engine.pack_sources import PackSource
from sweeps.engine.progress import is_crash
from sweeps.engine.sweep_run import SweepRun
from sweeps.engine.worker import Worker, encode_pack
from sweeps.planning.packing import Pack
from sweeps.store.filesystem import Directory

_MAX_RETRIES: Final = 3
# Workers of a shared cluster leave between two packs after a turn, so that packs of other sweeps
# that wait in Ray's queue are next. A start costs seconds.
_TURN_SECONDS: Final = 300.0
_IDLE_SECONDS: Final = 10.0
# Requests for workers that wait are the demand that an autoscaler sees. They let a cluster double
# at once, within these bounds.
_MIN_REQUESTS: Final = 4
_MAX_REQUESTS: Final = 64
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_SETTINGS: Final = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # nothing reads Tune's own state
    "TUNE_MAX_PENDING_TRIALS_PG": str(_MAX_REQUESTS),
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "600",
    # Else Tune restarts the worker of a node that was asked to end, which knows of no pack.
    "RAY_TRAIN_COUNT_PREEMPTION_AS_FAILURE": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
}
_LOGGERS: Final = ("ray.tune", "ray.train", "ray.air")


def run_packs(
    source: PackSource,
    run: SweepRun,
    should_stop: Callable[[], bool],
    most: int | None,
) -> None:
    """Trains packs in the order of their source; a pack whose worker was lost is tried again.

    Once `should_stop` is true, packs in training are kept as checkpoints and the run ends.

    Args:
        source: Packs.
        run: Receives the workers' reports.
        should_stop: Polled about ten times a second.
        most: Largest number of workers, all of which may be kept to the end; None for a cluster
            that others use as well, or that grows.
    """
    ledger, study = run.ledger, run.plan.study
    trainable = tune.with_parameters(
        Worker,
        storage=ledger.storage,
        sweep=ledger.sweep,
        run_id=ledger.directory.run_id,
        stopping=StoppingRule.from_plan(run.plan),
        folder=portable_folder(study.source.folder),
        memory_limit=study.resources.memory_limit,
    )
    workers = Workers(source, run, most)
    with _quiet_tune(), _state_directory(ledger.directory) as state:
        # Not `Tuner`, which unpickles the errors that it finds on disk.
        tune.run(
            tune.with_resources(trainable, tune.PlacementGroupFactory([study.resources.bundle()])),
            name="tune",
            storage_path=state,
            num_samples=-1,  # as many as `_WorkerSearch` suggests
            search_alg=_WorkerSearch(workers, should_stop),
            raise_on_failed_trial=False,
            checkpoint_config=CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
            callbacks=[_TuneCallback(workers)],
            stop=_StopWhen(lambda: should_stop() or workers.is_over),
            verbose=0,
        )
    if workers.failure is not None:
        run.tracker.warn(f"no worker could be started: {workers.failure}")


@contextmanager
def _state_directory(sweep: Directory) -> Iterator[str]:
    """Directory for Tune's own state, which nothing reads.

    It lies in the sweep's directory if that is local, so that the next run removes what a killed
    driver left.
    """
    if sweep.local_path is None:
        with TemporaryDirectory(prefix="sweeps-tune-", ignore_cleanup_errors=True) as folder:
            yield folder
        return
    state = sweep / "tune"
    state.remove()
    try:
        yield str(sweep.local_path / "tune")
    finally:
        with suppress(OSError):  # A worker of a lost node may write there still.
            state.remove()


@dataclass
class _Worker:
    """Worker as the driver knows it.

    Attributes:
        since: When it started, by the monotonic clock.
        handle: Handle of its actor; None until its first report.
        pack: Pack in training; None while it is idle.
        idle_since: When it became idle.
        deadline: When its pack reaches the study's time limit.
        is_late: Whether it was ended because of that limit.
        is_leaving: Whether it was told to end, and gets no more packs.
    """

    since: float
    handle: Any = None
    pack: Pack | None = None
    idle_since: float = 0.0
    deadline: float | None = None
    is_late: bool = False
    is_leaving: bool = False


class Workers:
    """Workers of a run, by Tune's ids of their trials, and the packs that they train.

    Attributes:
        failure: Why no worker can be started; None while there is hope.
    """

    def __init__(self, source: PackSource, run: SweepRun, most: int | None) -> None:
        """Starts without workers; see `run_packs` for the arguments."""
        self.failure: str | None = None
        self._source = source
        self._run, self._tracker = run, run.tracker
        self._time_limit = run.plan.study.resources.time_limit
        concurrency = run.plan.study.resources.concurrency
        self._most = most if concurrency == "auto" else concurrency
        self._is_shared = most is None
        self._requested: set[str] = set()  # trials whose actor waits for resources
        self._workers: dict[str, _Worker] = {}
        self._ready: deque[Pack] = deque()  # packs for workers that have none yet
        self._losses: Counter[str] = Counter()  # by pack
        self._crashed: set[str] = set()  # packs that crashed a worker
        self._failed_starts = 0

    @property
    def is_over(self) -> bool:
        """Whether all packs have ended, or no worker can be started."""
        return self._source.is_finished or self.failure is not None

    def request(self, trial: str) -> bool:
        """Whether a worker is needed for a pack that waits; notes the trial as requested."""
        count = len(self._requested)
        if count >= max(_MIN_REQUESTS, len(self._workers)):
            return False
        if self._most is not None and count + len(self._workers) >= self._most:
            return False
        idle = [w for w in self._workers.values() if w.pack is None and not w.is_leaving]
        free = len(self._requested) + len(idle)
        while len(self._ready) <= free and (pack := self._source.take()) is not None:
            self._ready.append(pack)
        if len(self._ready) <= free:
            return False
        self._requested.add(trial)
        return True

    def start(self, trial: str) -> None:
        """Notes that the actor of a trial is alive."""
        self._requested.discard(trial)
        self._workers[trial] = _Worker(since=time.monotonic(), idle_since=time.monotonic())

    def report(self, trial: str, result: dict[str, Any]) -> None:
        """Passes a report on, and gives an idle worker its next pack."""
        worker = self._workers[trial]
        if "worker" in result:
            self._failed_starts = 0
            worker.handle = result["worker"]
        elif worker.pack is not None:
            self._report_pack(worker, worker.pack, result)
        if worker.pack is None and not worker.is_leaving:
            self._give_pack(worker)

    def poll(self) -> None:
        """Ends workers that are late or superfluous; tells whether all wait for resources."""
        self._tracker.set_waiting(self._is_shared and bool(self._requested) and not self._workers)
        now = time.monotonic()
        for worker in self._workers.values():
            if worker.deadline is not None and worker.deadline < now:
                # Its pack may just have ended, in a report that Tune has not passed on yet.
                worker.deadline, worker.is_late, worker.is_leaving = None, True, True
                ray.kill(worker.handle)
            is_idle = worker.pack is None and now - worker.idle_since > _IDLE_SECONDS
            if self._is_shared and is_idle and worker.handle is not None:
                self._dismiss(worker)

    def end(self, trial: str, details: str | None = None) -> None:
        """Notes the end of a worker; after a failure its pack is tried again, divided or failed.

        Args:
            trial: Its trial.
            details: Tune's error text after a failure; None after a stop.
        """
        self._requested.discard(trial)
        worker = self._workers.pop(trial, None)
        if details is None:
            return
        if worker is not None and worker.pack is not None:
            self._lose_pack(worker, worker.pack, details)
        elif worker is None or worker.handle is None:
            self._failed_starts += 1
            has_others = any(other.handle is not None for other in self._workers.values())
            if self._failed_starts > _MAX_RETRIES and not has_others:
                self.failure = _last_failure(details)

    def _give_pack(self, worker: _Worker) -> None:
        if self._is_shared and time.monotonic() - worker.since > _TURN_SECONDS:
            self._dismiss(worker)
            return
        pack = self._ready.popleft() if self._ready else self._source.take()
        if pack is None:
            return
        worker.pack = pack
        if self._time_limit is not None:
            worker.deadline = time.monotonic() + self._time_limit
        self._tracker.start_pack(pack.pack_id)
        worker.handle.accept.remote(encode_pack(pack))  # before the next step, which Tune requests

    def _dismiss(self, worker: _Worker) -> None:
        if not worker.is_leaving:
            worker.is_leaving = True
            worker.handle.leave.remote()

    def _report_pack(self, worker: _Worker, pack: Pack, result: dict[str, Any]) -> None:
        if result["has_ended"]:
            worker.pack, worker.deadline, worker.idle_since = None, None, time.monotonic()
        if result["divides"]:
            self._divide(pack, result["failure"])
        elif result["failure"]:
            self._fail(pack, result["failure"], result["details"])
        else:
            self._tracker.advance_pack(
                pack.pack_id, result["share"], result["node"], result["live"]
            )
            if result["has_ended"]:
                self._source.end_pack(pack.pack_id)
        if result["problem"]:
            self._tracker.warn(result["problem"])

    def _lose_pack(self, worker: _Worker, pack: Pack, details: str) -> None:
        pack_id, reason = pack.pack_id, _last_failure(details)
        if worker.is_late:
            late = f"time limit of {self._time_limit:g} s reached (resources.time_limit)"
            self._fail(pack, late, details)
            return
        self._losses[pack_id] += 1
        if is_crash(reason):
            self._crashed.add(pack_id)
        can_divide = pack_id in self._crashed and len(pack.replicates) > 1
        if can_divide and self._losses[pack_id] > 1:
            self._divide(pack, reason)
        elif self._losses[pack_id] > _MAX_RETRIES:
            self._fail(pack, reason, details)
        else:
            self._tracker.lose_pack(pack_id, reason)
            self._ready.appendleft(pack)

    def _fail(self, pack: Pack, reason: str, details: str) -> None:
        self._source.end_pack(pack.pack_id)
        self._run.fail_pack(pack, reason, details)

    def _divide(self, pack: Pack, reason: str) -> None:
        """Trains the halves of a pack instead, so that one point cannot take others with it."""
        halves = self._source.divide_pack(pack)
        self._run.divide_pack(pack, halves, reason)


class _WorkerSearch(Searcher):
    """Asks Tune for a trial whenever a worker is needed."""

    def __init__(self, workers: Workers, should_stop: Callable[[], bool]) -> None:
        super().__init__()
        self._workers = workers
        self._should_stop = should_stop

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # type: ignore[override]
        """An empty configuration; None if no worker is needed now."""
        if self._should_stop() or self._workers.is_over:
            return Searcher.FINISHED
        return {} if self._workers.request(trial_id) else None

    def on_trial_complete(self, *arguments: Any, **named: Any) -> None:
        """Does nothing; `_TuneCallback` sees the same events."""

    def save(self, checkpoint_path: str) -> None:
        """Saves nothing, as no state of Tune is read back."""

    def restore(self, checkpoint_path: str) -> None:
        """Restores nothing."""


class _TuneCallback(Callback):
    """Passes Tune's events to the workers. An exception in a callback would end the sweep."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._on_notice = signal.getsignal(signal.SIGUSR1)

    def setup(self, *_: Any, **__: Any) -> None:
        """Restores the handler of SIGUSR1, which `tune.run` has replaced by one that ends it."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGUSR1, self._on_notice)

    def on_step_end(self, iteration: int, trials: list[Trial], **_: Any) -> None:
        self._workers.poll()

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **_: Any) -> None:
        self._workers.start(trial.trial_id)

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **_: Any
    ) -> None:
        self._workers.report(trial.trial_id, result)

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **_: Any
    ) -> None:
        self._workers.end(trial.trial_id)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **_: Any) -> None:
        details = "the worker died"
        if trial.error_file is not None:
            try:
                details = Path(trial.error_file).read_text(errors="replace")
            except OSError as error:
                details = f"its error could not be read: {error}"
        self._workers.end(trial.trial_id, details)


class _StopWhen(Stopper):
    """Ends the whole Tune run on request, never a single trial."""

    def __init__(self, should_stop: Callable[[], bool]) -> None:
        self._should_stop = should_stop

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._should_stop()

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles its own state, which nothing reads


@contextmanager
def _quiet_tune() -> Iterator[None]:
    """Silences Tune's loggers and reports, which repeat what the sweep itself reports."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with patch.dict(os.environ, _SETTINGS):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _last_failure(details: str) -> str:
    """Last failure in Tune's error file, in a line: an exception, or Ray's reason of a death."""
    lines = [line.strip() for line in _COLOUR.sub("", details).splitlines() if line.strip()]
    starts = [i for i, line in enumerate(lines) if line.startswith("Failure # ")]
    last = lines[starts[-1] + 1 :] if starts else lines
    if not last:
        return "no reason was given"
    is_exception = last[0].startswith(("ray::", "Traceback"))
    return last[-1] if is_exception else last[0]
