"""Ray Tune, carrying packs: one trial each, on actors that are used again."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ray import tune
from ray.air._internal import usage
from ray.tune import Callback, CheckpointConfig
from ray.tune.execution import class_cache
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler
from ray.tune.stopper import Stopper

from cluster.connection import Machine
from sweeps.engine.concurrency import Following, Queue
from sweeps.engine.early_stopping import StoppingRule
from sweeps.engine.worker import Worker, dumps
from sweeps.planning.packing import Pack
from sweeps.study.spec import Resources

MAX_FAILURES = 3
_UNTOLD = "what became of a pack could not be taken down"
_UNFOLLOWED = "what the cluster has room for could not be looked up"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Listener(Protocol):
    """Told by the Tune loop, in its own thread, what happens to packs."""

    def noting(self, what: str) -> AbstractContextManager[None]:
        """A block whose failure is noted as `what`, and passed over."""

    def tick(self) -> None:
        """A moment has passed."""

    def waits(self, waits: bool) -> None:
        """Whether no pack can be trained for want of room."""

    def began(self, pack: str) -> None:
        """A pack is in training."""

    def dropped(self, pack: str, reason: str) -> None:
        """A pack was lost, and will be tried again."""

    def advanced(self, pack: str, share: float, node: str) -> None:
        """A pack has come so far, on a node of Ray's."""

    def troubled(self, problem: str) -> None:
        """Something went wrong that does a pack no harm."""

    def failed(self, pack: str, reason: str, details: str) -> None:
        """A pack has come to nothing, retries included."""


@dataclass(frozen=True, slots=True)
class Carriage:
    """How packs are to be carried.

    Attributes:
        storage: Absolute path or URI of the storage.
        sweep: The sweep's name.
        run: The run of it that trains; None outside of any.
        state: Local directory for Tune's own state.
        resources: Of a pack.
        concurrency: Packs at once, to begin with.
        machines: Gives those of a cluster that may grow or shrink; None where nothing changes.
        grows: Whether it has an autoscaler, which brings machines for packs that wait.
        stopping: When points leave their packs before the end; never if None.
    """

    storage: str
    sweep: str
    run: str | None
    state: Path
    resources: Resources
    concurrency: int
    machines: Callable[[], Sequence[Machine]] | None = None
    grows: Callable[[], bool] = lambda: False
    stopping: StoppingRule | None = None


def carry(
    packs: Sequence[Pack], carriage: Carriage, listener: Listener, stopping: Callable[[], bool]
) -> None:
    """Run packs to their end, in order, each retried where it fails.

    Args:
        packs: To train.
        carriage: How.
        listener: Told what happens.
        stopping: Asked often; once true, packs in hand are kept as checkpoints and all ends.
    """
    _quieten()
    _unburden()
    trainable = tune.with_parameters(
        Worker,
        packs={pack.pack_id: dumps(pack) for pack in packs},
        storage=carriage.storage,
        sweep=carriage.sweep,
        run=carriage.run,
        stopping=carriage.stopping,
    )
    wanted = {"cpu": carriage.resources.cpus, "gpu": carriage.resources.gpus}
    scheduler = _InOrder()  # type: ignore[no-untyped-call]
    queue = Queue([pack.pack_id for pack in packs], carriage.concurrency)
    follow = _followed(queue, carriage)
    # Not `Tuner`: it unpickles the errors that it finds on disk.
    tune.run(
        tune.with_resources(trainable, wanted),
        name=carriage.state.name,
        storage_path=str(carriage.state.parent),
        # One by one: a grid search would copy all packs for each trial.
        config={"pack": tune.sample_from(lambda spec: queue.next())},
        num_samples=len(packs),
        search_alg=queue.search,
        scheduler=scheduler,
        reuse_actors=True,
        max_failures=MAX_FAILURES,
        raise_on_failed_trial=False,
        checkpoint_config=CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
        callbacks=[_Told(listener, follow, scheduler)],
        stop=_Stop(stopping),
        trial_dirname_creator=_trial_name,
        verbose=0,
    )


def _followed(queue: Queue, carriage: Carriage) -> Callable[[], None]:
    """What to call often, so that the queue is as wide as the cluster."""
    if carriage.machines is None:
        return lambda: None
    return Following(queue, carriage.machines, carriage.resources, carriage.grows).tick


