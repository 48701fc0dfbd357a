"""Training of one pack, from its checkpoint, if there is one, to the ledger.

The experiment trains all replicates of the pack as one stack, and yields a stage between chunks of
training. A replicate leaves the stack when its training ends, or when early stopping ends it.
"""

from __future__ import annotations

import errno
import math
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from privnets.config import ExperimentConfig
from privnets.contract import Experiment, Rung, Stage, State
from privnets.data import DataError
from privnets.points import Replicate, TradeoffPoint
from privnets.references.user_files import describe_error, is_memory_limited
from sweeps.engine.early_stopping import StoppingRule, dominated_points
from sweeps.planning.packing import Pack
from sweeps.store.checkpoints import Checkpoint, checkpoint_label
from sweeps.store.codec import ReplicateKey
from sweeps.store.lease import RunSupersededError
from sweeps.store.ledger import Ledger

# Torch's errors of a GPU, by name: the driver imports this module without torch.
_GPU_MEMORY_ERROR: Final = "OutOfMemoryError"
_DEVICE_ERRORS: Final = {_GPU_MEMORY_ERROR, "AcceleratorError"}
# A storage with one of these errors does not recover by itself.
_STORAGE_IS_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}

_CHECKPOINT_SECONDS = 20.0
_Stages = Generator[Stage, Sequence[int] | None]


@dataclass(frozen=True, slots=True)
class PackProgress:
    """Progress of a pack.

    Attributes:
        share: Share of the pack's work that is done, in [0, 1].
        committed: Whether the pack is in the ledger.
        problem: Problem that costs time but no results; None without one.
        live: Returns values to watch while training runs.
    """

    share: float
    committed: bool
    problem: str | None = None
    live: Callable[[], Mapping[str, float]] = dict


