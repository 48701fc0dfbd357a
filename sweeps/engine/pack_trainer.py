"""Training one pack: from its checkpoint if there is one, to the ledger."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from privnets.config import ExperimentConfig
from privnets.contract import Experiment, InterimEstimate, Rung, Stage, State
from privnets.points import Replicate, TradeoffPoint
from sweeps.engine.early_stopping import StoppingRule, leaving
from sweeps.planning.packing import Pack
from sweeps.store.checkpoints import Checkpoint, CheckpointContent, ReplicateKey
from sweeps.store.ledger import Ledger

CHECKPOINT_SECONDS = 20.0

_Stages = Generator[Stage, Sequence[int] | None]


@dataclass(frozen=True, slots=True)
class PackProgress:
    """How far a pack is.

    Attributes:
        share: Of the pack's work, in [0, 1].
        committed: Whether the pack is in the ledger.
        problem: What went wrong on the way and does no harm to the results; None if nothing.
    """

    share: float
    committed: bool
    problem: str | None = None


class PackTrainer:
    """One pack being trained, stage by stage.

    Replicates that a checkpoint holds are not trained again; a pack that is in the ledger is
    not trained at all.
    """

    def __init__(
        self,
        pack: Pack,
        experiment: Experiment,
        ledger: Ledger,
        *,
        device: str = "cpu",
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
        stopping: StoppingRule | None = None,
    ) -> None:
        """Prepare to train; work begins with the first `advance`.

        Args:
            pack: What to train.
            experiment: Which trains it.
            ledger: Where it ends up.
            device: Where tensors live, as torch names it.
            checkpoint_seconds: Shortest time between two checkpoints.
            stopping: When points leave the stack before the end; never if None.
        """
        self._pack = pack
        self._experiment = experiment
        self._device = device
        self._stopping = stopping
        self._ledger = ledger
        self._checkpoint = Checkpoint(ledger, pack.pack_id, label(experiment))
        self._every = checkpoint_seconds
        self._saved_at = time.monotonic()
        self._configs: dict[ReplicateKey, ExperimentConfig] = {
            (r.point_id, r.seed): r.config for r in pack.replicates
        }
        self._points: dict[ReplicateKey, TradeoffPoint] = {}
        self._stage: Stage | None = None
        self._problem: str | None = None
        # Of this stack; a point that was kept before its state was may come a second time.
        self._ended: set[ReplicateKey] = set()
        self._committed = self._in_ledger()
        self._stages = self._resumed()

    def advance(self) -> PackProgress:
        """Train one stage; after the last, commit the pack and drop its checkpoint.

        That a checkpoint cannot be used or written costs time at worst, so it is told and no more.

        Raises:
            OSError: If the ledger cannot be written.
            RuntimeError: If the experiment ended without all the points asked for.
        """
        self._problem = None
        stage = None if self._committed else next(self._stages, None)
        if stage is None:
            self._commit()
            return PackProgress(1.0, True, self._problem)
        self._take(stage)
        if isinstance(stage, Rung) and (places := self._halve(stage)):
            self._take(self._stages.send(places))
        if time.monotonic() - self._saved_at >= self._every:
            self._try_to_save()
        return PackProgress(min(stage.done, 1.0), False, self._problem)

    def save(self) -> None:
        """Keep the pack as it stands, if it is under way.

        Raises:
            OSError: If it cannot be written.
        """
        if self._committed or self._stage is None:
            return
        self._checkpoint.save(list(self._points.values()), self._rest(), self._stage.state())
        self._saved_at = time.monotonic()

    def _try_to_save(self) -> None:
        try:
            self.save()
        except OSError as error:
            self._saved_at = time.monotonic()
            self._problem = f"a checkpoint could not be written: {error}"

    def _in_ledger(self) -> bool:
        points = self._ledger.read_points([self._pack.pack_id])
        return {(p.point_id, r.seed) for p in points for r in p.replicates} >= set(self._configs)

    def _saved(self) -> CheckpointContent:
        try:
            return self._checkpoint.load()
        except OSError as error:
            self._problem = f"a checkpoint could not be looked for: {error}"
            return CheckpointContent()

    def _resumed(self) -> _Stages:
        """The stages of what is not finished: on from a state that can be used, or all of them."""
        saved = self._saved()
        for point in saved.points:
            self._keep(point)
        if saved.state is not None and saved.remaining and self._fits(saved):
            stages = self._begun(saved.remaining, saved.state)
            try:
                first = next(stages, None)
            except ValueError as error:
                self._problem = f"a checkpoint was of no use: {error}"
            else:
                if first is not None:
                    yield from _again(first, stages)
                return
        pending_replicates = [member for member in self._configs if member not in self._points]
        if pending_replicates:
            yield from self._begun(pending_replicates, None)

    def _begun(self, stack: Iterable[ReplicateKey], state: State | None) -> _Stages:
        self._stack = list(stack)
        configs = [self._configs[member] for member in self._stack]
        if self._stopping is None:
            yield from self._experiment.stages(configs, self._device, state)
        else:
            shares = self._stopping.rungs
            yield from self._experiment.stages_with_rungs(configs, shares, self._device, state)

    def _fits(self, saved: CheckpointContent) -> bool:
        members = set(self._configs)
        return (
            set(saved.remaining) <= members and set(saved.remaining) | set(self._points) == members
        )

    def _take(self, stage: Stage) -> None:
        self._stage = stage
        for point in stage.points:
            self._ended.add(self._keep(point))

    def _rest(self) -> list[ReplicateKey]:
        """The unfinished, in the stack's order."""
        return [member for member in self._stack if member not in self._ended]

    def _halve(self, rung: Rung) -> list[int]:
        """Keep those that leave at a rung as stopped; their places among the unfinished."""
        rest = self._rest()
        reasons = self._dominated(dict(zip(rest, rung.estimates, strict=True)), rung.share)
        for member in rest:
            if (point_id := member[0]) in reasons:
                self._keep(self._stopped(member, reasons[point_id]))
        # Whoever is kept already, in a checkpoint's points ahead of its state, leaves as well.
        places = [i for i, member in enumerate(rest) if member in self._points]
        self._ended.update(rest[i] for i in places)
        return places

    def _dominated(
        self, estimates: Mapping[ReplicateKey, Mapping[str, InterimEstimate]], share: float
    ) -> dict[str, str]:
        """Point to why it is to leave; one that fails anyway takes no part."""
        if self._stopping is None:
            return {}
        failed = {point.point_id for point in self._points.values() if point.failure is not None}
        sound = {member: each for member, each in estimates.items() if member[0] not in failed}
        room = self._stopping.room(len({point_id for point_id, _ in self._configs}), share)
        found = leaving(sound, self._stopping, room)
        when, how = f"{100 * share:g}% of training", f"{100 * self._stopping.confidence:g}%"
        return {
            point_id: f"dominated at {when} by point {better} with {how} confidence"
            for point_id, better in found.items()
        }

    def _stopped(self, member: ReplicateKey, reason: str) -> TradeoffPoint:
        config = self._configs[member]
        metrics = dict.fromkeys(self._experiment.metric_keys(config), math.nan)
        replicate = Replicate(config.seed, metrics, stopped=reason, finished_at=time.time())
        return self._experiment.point(config, replicate)

    def _keep(self, point: TradeoffPoint) -> ReplicateKey:
        (replicate,) = point.replicates
        member = (point.point_id, replicate.seed)
        if member in self._configs:
            self._points.setdefault(member, point)
        return member

    def _commit(self) -> None:
        if not self._committed:
            if missing := len(self._configs) - len(self._points):
                raise RuntimeError(f"the experiment ended with {missing} replicates missing.")
            self._ledger.write_pack(self._pack.pack_id, self._points.values())
            self._committed = True
        self._checkpoint.remove()


def _again(first: Stage, stages: _Stages) -> _Stages:
    """Stages whose first was taken to see whether it is to be had."""
    if places := (yield first):
        yield stages.send(places)
    yield from stages


def label(experiment: Experiment) -> str:
    """What a checkpoint must have in common with the code that continues it."""
    return f"{experiment.name} {experiment.version} {version('privnets-sweeps')}"
