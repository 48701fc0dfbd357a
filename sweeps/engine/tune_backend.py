"""Trains packs with Ray Tune: one trial per pack, on actors that are used again.

This is the only module that touches Tune's private parts. It refuses another minor version of Ray,
and `tests/sweeps/engine/test_tune_backend.py` fails when an upgrade removes such a part. Tune has
no public way to:

- keep packs that wait for an actor in order, and give up actors that another sweep is to have
  (`_PackScheduler`),
- forget the history of metrics of a finished trial (`_TuneCallback.on_trial_complete`),
- end one trial whose actor does not answer (`_TimeLimit`),
- start actors in processes that are ready, and leave out MLflow (`_patched_tune`).
"""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

import ray
from ray import tune
from ray.air._internal import usage
from ray.tune import Callback, CheckpointConfig
from ray.tune.execution import class_cache
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import BasicVariantGenerator
from ray.tune.stopper import Stopper

from cluster.ray_internals import check_version
from privnets.data.user_files import portable_folder
from sweeps.engine.early_stopping import StoppingRule
from sweeps.engine.pack_sources import PackSource
from sweeps.engine.progress import ProgressTracker, is_crash
from sweeps.engine.sharing import ClusterShare
from sweeps.engine.worker import Worker, encode_pack
from sweeps.store.filesystem import Directory

_MAX_RETRIES: Final = 3
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_SETTINGS: Final = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # Tune's own state grows with every pack
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "600",
    "RAY_AIR_NEW_OUTPUT": "0",
}
_LOGGERS: Final = ("ray.tune", "ray.train", "ray.air")


def run_packs(
    source: PackSource,
    share: ClusterShare,
    tracker: ProgressTracker,
    should_stop: Callable[[], bool],
) -> None:
    """Trains packs in the order of their source; a pack whose worker was lost is tried again.

    It never has more workers than the sweep's share of the cluster for longer than a pack takes.

    Once `should_stop` is true, packs in training are kept as checkpoints and the run ends.
    """
    check_version()
    ledger, resources = tracker.ledger, tracker.plan.study.resources
    trainable = tune.with_parameters(
        Worker,
        packs={pack.pack_id: encode_pack(pack) for pack in source.known},
        storage=ledger.storage,
        sweep=ledger.sweep,
        run_id=ledger.directory.run_id,
        stopping=StoppingRule.from_plan(tracker.plan),
        folder=portable_folder(tracker.plan.study.source.folder),
        memory_limit=resources.memory_limit,
    )
    search = _PackSearch(source, share)
    scheduler = _PackScheduler(share)
    with _patched_tune(), _state_directory(ledger.directory) as state:
        # Not `Tuner`, which unpickles the errors that it finds on disk.
        tune.run(
            tune.with_resources(trainable, tune.PlacementGroupFactory([resources.bundle()])),
            name="tune",
            storage_path=state,
            config={"pack": tune.sample_from(lambda spec: search.pack_id)},
            num_samples=source.max_packs,
            search_alg=search,
            scheduler=scheduler,
            reuse_actors=True,
            max_failures=_MAX_RETRIES,
            raise_on_failed_trial=False,
            checkpoint_config=CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
            callbacks=[_TuneCallback(tracker, scheduler, source)],
            stop=_StopWhen(should_stop),
            trial_dirname_creator=_trial_name,
            verbose=0,
        )


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