class PackTrainer:
    """Trains the replicates of a pack that its checkpoint lacks, unless the ledger has the pack."""

    def __init__(
        self,
        pack: Pack,
        experiment: Experiment[Any],
        ledger: Ledger,
        *,
        device: str = "cpu",
        checkpoint_seconds: float = _CHECKPOINT_SECONDS,
        stopping: StoppingRule | None = None,
    ) -> None:
        """Prepares to train; the first call of `advance` starts.

        Args:
            pack: Pack to train.
            experiment: Experiment that trains it.
            ledger: Ledger that receives the finished pack.
            device: Device of the tensors, as torch names it.
            checkpoint_seconds: Shortest time between two checkpoints.
            stopping: Rule of early stopping; None trains every point to its end.
        """
        self._pack = pack
        self._experiment = experiment
        self._device = device
        self._stopping = stopping
        self._ledger = ledger
        self._checkpoint = Checkpoint(ledger, pack.pack_id, checkpoint_label(experiment))
        self._checkpoint_seconds = checkpoint_seconds
        self._saved_at = time.monotonic()
        self._configs: dict[ReplicateKey, ExperimentConfig] = {
            replicate.key: replicate.config for replicate in pack.replicates
        }
        self._points: dict[ReplicateKey, TradeoffPoint] = {}
        self._stage: Stage | None = None
        self._problem: str | None = None
        # Replicates of the stack, and those that have left it. The points of a checkpoint may
        # contain replicates that its state still trains.
        self._stack: list[ReplicateKey] = []
        self._left: set[ReplicateKey] = set()
        points = ledger.read_points([pack.pack_id])
        written = {(point.point_id, r.seed) for point in points for r in point.replicates}
        self._committed = written >= self._configs.keys()
        self._stages = self._resume()

    def advance(self) -> PackProgress:
        """Trains to the next stage; after the last one, commits the pack to the ledger.

        A checkpoint that cannot be used or written is only reported as a problem.

        Raises:
            OSError: If the ledger cannot be written.
            RuntimeError: If the experiment ended without all of the pack's points.
        """
        self._problem = None
        stage = None if self._committed else next(self._stages, None)
        if stage is None:
            if not self._committed:
                if missing := len(self._configs) - len(self._points):
                    raise RuntimeError(f"the experiment ended with {missing} replicates missing.")
                self._ledger.write_pack(self._pack.pack_id, self._points.values())
                self._committed = True
            self._checkpoint.remove()
            return PackProgress(1.0, True, self._problem)
        self._collect(stage)
        if isinstance(stage, Rung) and (positions := self._stop_dominated(stage)):
            self._collect(self._stages.send(positions))
        if time.monotonic() - self._saved_at >= self._checkpoint_seconds:
            try:
                self.save()
            except OSError as error:
                self._problem = f"a checkpoint could not be written: {error}"
        return PackProgress(min(stage.done, 1.0), False, self._problem, stage.live)

    def save(self) -> None:
        """Writes a checkpoint, unless the pack has not started or is committed."""
        if self._committed or self._stage is None:
            return
        self._saved_at = time.monotonic()
        self._checkpoint.save(list(self._points.values()), self._remaining(), self._stage.state())

    def _resume(self) -> _Stages:
        """Stages of the unfinished replicates: from the checkpoint's state, or from the start."""
        saved = self._checkpoint.load()
        for point in saved.points:
            self._add(point)
        fits = set(saved.remaining) | self._points.keys() == self._configs.keys()
        if saved.state is not None and saved.remaining and fits:
            stages = self._train(saved.remaining, saved.state)
            try:
                first = next(stages, None)  # the experiment checks the state
            except ValueError as error:
                self._problem = f"a checkpoint could not be used: {error}"
            else:
                if first is not None:
                    if positions := (yield first):
                        yield stages.send(positions)
                    yield from stages
                return
        if unfinished := [key for key in self._configs if key not in self._points]:
            yield from self._train(unfinished, None)

    def _train(self, stack: Iterable[ReplicateKey], state: State | None) -> _Stages:
        self._stack = list(stack)
        configs = [self._configs[key] for key in self._stack]
        if self._stopping is None:
            yield from self._experiment.stages(configs, self._device, state)
        else:
            rungs = self._stopping.rungs
            yield from self._experiment.stages_with_rungs(configs, rungs, self._device, state)

    def _collect(self, stage: Stage) -> None:
        self._stage = stage
        for point in stage.points:
            self._left.add(self._add(point))
            if point.failure is not None:
                self._problem = f"a point failed: {point.failure}"

    def _remaining(self) -> list[ReplicateKey]:
        """Unfinished replicates, in the stack's order."""
        return [key for key in self._stack if key not in self._left]

    def _stop_dominated(self, rung: Rung) -> list[int]:
        """Stops the replicates of dominated points; returns their positions in the stack.

        Failed points are not compared.
        """
        remaining = self._remaining()
        if (rule := self._stopping) is not None:
            failed = {key[0] for key, point in self._points.items() if point.failure is not None}
            pairs = zip(remaining, rung.estimates, strict=True)
            sound = {key: estimates for key, estimates in pairs if key[0] not in failed}
            points = len({point_id for point_id, _ in self._configs})
            dominated = dominated_points(sound, rule, rule.safe_points(points, rung.share))
            for key in remaining:
                if (better := dominated.get(key[0])) is not None:
                    config = self._configs[key]
                    reason = (
                        f"dominated at {100 * rung.share:g}% of training by point {better} with "
                        f"{100 * rule.confidence:g}% confidence"
                    )
                    metrics = dict.fromkeys(self._experiment.metric_keys(config), math.nan)
                    now = time.time()
                    replicate = Replicate(config.seed, metrics, stopped=reason, finished_at=now)
                    self._add(self._experiment.point(config, replicate))
        # Includes replicates whose points a checkpoint had before its state was written.
        positions = [i for i, key in enumerate(remaining) if key in self._points]
        self._left.update(remaining[i] for i in positions)
        return positions

    def _add(self, point: TradeoffPoint) -> ReplicateKey:
        """Adds the point of one replicate, unless there is one already; returns its key.

        Raises:
            ValueError: If the metrics of the first one are not those that the experiment declares.
        """
        (replicate,) = point.replicates
        key = (point.point_id, replicate.seed)
        if key not in self._configs:
            return key
        if not self._points:
            declared = {*self._experiment.metric_keys(self._configs[key])}
            lacking = ", ".join(sorted(declared - replicate.metrics.keys())) or "none"
            added = ", ".join(sorted(replicate.metrics.keys() - declared)) or "none"
            if declared != replicate.metrics.keys():
                raise ValueError(
                    f"experiment {self._experiment.name!r} must report the metrics of its "
                    f"metric_keys; missing: {lacking}; not declared: {added}"
                )
        self._points.setdefault(key, point)
        return key


def check_identities(pack: Pack, experiment: Experiment[Any]) -> None:
    """Checks that the data and code here give the pack's points their ids.

    Raises:
        DataError: If they do not.
    """
    points = {replicate.point_id: replicate.config for replicate in pack.replicates}
    if any(experiment.point_id(config) != point_id for point_id, config in points.items()):
        raise DataError(
            "the data or code here are not those that the sweep was planned with; to train with "
            "the present ones, run the study under another name"
        )


def may_succeed_in_parts(error: BaseException) -> bool:
    """Whether parts of a pack may succeed: one of its points may have raised the error.

    A storage that fails, a run that has ended and a GPU that is out of order fail them all.
    """
    if isinstance(error, OSError | RunSupersededError):
        return False
    return type(error).__name__ not in _DEVICE_ERRORS - {_GPU_MEMORY_ERROR}


def may_succeed_elsewhere(error: BaseException) -> bool:
    """Whether the same work may succeed on another worker, or later on this one.

    This holds for a storage that fails for a while, for memory that runs out on a machine, and for
    errors of a GPU, after which its process cannot use it. A limit on memory is the same anywhere.
    """
    if isinstance(error, OSError):
        return error.errno not in _STORAGE_IS_FULL
    if isinstance(error, MemoryError):
        return not is_memory_limited()
    return type(error).__name__ in _DEVICE_ERRORS


def describe_failure(error: BaseException) -> str:
    """Type and message of an error, with the innermost file and line outside of libraries."""
    if isinstance(error, OSError | RunSupersededError):
        return f"{type(error).__name__}: {error}"
    return describe_error(error)
