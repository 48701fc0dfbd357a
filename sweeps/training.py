"""Training one pack: from its checkpoint if there is one, to the ledger."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version

from privnets.config import ExperimentConfig
from privnets.contract import Experiment, Stage, State
from privnets.points import TradeoffPoint
from sweeps.checkpoints import Checkpoint, Member, Saved
from sweeps.ledger import Ledger
from sweeps.packing import Pack

CHECKPOINT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Advance:
    """How far a pack is.

    Attributes:
        share: Of the pack's work, in [0, 1].
        committed: Whether the pack is in the ledger.
        problem: What went wrong on the way and does no harm to the results; None if nothing.
    """

    share: float
    committed: bool
    problem: str | None = None


class PackRun:
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
    ) -> None:
        """Prepare to train; work begins with the first `advance`.

        Args:
            pack: What to train.
            experiment: Which trains it.
            ledger: Where it ends up.
            device: Where tensors live, as torch names it.
            checkpoint_seconds: Shortest time between two checkpoints.
        """
        self._pack = pack
        self._ledger = ledger
        self._checkpoint = Checkpoint(ledger, pack.pack_id, label(experiment))
        self._every = checkpoint_seconds
        self._saved_at = time.monotonic()
        self._configs: dict[Member, ExperimentConfig] = {
            (r.point_id, r.seed): r.config for r in pack.replicates
        }
        self._points: dict[Member, TradeoffPoint] = {}
        self._stage: Stage | None = None
        self._problem: str | None = None
        # Of this stack; a point that was kept before its state was may come a second time.
        self._ended: set[Member] = set()
        self._committed = self._in_ledger()
        self._stages = iter(()) if self._committed else self._resumed(experiment, device)

    def advance(self) -> Advance:
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
            return Advance(1.0, True, self._problem)
        self._take(stage)
        if time.monotonic() - self._saved_at >= self._every:
            self._try_to_save()
        return Advance(min(stage.done, 1.0), False, self._problem)

    def save(self) -> None:
        """Keep the pack as it stands, if it is under way.

        Raises:
            OSError: If it cannot be written.
        """
        if self._committed or self._stage is None:
            return
        rest = [member for member in self._stack if member not in self._ended]
        self._checkpoint.save(list(self._points.values()), rest, self._stage.state())
        self._saved_at = time.monotonic()

    def _try_to_save(self) -> None:
        try:
            self.save()
        except OSError as error:
            self._saved_at = time.monotonic()
            self._problem = f"a checkpoint could not be written: {error}"

    def _in_ledger(self) -> bool:
        points = self._ledger.points([self._pack.pack_id])
        return {(p.point_id, r.seed) for p in points for r in p.replicates} >= set(self._configs)

    def _resumed(self, experiment: Experiment, device: str) -> Iterator[Stage]:
        """The stages of what is not finished: on from a state that can be used, or all of them."""
        saved = self._checkpoint.load()
        for point in saved.points:
            self._keep(point)
        if saved.state is not None and saved.rest and self._fits(saved):
            stages = self._begun(saved.rest, experiment, device, saved.state)
            try:
                first = next(stages, None)
            except ValueError as error:
                self._problem = f"a checkpoint was of no use: {error}"
            else:
                if first is not None:
                    yield first
                    yield from stages
                return
        untrained = [member for member in self._configs if member not in self._points]
        if untrained:
            yield from self._begun(untrained, experiment, device, None)

    def _begun(
        self, stack: Iterable[Member], experiment: Experiment, device: str, state: State | None
    ) -> Iterator[Stage]:
        self._stack = list(stack)
        configs = [self._configs[member] for member in self._stack]
        yield from experiment.stages(configs, device, state)

    def _fits(self, saved: Saved) -> bool:
        members = set(self._configs)
        return set(saved.rest) <= members and set(saved.rest) | set(self._points) == members

    def _take(self, stage: Stage) -> None:
        self._stage = stage
        for point in stage.points:
            self._ended.add(self._keep(point))

    def _keep(self, point: TradeoffPoint) -> Member:
        (replicate,) = point.replicates
        member = (point.point_id, replicate.seed)
        if member in self._configs:
            self._points.setdefault(member, point)
        return member

    def _commit(self) -> None:
        if not self._committed:
            if missing := len(self._configs) - len(self._points):
                raise RuntimeError(f"the experiment ended with {missing} replicates missing.")
            self._ledger.write(self._pack.pack_id, self._points.values())
            self._committed = True
        self._checkpoint.remove()


def label(experiment: Experiment) -> str:
    """What a checkpoint must have in common with the code that continues it."""
    return f"{experiment.name} {experiment.version} {version('privnets-sweeps')}"
