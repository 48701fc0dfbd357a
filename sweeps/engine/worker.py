"""Ray Tune worker that trains one pack after another."""

from __future__ import annotations

import json
import resource
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from socket import gethostname
from typing import Any, Final

import ray
from ray import tune

import privnets
from privnets.data import DataError
from privnets.references.user_files import set_portable_folder
from sweeps.engine.early_stopping import StoppingRule
from sweeps.engine.pack_trainer import (
    PackProgress,
    PackTrainer,
    check_identities,
    describe_failure,
    may_succeed_elsewhere,
    may_succeed_in_parts,
)
from sweeps.planning.devices import select_device
from sweeps.planning.packing import Pack
from sweeps.planning.plan import PlannedReplicate
from sweeps.process import raise_gc_thresholds
from sweeps.store.lease import RunSupersededError
from sweeps.store.ledger import Ledger

# All reports pass through the driver's single loop, and a stage may be as short as a point.
_REPORT_SECONDS: Final = 0.5
_SHORTEST_WAIT_SECONDS: Final = 0.01
_ALLOCATED: Final = "VmData:"


class Worker(tune.Trainable):
    """Ray actor that trains one pack after another, all in one Tune trial.

    The driver gives it each pack by a call of `accept`, which runs between two steps. Tune gets
    only progress. Results and checkpoints go to the sweep's storage, because Tune would unpickle
    its own checkpoints.
    """

    _trainer: PackTrainer | None = None
    _content: str | None = None  # pack in training, encoded
    _size = 0  # its trainings
    _is_leaving = False
    _wait = _SHORTEST_WAIT_SECONDS

    def setup(  # type: ignore[override]
        self,
        config: dict[str, Any],
        *,
        storage: str,
        sweep: str,
        run_id: str | None,
        stopping: StoppingRule | None,
        folder: str,
        memory_limit: float | None,
    ) -> None:
        """Prepares the actor.

        Args:
            config: Unused; all trials are equal.
            storage: Absolute path or URI of the storage.
            sweep: Name of the sweep.
            run_id: Id of the run; its lease is checked before every write.
            stopping: Rule by which points leave packs early; None keeps all.
            folder: The study's folder, as `portable_folder` describes it.
            memory_limit: GiB that each process may allocate for packs; None without a limit.
        """
        raise_gc_thresholds()
        context = ray.get_runtime_context()
        assigned = context.get_assigned_resources()  # type: ignore[no-untyped-call]
        self._node = context.get_node_id()
        self._device = select_device(float(assigned.get("GPU", 0)), float(assigned.get("CPU", 0)))
        self._ledger = Ledger(storage, sweep, run_id)
        self._stopping = stopping
        set_portable_folder(folder)
        if memory_limit is not None:
            # Limits what this process, and each of its children, may allocate from now on.
            status = Path("/proc/self/status")
            lines = status.read_text().splitlines() if status.exists() else []
            allocated = sum(
                1024 * int(line.split()[1]) for line in lines if line.startswith(_ALLOCATED)
            )
            _, most = resource.getrlimit(resource.RLIMIT_DATA)
            resource.setrlimit(resource.RLIMIT_DATA, (allocated + int(memory_limit * 2**30), most))

    def accept(self, content: str) -> None:
        """Accepts the next pack, encoded by `encode_pack`; the next step loads it."""
        self._trainer, self._content, self._size = None, content, 0
        self._wait = _SHORTEST_WAIT_SECONDS

    def leave(self) -> None:
        """Ends the trial at the next step, so that others can use its resources."""
        self._is_leaving = True

    def step(self) -> dict[str, Any]:
        """Trains for half a second, or for one stage that takes longer; waits without a pack.

        The driver gives the pack to another worker after any error that this method raises. An
        error that would occur again is reported instead, and the pack fails: an exception of the
        experiment, a full storage, a run that has ended.

        Returns:
            `done`, and without a pack `worker`, the handle that accepts one. With a pack `share`,
            `live`, `node` and `has_ended`; `problem`, `failure`, `details`, texts or None;
            `divides`: whether parts of the failed pack may succeed.
        """
        if self._content is None or self._is_leaving:
            if not self._is_leaving:  # waits longer each time: a report costs the driver some time
                time.sleep(self._wait)
                self._wait = min(2 * self._wait, _REPORT_SECONDS)
            return {"done": self._is_leaving, "worker": ray.get_runtime_context().current_actor}
        failure, details, divides = None, None, False
        try:
            self._trainer = self._trainer or self._load_pack(self._content)
            progress = train_for(_REPORT_SECONDS, self._trainer)
            live = {name: float(value) for name, value in progress.live().items()}
        except DataError as error:  # another node may have the data
            address = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
            host = f"{gethostname()} ({address})"
            raise DataError(f"node {host}: {error}") from error
        # Ray takes the last two for its own, whoever raises them.
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            divides = self._size > 1 and may_succeed_in_parts(error)
            if may_succeed_elsewhere(error) and not divides:
                raise
            progress, live = PackProgress(1.0, committed=True), {}
            failure, details = describe_failure(error), traceback.format_exc()
        if progress.committed:
            self._trainer = self._content = None
        return {
            "done": False,
            "share": progress.share,
            "live": live,
            "node": self._node,
            "has_ended": progress.committed,
            "problem": progress.problem,
            "failure": failure,
            "details": details,
            "divides": divides,
        }

    def cleanup(self) -> None:
        """Writes a checkpoint of the pack in training when the sweep is stopped."""
        if self._trainer is not None:
            with suppress(RunSupersededError):
                self._trainer.save()

    def _load_pack(self, content: str) -> PackTrainer:
        pack_id, name, members = json.loads(content)
        config = privnets.experiment(name).Config
        replicates = tuple(
            PlannedReplicate(point_id, seed, config.model_validate(values))
            for point_id, seed, values in members
        )
        pack = Pack(pack_id, name, replicates)
        self._size = len(pack.replicates)
        experiment = privnets.experiment(pack.experiment)
        check_identities(pack, experiment)
        return PackTrainer(
            pack,
            experiment,
            self._ledger,
            device=self._device,
            stopping=self._stopping,
        )


def train_for(seconds: float, trainer: PackTrainer) -> PackProgress:
    """Trains as many stages as the time allows, at least one; reports their first problem."""
    deadline = time.monotonic() + seconds
    problem = None
    while True:
        progress = trainer.advance()
        problem = problem or progress.problem
        if progress.committed or time.monotonic() >= deadline:
            return replace(progress, problem=problem)


def encode_pack(pack: Pack) -> str:
    """Encodes a pack as JSON, which costs less to send to every worker than objects do."""
    members = [
        [replicate.point_id, replicate.seed, replicate.config.model_dump(mode="json")]
        for replicate in pack.replicates
    ]
    return json.dumps([pack.pack_id, pack.experiment, members])