class _TuneCallback(Callback):
    """Passes Tune's events to a tracker. An exception in a callback would end the sweep."""

    def __init__(
        self, tracker: ProgressTracker, scheduler: _PackScheduler, source: PackSource
    ) -> None:
        self._source = source
        self._tracker = tracker
        self._scheduler = scheduler
        self._time_limit = _TimeLimit(tracker.plan.study.resources.time_limit)
        self._crashed: set[str] = set()  # packs that crashed a worker
        self._on_notice = signal.getsignal(signal.SIGUSR1)

    def setup(self, *_: Any, **__: Any) -> None:
        """Restores the handler of SIGUSR1, which `tune.run` has replaced by one that ends it."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGUSR1, self._on_notice)

    def on_step_end(self, iteration: int, trials: list[Trial], **_: Any) -> None:
        self._tracker.set_waiting(self._scheduler.is_waiting)
        self._time_limit.end_late_trials()

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **_: Any) -> None:
        self._tracker.start_pack(trial.config["pack"])
        self._time_limit.start(trial)

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **_: Any) -> None:
        reason = _last_failure(_error_text(trial))
        self._tracker.lose_pack(trial.config["pack"], reason)
        if is_crash(reason):
            self._crashed.add(trial.config["pack"])
            if self._tracker.is_divisible(trial.config["pack"]):
                trial.max_failures = trial.num_failures  # the second crash divides the pack

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **_: Any
    ) -> None:
        pack_id = trial.config["pack"]
        if result["divides"]:
            self._divide(pack_id, result["failure"])
        elif result["failure"]:
            self._tracker.fail_pack(pack_id, result["failure"], result["details"])
        else:
            self._tracker.advance_pack(pack_id, result["share"], result["node"], result["live"])
        if result["problem"]:
            self._tracker.warn(result["problem"])

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **_: Any
    ) -> None:
        self._source.end_pack(trial.config["pack"])
        self._time_limit.finish(trial)
        # Tune keeps the history of metrics until its end: most of what a long sweep would hold.
        trial.run_metadata.metric_analysis.clear()
        trial.run_metadata.metric_n_steps.clear()

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **_: Any) -> None:
        pack_id, details = trial.config["pack"], _error_text(trial)
        late, reason = self._time_limit.finish(trial), _last_failure(details)
        has_crashed = pack_id in self._crashed or is_crash(reason)
        if late is None and has_crashed and self._tracker.is_divisible(pack_id):
            self._divide(pack_id, reason)
        else:
            self._source.end_pack(pack_id)
            self._tracker.fail_pack(pack_id, late or reason, details)

    def _divide(self, pack_id: str, reason: str) -> None:
        """Trains the halves of a pack instead, so that one point cannot take others with it."""
        halves = self._source.divide_pack(self._tracker.packs[pack_id])
        self._tracker.divide_pack(pack_id, halves, reason)


class _TimeLimit:
    """Ends the workers of packs that train longer than a limit; Tune does not try them again."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._deadlines: dict[Trial, float] = {}
        self._late: set[Trial] = set()

    def start(self, trial: Trial) -> None:
        if self._seconds is not None:
            self._deadlines[trial] = time.monotonic() + self._seconds

    def end_late_trials(self) -> None:
        now = time.monotonic()
        for trial in [trial for trial, deadline in self._deadlines.items() if deadline < now]:
            del self._deadlines[trial]
            if (actor := trial.temporary_state.ray_actor) is not None:
                self._late.add(trial)
                trial.max_failures = 0
                ray.kill(actor)

    def finish(self, trial: Trial) -> str | None:
        """Forgets a trial; returns the reason if it was ended."""
        self._deadlines.pop(trial, None)
        if trial not in self._late:
            return None
        self._late.remove(trial)
        return f"time limit of {self._seconds:g} s reached (resources.time_limit)"


class _PackSearch(BasicVariantGenerator):
    """Makes a trial of each pack of a source, once the source has it and the share has room.

    Attributes:
        pack_id: Pack of the trial that is being made.
    """

    def __init__(self, source: PackSource, share: ClusterShare) -> None:
        super().__init__()
        self._source = source
        self._share = share
        self._known = {pack.pack_id for pack in source.known}
        self.pack_id = ""

    def next_trial(self) -> Trial | None:
        """Trial of the next pack; None if there is none now or the share is used up."""
        # A source that had no more packs may have some again, and the share follows from that. And
        # Tune would block until there is a first trial.
        limit = max(1, self._share.limit + (not self._share.has_more))
        if self.is_finished() or len(self._live_trials) >= limit:
            return None
        pack = self._source.take()
        self._share.has_more = pack is not None
        if pack is None:
            if self._source.is_finished:
                self.set_finished()  # type: ignore[no-untyped-call]
            return None
        self.pack_id = pack.pack_id
        trial: Trial = super().next_trial()  # type: ignore[no-untyped-call]
        if pack.pack_id not in self._known:  # a pack that workers were not given at their start
            trial.config["content"] = encode_pack(pack)
        return trial

    def save_to_dir(self, *arguments: Any, **names: Any) -> None:
        """Saves nothing, as no state of Tune is read back."""


