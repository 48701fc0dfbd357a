"""Trains what a sweep lacks on Ray, and keeps the tally."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import privnets
from sweeps.engine.capacity import (
    Capacity,
    cluster_capacity,
    pack_costs,
    pending_packs,
    pending_replicates,
)
from sweeps.engine.counting import BackgroundCall, SweepCounter, SweepCounts
from sweeps.engine.early_stopping import StoppingRule
from sweeps.engine.progress import SweepProgress, Tally
from sweeps.engine.signals import StopRequest
from sweeps.engine.waiting import lack, wait_for_capacity
from sweeps.planning.calibration import CalibrationSettings, calibrate
from sweeps.planning.packing import Pack
from sweeps.planning.plan import Plan, PlannedReplicate
from sweeps.store.checkpoints import ReplicateKey
from sweeps.store.ledger import Ledger

if TYPE_CHECKING:
    from cluster.connection import Connection, Machine

_TICK_SECONDS = 0.5
_LOOK_SECONDS = 5.0
# Packs are cut for so many times the workers that there are, where more may come: few open
# clusters tell how large they may become, and smaller packs cost a little even where none come.
_GROWTH = 2


class ProgressTracker:
    """What the Tune loop tells: counted, shown, and failures written down.

    Attributes:
        failures: Packs that came to nothing, with the reason.
        problems: What else went wrong, in words.
    """

    def __init__(self, ledger: Ledger, plan: Plan, *shows: Callable[[SweepProgress], None]) -> None:
        """Begin with what the ledger holds.

        Args:
            ledger: The sweep's.
            plan: The sweep's.
            shows: Called with every new state, each until it fails.
        """
        self.failures: dict[str, str] = {}
        self.problems: list[str] = []
        self._ledger = ledger
        self._shows = list(shows)
        self._machines: Callable[[], Sequence[Machine]] = tuple
        self._resources = plan.study.resources
        self._looked_at = -math.inf
        self._packs: dict[str, Pack] = {}
        self._standing = BackgroundCall(SweepCounter(ledger, plan.seeds, plan.objectives).read)
        trainings = len(plan.points) * len(plan.seeds)
        self._tally = Tally(len(plan.points), self._standing.latest, trainings)
        self._shown_at = 0.0
        self._noted: set[str] = set()

    def expect(self, packs: list[Pack]) -> None:
        """Note the packs of this run."""
        self._packs = {pack.pack_id: pack for pack in packs}
        self._tally.begin(pack_costs(packs))
        self.show()

    @contextmanager
    def doing(self, what: str) -> Iterator[Callable[[], None]]:
        """A block before training that shows what is done, once it says so.

        Args:
            what: In words.

        Yields:
            What to call when it begins.
        """

        def begin() -> None:
            self._tally.doing = what
            self.show()

        try:
            yield begin
        finally:
            self._tally.doing = None

    def tick(self) -> None:
        """A moment has passed."""
        if time.monotonic() - self._shown_at >= _TICK_SECONDS:
            self._tell(self._standing.poll)

    def show(self) -> None:
        """Show how things stand now."""
        self._tell(self._standing.now)

    def _tell(self, standing: Callable[[], SweepCounts]) -> None:
        self._shown_at = time.monotonic()
        with self.noting("progress could not be told"):
            self._tally.standing = standing()
            self._look()
            progress = self._tally.progress()
            shows, self._shows = self._shows, []
            for show in shows:
                with self.noting("progress could not be told"):
                    show(progress)
                    self._shows.append(show)  # not one that failed: nobody sees it any more

    @contextmanager
    def working_on(self, machines: Callable[[], Sequence[Machine]]) -> Iterator[None]:
        """A block that trains.

        Args:
            machines: Gives those that are alive.
        """
        self._machines = machines
        try:
            yield
        finally:
            self._machines, self._looked_at = tuple, -math.inf

    def _look(self) -> None:
        """See, every few seconds, which machines there are: they come and go."""
        if time.monotonic() - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        machines = self._machines()
        self._tally.work_on(machines, self._resources.cpus, self._resources.gpus)
        self._tally.lack = lack(machines, self._resources)

    @contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """A block whose failure is a problem and no reason to end: the first of a kind is noted.

        Args:
            what: Went wrong, in words.
        """
        try:
            yield
        except Exception as error:  # whatever it is, packs in hand are worth more
            self.troubled(f"{what}: {type(error).__name__}: {error}")

    def waits(self, waits: bool) -> None:
        """Whether no pack can be trained for want of room."""
        self._tally.wait(waits)

    def began(self, pack: str) -> None:
        """A pack is in training."""
        self._tally.start(pack)

    def dropped(self, pack: str, reason: str) -> None:
        """A pack was lost, and will be tried again."""
        self._looked_at = -math.inf
        with self.noting("progress could not be told"):
            self._look()
        self._tally.drop(pack, reason)
        self._tell(self._standing.poll)

    def advanced(self, pack: str, share: float, node: str) -> None:
        """A pack has come so far, on a node of Ray's."""
        self._tally.advance(pack, share, node)

    def troubled(self, problem: str) -> None:
        """Something went wrong that does a pack no harm; the first of a kind is noted."""
        kind = problem.partition(":")[0]
        if kind not in self._noted:
            self._noted.add(kind)
            self.problems.append(problem)

    def failed(self, pack: str, reason: str, details: str) -> None:
        """A pack has come to nothing."""
        members = [[r.point_id, r.seed] for r in self._packs[pack].replicates]
        self.failures[pack] = reason
        self._tally.lose(pack, {str(point_id) for point_id, _ in members})
        record = {"reason": reason, "members": members, "details": details}
        try:
            self._ledger.write_failure(pack, record)
        except OSError as error:
            self.problems.append(f"the failure of pack {pack} could not be written down: {error}")