class _Told(Callback):
    """Passes on what Tune tells; whatever it raised would end the sweep."""

    def __init__(self, listener: Listener, follow: Callable[[], None], scheduler: _InOrder) -> None:
        self._listener = listener
        self._follow = follow
        self._scheduler = scheduler

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        with self._listener.noting(_UNTOLD):
            self._listener.waits(self._scheduler.waits)
            self._listener.tick()
        with self._listener.noting(_UNFOLLOWED):
            self._follow()

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        with self._listener.noting(_UNTOLD):
            self._listener.began(trial.config["pack"])

    def on_trial_recover(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        with self._listener.noting(_UNTOLD):
            self._listener.dropped(trial.config["pack"], _reason(_error_text(trial)))

    def on_trial_result(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        with self._listener.noting(_UNTOLD):
            if failure := result.get("failure"):
                self._listener.failed(trial.config["pack"], failure, failure)
            else:
                self._listener.advanced(trial.config["pack"], result["share"], result["node"])
            if problem := result.get("problem"):
                self._listener.troubled(problem)

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        # Tune keeps what it was told of each pack as long as it runs.
        with self._listener.noting(_UNTOLD):
            trial.run_metadata.metric_analysis.clear()
            trial.run_metadata.metric_n_steps.clear()

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        with self._listener.noting(_UNTOLD):
            details = _error_text(trial)
            self._listener.failed(trial.config["pack"], _reason(details), details)


class _InOrder(FIFOScheduler):
    """Gives free actors to packs that have none on the way, in order.

    The scheduler that this is otherwise names the first pack that has not begun, and Tune then
    gives it the next free actor and kills the one that is being started for it: where packs take
    less time than actors need to start, no further one ever does. Where nobody is named, a pack
    that was just handed out goes before those that wait for room.

    Attributes:
        waits: Whether packs wait for actors, and Ray has room for none.
    """

    waits = False

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """While an actor is free, the first pack that waits for room; None if none does."""
        tune_loop = tune_controller._tune_controller
        actors = tune_loop._actor_manager
        self.waits = actors.num_pending_actors > 0 and actors.num_live_actors == 0
        if not (tune_loop._actor_cache.num_cached_objects and actors.num_pending_actors):
            return None
        waiting = {tune_loop._actor_to_trial.get(actor) for actor in actors.pending_actors}
        waiting &= tune_loop._pending_trials
        return next((trial for trial in tune_loop._pending_trials_list if trial in waiting), None)


class _Stop(Stopper):
    """Ends the experiment when asked; never a single trial."""

    def __init__(self, asked: Callable[[], bool]) -> None:
        self._asked = asked

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._asked()


def _error_text(trial: Trial) -> str:
    if trial.error_file is None:
        return "the worker died"
    try:
        return Path(trial.error_file).read_text(errors="replace")
    except OSError as error:
        return f"its error could not be read: {error}"


def _reason(details: str) -> str:
    """The last failure's own words: a traceback's last line, or what Ray says of a dead worker."""
    lines = [line.strip() for line in _COLOUR.sub("", details).splitlines() if line.strip()]
    starts = [i for i, line in enumerate(lines) if line.startswith("Failure # ")]
    last = lines[starts[-1] + 1 :] if starts else lines
    if not last:
        return "no reason was given"
    raised = last[0].startswith(("ray::", "Traceback"))
    return last[-1] if raised else last[0]


def _trial_name(trial: Trial) -> str:
    return str(trial.config["pack"])


def _quieten() -> None:
    """No loggers of Tune's, no reports: the sweep shows its own progress."""
    settings: Mapping[str, str] = {
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
        "TUNE_DISABLE_SIGINT_HANDLER": "1",
        "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # its own state, which grows with every pack
        "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "600",
        "RAY_AIR_NEW_OUTPUT": "0",
    }
    os.environ.update(settings)
    for name in ("ray.tune", "ray.train", "ray.air"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # failures are reported by us


def _unburden() -> None:
    """Leave out what Tune does for others before it starts.

    For a variable that PyTorch Lightning alone reads, it asks for an environment of the actors'
    own, and so for processes that have yet to start; and to count its callbacks for telemetry,
    which is off, it loads all of MLflow.
    """
    class_cache.DEFAULT_ENV_VARS.clear()
    usage.tag_callbacks = lambda callbacks: False