class _PackScheduler(FIFOScheduler):
    """Gives a free actor to the first pack that waits for one, within the share of the sweep.

    Tune's own scheduler names the first pack that has not started. Tune then gives it the next
    free actor and kills the one that is being started for it: if packs take less time than actors
    need to start, no second actor ever starts.

    Attributes:
        is_waiting: Whether packs wait for actors and no actor is alive.
    """

    def __init__(self, share: ClusterShare) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_waiting = False
        self._share = share

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """First pack that waits for a slot while an actor is free; None without either."""
        controller = tune_controller._tune_controller
        held_back = self._keep_to_share(controller)
        actors = controller._actor_manager
        has_waiting = actors.num_pending_actors > 0 or bool(held_back)
        self.is_waiting = has_waiting and actors.num_live_actors == 0
        if not controller._actor_cache.num_cached_objects:
            return None
        requested = [controller._actor_to_trial[actor] for actor in actors.pending_actors]
        return next(iter(requested + controller._pending_trials_list), None)

    def _keep_to_share(self, controller: Any) -> list[Trial]:
        """Ends actors at the ends of their packs beyond the share; returns packs it holds back."""
        actors, limit = controller._actor_manager, self._share.limit
        held = sum(actor not in controller._stopping_actors for actor in actors.live_actors)
        self._share.held = held
        self._share.packs = len(controller._running_trials) + len(controller._pending_trials)
        controller._reuse_actors = held <= limit
        if held > limit:
            controller._cleanup_cached_actors(force_all=True)
        room = max(0, limit - held)
        for actor in actors.pending_actors[room:]:
            trial = controller._actor_to_trial.pop(actor)
            del controller._trial_to_actor[trial]
            controller._unstage_trial_with_resources(trial)
            actors.remove_actor(actor)
        # Tune requests an actor for every trial of its list. It is made from all trials without an
        # actor each time, so that none is forgotten.
        waiting = controller._pending_trials - controller._trial_to_actor.keys()
        ordered = sorted(waiting, key=lambda trial: trial.trial_id)
        count = room - actors.num_pending_actors + controller._actor_cache.num_cached_objects
        controller._pending_trials_list = ordered[:count]
        return ordered[count:]


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
def _patched_tune() -> Iterator[None]:
    """Changes Tune for the whole process while the block runs, and restores it afterwards.

    Tune gives actors an environment variable of PyTorch Lightning's, so Ray would start new
    processes for them although some are ready. It loads MLflow (two seconds) to count callbacks
    for telemetry, which is off. Its loggers and reports repeat what the sweep itself reports.
    """
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with (
            patch.dict(os.environ, _SETTINGS),
            patch.object(class_cache, "DEFAULT_ENV_VARS", {}),
            patch.object(usage, "tag_callbacks", lambda callbacks: False),
        ):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _error_text(trial: Trial) -> str:
    if trial.error_file is None:
        return "the worker died"
    try:
        return Path(trial.error_file).read_text(errors="replace")
    except OSError as error:
        return f"its error could not be read: {error}"


def _last_failure(details: str) -> str:
    """Last failure in Tune's error file, in a line: an exception, or Ray's reason of a death."""
    lines = [line.strip() for line in _COLOUR.sub("", details).splitlines() if line.strip()]
    starts = [i for i, line in enumerate(lines) if line.startswith("Failure # ")]
    last = lines[starts[-1] + 1 :] if starts else lines
    if not last:
        return "no reason was given"
    is_exception = last[0].startswith(("ray::", "Traceback"))
    return last[-1] if is_exception else last[0]


def _trial_name(trial: Trial) -> str:
    return str(trial.config["pack"])