def run_pending_packs(
    plan: Plan,
    ledger: Ledger,
    *,
    storage: str,
    address: str | None,
    remedy: str,
    watch: ProgressTracker,
    interruption: StopRequest,
) -> None:
    """Train every replicate that the ledger lacks.

    Returns early when interrupted, with the packs in hand kept as checkpoints.

    Args:
        plan: What the sweep trains.
        ledger: What it has.
        storage: Absolute path or URI of the storage.
        address: Of the Ray cluster; None starts a local one.
        remedy: What the user can do if the cluster's head goes, in words.
        watch: Told what happens.
        interruption: Asked often whether to end.

    Raises:
        ConnectError: If there is no Ray.
        Interrupted: If a signal came while Ray was started, or a second one did.
        InputError: If Ray has not what a pack is to be given.
    """
    missing = pending_replicates(plan, ledger)
    if not missing:
        return
    with interruption.interruptible():
        connection = _connected(plan, address, remedy)
    with connection, _state_directory(ledger) as state:
        from sweeps.engine.tune_backend import Carriage, carry

        work = _Work(plan, ledger, missing, watch, interruption.is_requested)
        machines = wait_for_capacity(
            connection, plan.study.resources, watch, interruption.is_requested
        )
        if interruption.is_requested():
            return
        room = cluster_capacity(machines, plan.study.resources)
        packs = work.cut(machines, room, _GROWTH if connection.has_autoscaler() else 1)
        watch.expect(packs)
        carriage = Carriage(
            storage=storage,
            sweep=ledger.sweep,
            run=ledger.run_id,
            state=state,
            resources=plan.study.resources,
            concurrency=room.workers,
            machines=None if connection.started else connection.machines,
            grows=connection.has_autoscaler,
            stopping=StoppingRule.from_plan(plan),
        )
        if not interruption.is_requested():
            with watch.working_on(connection.machines):
                carry(packs, carriage, watch, interruption.is_requested)
        watch.show()


@dataclass(frozen=True, slots=True)
class _Work:
    """What is to be trained, and who is told of it."""

    plan: Plan
    ledger: Ledger
    missing: dict[ReplicateKey, PlannedReplicate]
    watch: ProgressTracker
    stopping: Callable[[], bool]

    def cut(self, machines: Sequence[Machine], room: Capacity, growth: int) -> list[Pack]:
        """Packs of it, for so many times the workers that there is room for."""
        study = self.plan.study
        with self.watch.doing("measuring pack sizes") as begun:
            known = calibrate(
                study.experiment,
                list(self.missing.values()),
                CalibrationSettings(study.resources, machines, room.workers, room.memory),
                is_stopping=self.stopping,
                on_measure=begun,
            )
        for problem in known.problems:
            self.watch.troubled(problem)
        wide = room.on_gpus(known.memory).times(growth, study.resources)
        return pending_packs(self.plan, self.ledger, self.missing, wide, known.curves)


def _connected(plan: Plan, address: str | None, remedy: str) -> Connection:
    """Join a Ray, or start one that is no larger than packs need and loads what they need."""
    from cluster.connection import connect, local_machine

    if address is not None:
        return connect(address, advice=remedy)
    resources = plan.study.resources
    cpus = resources.cpus * cluster_capacity([local_machine()], resources).workers
    experiment = privnets.experiment(plan.study.experiment)
    own = (type(experiment).__module__, *experiment.training_modules)
    modules = ("sweeps.engine.preload", "sweeps.engine.worker", *own)
    return connect(cpus=max(1, math.ceil(cpus)), modules=modules, advice=remedy)


@contextmanager
def _state_directory(ledger: Ledger) -> Iterator[Path]:
    """Where Tune keeps its own state, which nothing ever reads: it is emptied before each run."""
    local = ledger.directory.local_path
    if local is None:
        with TemporaryDirectory(prefix="sweeps-tune-") as folder:
            yield Path(folder, "tune")
        return
    (ledger.directory / "tune").remove()
    yield local / "tune"
