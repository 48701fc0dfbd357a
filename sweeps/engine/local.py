"""Trains a sweep in this process, for machines without Ray and MLflow.

The ledger is that of any sweep: `sweeps run STUDY --reuse STORAGE/NAME` publishes it elsewhere.
"""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import privnets
from privnets.data import DataError
from sweeps.engine.early_stopping import StoppingRule
from sweeps.engine.pack_trainer import (
    PackTrainer,
    check_identities,
    describe_failure,
    may_succeed_in_parts,
)
from sweeps.engine.signals import StopRequest, catch_stop_signals
from sweeps.errors import InputError
from sweeps.planning.continuation import prepare_manifest
from sweeps.planning.packing import Capacity, Pack, local_capacity
from sweeps.planning.pending import pending_packs, pending_replicates
from sweeps.planning.plan import Plan, make_plan
from sweeps.store.checkpoints import Checkpoint
from sweeps.store.filesystem import DEFAULT_STORAGE, check_writable, open_directory
from sweeps.store.lease import acquire_lease
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import write_manifest
from sweeps.study.loader import load
from sweeps.study.spec import Study

_TRACKING_URI = "sqlite:///mlflow.db"
"""Store that the manifest names; `sweeps run --reuse` takes its own."""


@dataclass
class LocalTraining:
    """Outcome of a training in this process.

    Attributes:
        sweep: Name of the sweep.
        storage: Directory or URI that contains it.
        trainings: Number of trainings of this part.
        finished: Number of them in the ledger.
        failures: Pack id to the reason of its failure.
        interrupted_by: Signal that ended it early; None without one.
        is_time_over: Whether it ended early because its time was over.
    """

    sweep: str
    storage: str
    trainings: int
    finished: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    interrupted_by: int | None = None
    is_time_over: bool = False


def train(
    study: Study | str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    name: str | None = None,
    storage: str | None = None,
    device: str | None = None,
    pack: int | None = None,
    part: tuple[int, int] = (0, 1),
    minutes: float | None = None,
    on_progress: Callable[[LocalTraining, float], None] = lambda training, share: None,
) -> LocalTraining:
    """Trains what a sweep lacks, in this process; a repeated call continues.

    Args:
        study: A study, a packaged study's name, a path to a YAML file, or a mapping.
        overrides: Changes of the study, as `fixed.train_size=100`.
        name: Name of the sweep; the study's if None. A part i of n is named `NAME-i-of-n`.
        storage: Directory or URI for the sweep's files; `./sweep-results` if None.
        device: Device as torch names it; `cuda` if torch has one, else `cpu`, if None.
        pack: Trainings in a pack; chosen by the cost model if None.
        part: Number of a part, from 0, and number of all parts, which divide the points.
        minutes: Time after which it saves a checkpoint and ends; no limit if None.
        on_progress: Called after each stage with the outcome so far and the share of the pack.

    Raises:
        StudyError: With every mistake of the study.
        InputError: If another argument is invalid, the study's search needs results of all parts,
            or another process trains the sweep.
        Interrupted: After a second signal; what finished is kept.
    """
    started, (number, parts) = time.monotonic(), part
    if not 0 <= number < parts:
        raise InputError(f"part must be a number from 0 and the number of parts; got {part}")
    plan = make_plan(load(study, overrides))
    if plan.is_adaptive:
        raise InputError(
            f"search.algorithm {plan.study.search.algorithm} needs results while it runs: use "
            "`sweeps run`, or grid, random or sobol"
        )
    if plan.study.search.budget is not None:
        raise InputError("search.budget limits runs with Ray: leave it out, or use minutes")
    if pack is not None:
        resources = plan.study.resources.model_copy(update={"pack": pack})
        plan = replace(plan, study=plan.study.model_copy(update={"resources": resources}))
    sweep = (name or plan.study.name) + (f"-{number}-of-{parts}" if parts > 1 else "")
    ledger = Ledger(storage or DEFAULT_STORAGE, sweep)
    command = f"sweeps train {plan.study.name}"
    prepare_manifest(ledger, plan, command=command, tracking_uri=_TRACKING_URI)
    check_writable(open_directory(ledger.storage))
    with catch_stop_signals() as stop, acquire_lease(ledger.directory) as lease:
        ledger = Ledger(ledger.storage, sweep, lease.directory.run_id)
        manifest = prepare_manifest(ledger, plan, command=command, tracking_uri=_TRACKING_URI)
        write_manifest(ledger, manifest)
        lease.phase = "training"
        end = None if minutes is None else started + 60 * minutes
        if device is None:
            import torch

            device = "cuda" if torch.cuda.is_available() else "cpu"
        capacity = local_capacity(plan.study.resources.model_copy(update={"concurrency": 1}))
        if device.startswith("cuda"):
            import torch

            capacity = Capacity(1, int(0.9 * torch.cuda.mem_get_info(device)[0]), on_gpu=True)
        run = _Run(plan, ledger, device, capacity, stop, end, on_progress)
        return run.train(sorted(point.point_id for point in plan.points)[number::parts])


@dataclass
class _Run:
    """Training of some points of a plan."""

    plan: Plan
    ledger: Ledger
    device: str
    capacity: Capacity
    stop: StopRequest
    end: float | None
    on_progress: Callable[[LocalTraining, float], None]

    def train(self, point_ids: list[str]) -> LocalTraining:
        """Trains the points; returns early after a signal, or when the time is over."""
        own, plan = set(point_ids), self.plan
        pending = {k: r for k, r in pending_replicates(plan, self.ledger).items() if k[0] in own}
        trainings = len(point_ids) * len(plan.seeds)
        outcome = LocalTraining(
            self.ledger.sweep, self.ledger.storage, trainings, trainings - len(pending)
        )
        packs = deque(pending_packs(plan, self.ledger, pending, self.capacity))
        while packs and not self._must_end(outcome):
            pack = packs.popleft()
            try:
                if not self._train_pack(pack, outcome):
                    break
                outcome.finished += len(pack.replicates)
            except DataError:
                raise
            except Exception as error:  # of the experiment, which may be the user's code
                # A storage that fails, a sweep taken over, a GPU that this process cannot use.
                if not may_succeed_in_parts(error):
                    raise
                if len(pack.replicates) > 1:
                    Checkpoint(self.ledger, pack.pack_id, "").remove()
                    packs.extend(pack.halves())
                    continue
                outcome.failures[pack.pack_id] = reason = describe_failure(error)
                details = traceback.format_exc()
                self.ledger.write_failure(pack.pack_id, pack.keys, reason, details)
        return outcome

    def _train_pack(self, pack: Pack, outcome: LocalTraining) -> bool:
        """Trains a pack; returns False if it was stopped, after a checkpoint."""
        experiment = privnets.experiment(pack.experiment)
        check_identities(pack, experiment)
        rule = StoppingRule.from_plan(self.plan)
        trainer = PackTrainer(pack, experiment, self.ledger, device=self.device, stopping=rule)
        while not (progress := trainer.advance()).committed:
            self.on_progress(outcome, progress.share)
            if self._must_end(outcome):
                trainer.save()
                return False
        return True

    def _must_end(self, outcome: LocalTraining) -> bool:
        outcome.interrupted_by = self.stop.signal
        outcome.is_time_over = self.end is not None and time.monotonic() >= self.end
        return self.stop.is_requested() or outcome.is_time_over
