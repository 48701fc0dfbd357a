"""Progress of a running sweep: collects workers' reports and the ledger's counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sweeps.analysis.text import format_count
from sweeps.engine.sweep_counts import SweepCounter, SweepCounts
from sweeps.planning.packing import Pack
from sweeps.planning.plan import Plan, format_duration
from sweeps.store.lease import ResourceUse
from sweeps.store.ledger import Ledger

if TYPE_CHECKING:
    from cluster.connection import Machine

_UPDATE_SECONDS: Final = 0.5
_MACHINES_SECONDS: Final = 5.0
_JOIN_SECONDS: Final = 5.0
# Share of the time that reading the ledger may take, so that it does not slow down the sweep.
_COUNTING_SHARE: Final = 0.05
# Actors need a while to get free resources.
_WAITING_SECONDS: Final = 10.0
_MIN_SHARE_FOR_ETA: Final = 0.02
_MAX_REASON: Final = 200
_NODE_DIED: Final = "its node has died"  # Ray's words about an actor


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """Progress of a sweep.

    Attributes:
        points: Points of the sweep.
        done: Complete points, failed and stopped ones included.
        failed: Points that failed, or whose pack failed.
        share: Share of this run's work that is done, in [0, 1].
        rate: Points per minute in this run; None before the first.
        eta: Estimated seconds left; None while unknown.
        front: Points on the front.
        best: Best value of each objective on the front, by metric.
        doing: Preparation in progress, in words; None while packs are trained.
        stopped: Points that were stopped early.
        use: Resources in use; None before they are known.
        trainings: Replicates finished, and replicates in all; None if unknown.
        waiting: What training waits for, in words; None while packs are trained.
        setbacks: Number of warnings, mostly of packs that were lost and are tried again.
        setback: The last warning.
    """

    points: int
    done: int
    failed: int
    share: float
    rate: float | None
    eta: float | None
    front: int
    best: Mapping[str, float]
    doing: str | None = None
    stopped: int = 0
    use: ResourceUse | None = None
    trainings: tuple[int, int] | None = None
    waiting: str | None = None
    setbacks: int = 0
    setback: str | None = None

    def __str__(self) -> str:
        """One line with everything."""
        parts = (self.describe_training(), self.describe_points(), self.describe_front())
        return ", ".join(part for part in parts if part)

    def describe_training(self) -> str:
        """Current work, its share and the time left."""
        if self.doing is not None:
            return self.doing
        if self.share >= 1:
            return "all trained, the report and MLflow come next"
        if self.waiting is not None:
            return f"{self.share:.0%} trained, {self.waiting}"
        if self.eta is None:
            return f"{self.share:.0%} trained"
        seconds = self.eta if self.eta < 20 else round(self.eta, -1)
        return f"{self.share:.0%} trained, about {format_duration(seconds)} left"

    def describe_points(self) -> str:
        """Counts of points, and their rate; the points of a pack are done at its end."""
        parts = [f"{self.done:,} of {format_count(self.points, 'point')} done"]
        if self.trainings is not None and self.trainings[1] > self.points:
            parts[0] += f" ({self.trainings[0]:,} of {format_count(self.trainings[1], 'training')})"
        parts += [f"{self.failed} failed"] if self.failed else []
        parts += [f"{self.stopped} stopped early"] if self.stopped else []
        parts += [f"{self.rate:.1f} points per minute"] if self.rate is not None else []
        if self.done < self.points and self.doing is None and self.use and self.use.packs:
            parts += [f"{format_count(self.use.packs, 'pack')} in training"]
        return ", ".join(parts)

    def describe_front(self) -> str:
        """Size and best values of the front; empty while there is none."""
        best = ", ".join(f"{metric} {value:.3g}" for metric, value in self.best.items())
        return f"front of {self.front} (best {best})" if self.front else ""


Display = Callable[[SweepProgress], None]


@dataclass
class ProgressTracker:
    """Collects workers' reports and the ledger's counts, and shows them as `SweepProgress`.

    Reports come from the scheduler's thread; `displaying` shows them in a thread of its own.

    Attributes:
        plan: Plan of the sweep.
        ledger: Ledger of the sweep.
        displays: Functions that show progress; one that fails is not called again.
        doing: Preparation in progress, in words; None while packs are trained.
        waiting_for: What packs wait for while none is in training, in words.
        machines: Returns the machines of the cluster that are alive.
        failures: Packs that failed permanently, with the reason.
        problems: Problems that did not end the run, in words.
    """

    plan: Plan
    ledger: Ledger
    displays: list[Display] = field(default_factory=list)
    doing: str | None = None
    waiting_for: Callable[[Sequence[Machine]], str] = lambda machines: "waiting for resources"
    machines: Callable[[], Sequence[Machine]] = tuple
    failures: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Starts without counts; the first update reads the ledger."""
        self._counter = SweepCounter(self.ledger, self.plan.seeds, self.plan.objectives)
        self._counts = SweepCounts()
        self._complete_before: int | None = None
        self._next_count = self._next_machines = 0.0
        self._alive: Sequence[Machine] = ()
        self._hosts: dict[str, str] = {}
        self._lock = threading.RLock()
        self._packs: dict[str, Pack] = {}
        self._costs: dict[str, float] = {}
        self._shares: dict[str, float] = {}
        self._nodes: dict[str, str | None] = {}  # of packs in training
        self._failed_points: set[str] = set()
        self._setbacks: list[str] = []
        self._started_at = time.monotonic()
        self._waiting_since: float | None = None
        self._waited = 0.0

    def expect(self, packs: Sequence[Pack], costs: Mapping[str, float]) -> None:
        """Adds the packs of a round; the first round starts the clock.

        Args:
            packs: Packs that will be trained.
            costs: Pack id to its cost, in seconds of one core.
        """
        with self._lock:
            if not self._packs:
                self._started_at = time.monotonic()
            self._packs.update({pack.pack_id: pack for pack in packs})
            self._costs.update(costs)

    def start_pack(self, pack_id: str) -> None:
        """Records that a pack is in training, on a node that is not known yet."""
        with self._lock:
            self._nodes[pack_id] = None

    def advance_pack(self, pack_id: str, share: float, node: str) -> None:
        """Records the progress of a pack in training.

        Args:
            pack_id: The pack.
            share: Share of its work that is done, in [0, 1].
            node: Ray's id of the node that trains it.
        """
        with self._lock:
            self._shares[pack_id] = share
            self._nodes[pack_id] = node
            if share >= 1:
                del self._nodes[pack_id]

    def lose_pack(self, pack_id: str, reason: str) -> None:
        """Records that a worker was lost; its pack will be tried again."""
        self._update_machines(at_once=True)
        with self._lock:
            node = self._nodes.pop(pack_id, None)
            effect = "its pack continues from its last checkpoint, or from the start"
            if node is not None and not self._is_alive(node):
                setback = f"node {self._hosts[node]} ({node[:8]}) was lost: {effect}"
            elif _NODE_DIED in reason:
                setback = f"a node was lost: {effect}"
            else:
                setback = f"a worker was lost: {effect} ({reason[:_MAX_REASON]})"
            self._setbacks.append(setback)

    def fail_pack(self, pack_id: str, reason: str, details: str) -> None:
        """Records that a pack failed permanently, here and in the sweep's storage."""
        members = [[r.point_id, r.seed] for r in self._packs[pack_id].replicates]
        with self._lock:
            self.failures[pack_id] = reason
            self._failed_points.update(str(point_id) for point_id, _ in members)
            self._shares[pack_id] = 1.0
            self._nodes.pop(pack_id, None)
        with self.recording(f"the failure of pack {pack_id} could not be stored"):
            record = {"reason": reason, "members": members, "details": details}
            self.ledger.write_failure(pack_id, record)

    def set_waiting(self, is_waiting: bool) -> None:
        """Records whether packs wait for resources and none is in training."""
        now = time.monotonic()
        with self._lock:
            if is_waiting and self._waiting_since is None:
                self._waiting_since = now
            elif not is_waiting and self._waiting_since is not None:
                self._waited += now - self._waiting_since
                self._waiting_since = None

    def warn(self, problem: str) -> None:
        """Records a problem that displays show at once."""
        self.add_problem(problem)
        with self._lock:
            self._setbacks.append(problem)

    def add_problem(self, problem: str) -> None:
        """Records a problem; of those with the same words before the colon only the first."""
        kind = problem.partition(":")[0]
        with self._lock:
            if all(kind != known.partition(":")[0] for known in self.problems):
                self.problems.append(problem)

    @contextmanager
    def recording(self, what: str) -> Iterator[None]:
        """Block whose exceptions are recorded as problems: training is worth more than it.

        Args:
            what: What failed, in words.
        """
        try:
            yield
        except Exception as error:
            self.add_problem(f"{what}: {type(error).__name__}: {error}")

    @contextmanager
    def displaying(self) -> Iterator[None]:
        """Shows progress twice a second while the block runs, and once at its end.

        The last time is left out if the thread hangs, in a call of a Ray that died for example.
        """
        is_over = threading.Event()

        def keep_showing() -> None:
            self.show()
            while not is_over.wait(_UPDATE_SECONDS):
                self.show()

        thread = threading.Thread(target=keep_showing, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.machines = tuple
            is_over.set()
            thread.join(_JOIN_SECONDS)
            if not thread.is_alive():
                self._next_count = 0.0
                self.show()

    def show(self) -> None:
        """Reads what is new and calls every display."""
        self._update_machines()
        with self.recording("progress could not be read"):
            self._update_counts()
            progress = self.snapshot()
            for display in list(self.displays):
                try:
                    display(progress)
                except Exception as error:  # for example a closed terminal
                    self.displays.remove(display)
                    self.add_problem(
                        f"progress could not be shown: {type(error).__name__}: {error}"
                    )

    def snapshot(self) -> SweepProgress:
        """Progress as recorded so far."""
        with self._lock:
            now, counts, share = time.monotonic(), self._counts, self._share()
            elapsed = now - self._started_at
            waiting = 0.0 if self._waiting_since is None else now - self._waiting_since
            has_eta = share > _MIN_SHARE_FOR_ETA and self._waiting_since is None
            fresh = counts.complete - (self._complete_before or 0)
            replicates = len(self.plan.points) * len(self.plan.seeds)
            return SweepProgress(
                points=len(self.plan.points),
                done=counts.complete,
                failed=counts.failed + len(self._failed_points),
                share=share,
                rate=60 * fresh / elapsed if fresh else None,
                eta=(elapsed - self._waited) * (1 - share) / share if has_eta else None,
                front=counts.front,
                best=counts.best,
                doing=self.doing,
                stopped=counts.stopped,
                use=self._resource_use(),
                trainings=(counts.trainings, replicates),
                waiting=self.waiting_for(self._alive) if waiting >= _WAITING_SECONDS else None,
                setbacks=len(self._setbacks),
                setback=self._setbacks[-1] if self._setbacks else None,
            )

    def _update_counts(self) -> None:
        started = time.monotonic()
        if started < self._next_count:
            return
        self._counts = self._counter.read()
        if self._complete_before is None:
            self._complete_before = self._counts.complete
        now = time.monotonic()
        self._next_count = now + (now - started) / _COUNTING_SHARE

    def _update_machines(self, *, at_once: bool = False) -> None:
        """Looks every few seconds which machines are alive: they come and go."""
        now = time.monotonic()
        if now < self._next_machines and not at_once:
            return
        self._next_machines = now + _MACHINES_SECONDS
        with self.recording("the cluster's machines could not be listed"):
            alive = self.machines()
            with self._lock:
                self._alive = alive
                self._hosts.update({machine.node: machine.host for machine in alive})

    def _resource_use(self) -> ResourceUse | None:
        if not self._alive:
            return None
        # Ray may report the loss of a node's packs much later than that of the node.
        nodes = [node for node in self._nodes.values() if node is None or self._is_alive(node)]
        packs, resources = len(nodes), self.plan.study.resources
        return ResourceUse(
            packs=packs,
            nodes=len(self._alive),
            busy_nodes=len({node for node in nodes if node is not None}) or min(packs, 1),
            cpus=sum(machine.cpus for machine in self._alive),
            busy_cpus=packs * resources.cpus,
            gpus=sum(machine.gpus for machine in self._alive),
            busy_gpus=packs * resources.gpus,
        )

    def _is_alive(self, node: str) -> bool:
        """Whether a node is alive, or too new to have been listed."""
        return node not in self._hosts or any(m.node == node for m in self._alive)

    def _share(self) -> float:
        if not self._packs:
            return 0.0
        total = sum(self._costs.values())
        if total == 0:
            return 1.0
        done = sum(self._costs[pack_id] * share for pack_id, share in self._shares.items())
        return min(1.0, done / total)
