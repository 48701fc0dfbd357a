"""Progress of a running sweep: collects workers' reports and the ledger's counts."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa

from cluster.connection import Machine
from privnets.contract import Direction
from sweeps.analysis.flags import BELOW_FLOOR
from sweeps.analysis.pareto import meets_constraints, pareto_front
from sweeps.engine.capacity import describe_wait
from sweeps.engine.display import STOPPING, Display
from sweeps.planning.packing import Pack
from sweeps.planning.plan import Plan
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import SeedRule
from sweeps.store.reader import FINISHED, LedgerReader, replicate_table
from sweeps.store.status import Outage, ResourceUse, SweepCounts, SweepStatus
from sweeps.study.spec import Bounds, Resources, budget_seconds

_UPDATE_SECONDS: Final = 0.5
_MACHINES_SECONDS: Final = 5.0
_JOIN_SECONDS: Final = 5.0
# Share of the time that reading the ledger may take, so that it does not slow down the sweep.
_COUNTING_SHARE: Final = 0.05
# Actors need a while to get free resources.
_WAITING_SECONDS: Final = 10.0
_MIN_SHARE_FOR_ETA: Final = 0.02
_BUDGET_SPENT: Final = "the budget is spent: the last packs end"
_NODE_DIED: Final = "its node has died"  # Ray's words about an actor
_EXCEPTION: Final = re.compile(r"(?!ray\.)[\w.]*Error: ")  # of the worker's own code
_MAX_REASON: Final = 200
# Parts of Ray's reasons, and what they mean.
_CAUSES: Final = {
    "memory running low": "its node ran out of memory",
    "OutOfMemory": "it ran out of memory",
    "killed by": "it was killed",
    "SIGKILL": "it was killed",
    "worker died": "its process ended",
    "worker process has died": "its process ended",
}
_FLAG_PREFIX: Final = "metric/flag/"
_COLUMNS: Final = ("point_id", "seed", "failure", "stopped", "finished_at")


def describe_loss(reason: str) -> str:
    """Reason that Ray lost a worker, in words that follow `was lost`; empty if none is known.

    Args:
        reason: Ray's own text, which is long and names its internals.
    """
    if _EXCEPTION.match(reason):
        return f" ({reason[:_MAX_REASON]})"
    return next((f" ({words})" for text, words in _CAUSES.items() if text in reason), "")


def is_crash(reason: str) -> bool:
    """Whether the pack of a lost worker may be the cause: its process or its GPU failed."""
    if _EXCEPTION.match(reason):
        return "AcceleratorError" in reason
    return _NODE_DIED not in reason


class SweepCounter:
    """Counts the points of a ledger as it grows."""

    def __init__(
        self,
        ledger: Ledger,
        rule: SeedRule,
        objectives: Mapping[str, Direction],
        constraints: Mapping[str, Bounds] = MappingProxyType({}),
    ) -> None:
        """Starts before the first pack; `rule` tells which points are complete.

        Without objectives, as of several problems, there is no front.
        """
        metrics = {f"metric/{metric}" for metric in (*objectives, *constraints)}
        self._reader = LedgerReader(
            ledger,
            lambda name: name in _COLUMNS or name in metrics or name.startswith(_FLAG_PREFIX),
        )
        self._rule = rule
        self._objectives, self._constraints = objectives, constraints
        self._tables: list[pa.Table] = []
        self._counts = SweepCounts()

    def read(self) -> SweepCounts:
        """Reads the packs that appeared since the last call, and returns all counts."""
        if tables := self._reader.read_new():
            self._tables += tables
            self._counts = self._count()
        return self._counts

    def _count(self) -> SweepCounts:
        replicates = replicate_table(self._tables)
        complete = replicates.complete(self._rule)
        finished = np.flatnonzero(complete.point_status == FINISHED)
        flags = [name for name in complete.family("metric") if str(name).startswith("flag/")]
        metrics = dict.fromkeys((*self._objectives, *self._constraints, *flags))
        values = complete.family("metric").reindex(columns=list(metrics))
        # Only an interval, which takes too long to compute here, says that this flag is raised.
        values = values.drop(columns=BELOW_FLOOR, errors="ignore")
        groups = values.groupby(complete.points)
        is_known = groups.count().eq(groups.size(), axis=0)  # at every replicate
        means = groups.mean().where(is_known).loc[finished]
        confirmed = complete.points_with_seeds(self._rule.confirming)
        reported = means.loc[means.index.isin(confirmed)] if len(confirmed) else means
        allowed = meets_constraints(reported, self._constraints)
        front = pareto_front(allowed, self._objectives) if self._objectives else allowed[:0]
        best = {
            metric: float(getattr(front[metric], direction)())
            for metric, direction in self._objectives.items()
            if len(front)
        }
        # While a point is being confirmed it is not complete, but it was done once.
        searched = replicates.complete(SeedRule(self._rule.required))
        return SweepCounts(
            complete=len(searched),
            failed=complete.counts["failed"],
            stopped=complete.counts["stopped"],
            front=len(front),
            best=best,
            trainings=len(replicates.rows),
        )


@dataclass(frozen=True, slots=True)
class PlannedWork:
    """Work of a sweep, as its plan is now.

    Attributes:
        points: Number of points in all.
        trainings: Number of trainings in all.
        planned: Number of trainings that are planned already; an adaptive search plans more.
        resources: Resources of a pack.
        budget: Budget of the run; see `SearchSpec.budget`.
    """

    points: int = 0
    trainings: int = 0
    planned: int = 0
    resources: Resources = field(default_factory=Resources)
    budget: int | str | None = None

    @classmethod
    def from_plan(cls, plan: Plan) -> PlannedWork:
        """Counts the work of a plan."""
        planned = sum(len(point.seeds) for point in plan.points)
        study = plan.study
        return cls(plan.size, plan.trainings, planned, study.resources, study.search.budget)


@dataclass
class ProgressTracker:
    """Collects workers' reports and the ledger's counts, and shows them as `SweepStatus`.

    Reports come from the scheduler's thread; `displaying` shows them in a thread of its own.

    Attributes:
        counter: Counts the points of the ledger.
        displays: Functions that show progress; one that fails is not called again.
        work: Work of the sweep, as its plan is now.
        activity: Preparation in progress, in words; None while packs are trained.
        machines: Returns the machines of the cluster that are alive.
        trained_before: Trainings of the plan that this run found finished or copied.
    """

    counter: SweepCounter
    displays: list[Display] = field(default_factory=list)
    work: PlannedWork = field(default_factory=PlannedWork)
    activity: str | None = None
    machines: Callable[[], Sequence[Machine]] = tuple
    trained_before: int = 0

    def __post_init__(self) -> None:
        """Starts without counts; the first update reads the ledger."""
        self._counts = SweepCounts()
        self._outage: Callable[[], Outage | None] = lambda: None
        self._next_count = self._next_machines = 0.0
        self._alive: Sequence[Machine] = ()
        self._hosts: dict[str, str] = {}
        self._lock = threading.RLock()
        self._showing, self._asking = threading.Lock(), threading.Lock()
        self._is_stopping = False
        self._shown_share = 0.0
        self._problems: dict[str, str] = {}
        self._sizes: dict[str, int] = {}  # numbers of trainings of packs, by their ids
        self._costs: dict[str, float] = {}
        self._shares: dict[str, float] = {}
        self._nodes: dict[str, str | None] = {}  # of packs in training
        self._live: dict[str, dict[str, float]] = {}
        self._failed_points: set[str] = set()
        self._warnings: list[str] = []
        self._started_at = time.monotonic()
        self._waiting_since: float | None = None
        self._waited = 0.0

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems that did not end the run, in words."""
        return tuple(self._problems.values())

    @property
    def has_packs(self) -> bool:
        """Whether there was anything to train."""
        return bool(self._sizes)

    def expect(self, packs: Sequence[Pack], costs: Mapping[str, float]) -> None:
        """Adds the packs of a round, with costs in seconds; the first round starts the clock."""
        with self._lock:
            if not self._sizes:
                self._started_at = time.monotonic()
            self._sizes.update({pack.pack_id: len(pack.replicates) for pack in packs})
            self._costs.update(costs)

    def start_pack(self, pack_id: str) -> None:
        """Records that a pack is in training, on a node that is not known yet."""
        with self._lock:
            self._nodes[pack_id] = None

    def advance_pack(
        self,
        pack_id: str,
        share: float,
        node: str,
        live: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Records the share of a pack's work that is done, and Ray's id of the node it is on.

        Values of `live` that are not finite are left out.
        """
        with self._lock:
            self._live[pack_id] = {k: v for k, v in live.items() if math.isfinite(v)}
            self._shares[pack_id] = share
            self._nodes[pack_id] = node
            if share >= 1:
                del self._nodes[pack_id], self._live[pack_id]

    def lose_pack(self, pack_id: str, reason: str) -> None:
        """Records that a worker was lost; its pack will be tried again."""
        self._update_machines(at_once=True)
        with self._lock:
            node = self._nodes.pop(pack_id, None)
            self._live.pop(pack_id, None)
            effect = f"pack {pack_id} continues from its last checkpoint, or from the start"
            host = self._hosts.get(node or "")
            if _NODE_DIED in reason or not self._is_alive(node or ""):
                lost = "a node" if host is None else f"node {host}"
            elif node is None or host is None:
                lost = "a worker"
            else:
                lost = f"a worker on {host}"
            self._warnings.append(f"{lost} was lost{describe_loss(reason)}: {effect}")

    def fail_pack(self, pack: Pack) -> None:
        """Records that a pack failed permanently."""
        with self._lock:
            self._failed_points.update(replicate.point_id for replicate in pack.replicates)
            self._shares[pack.pack_id] = 1.0
            self._nodes.pop(pack.pack_id, None)
            self._live.pop(pack.pack_id, None)

    def divide_pack(self, pack: Pack, halves: Sequence[Pack], reason: str) -> None:
        """Records that the halves of a pack that failed are trained in its place."""
        pack_id, size = pack.pack_id, len(pack.replicates)
        with self._lock:
            cost = self._costs.pop(pack_id)
            del self._sizes[pack_id]
            for half in halves:
                self._sizes[half.pack_id] = len(half.replicates)
                self._costs[half.pack_id] = cost * len(half.replicates) / size
            self._shown_share = 0.0
            for records in (self._shares, self._nodes, self._live):
                records.pop(pack_id, None)
            why = describe_loss(reason) or f" ({reason[:_MAX_REASON]})"
            self._warnings.append(
                f"pack {pack_id} failed{why}: its {size} trainings start again in two packs"
            )

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
        """Records a problem as `add_problem` does; displays show the first of its kind at once."""
        with self._lock:
            if problem.partition(":")[0] not in self._problems:
                self._warnings.append(problem)
            self.add_problem(problem)

    def add_problem(self, problem: str) -> None:
        """Records a problem; of those with the same words before the colon only the first."""
        self._problems.setdefault(problem.partition(":")[0], problem)

    @contextmanager
    def recording(self, what: str) -> Iterator[None]:
        """Block whose exceptions are recorded as problems that begin with `what`."""
        try:
            yield
        except Exception as error:
            self.add_problem(f"{what}: {type(error).__name__}: {error}")

    @contextmanager
    def displaying(
        self,
        *displays: Display,
        outage: Callable[[], Outage | None] = lambda: None,
    ) -> Iterator[None]:
        """Shows progress twice a second while the block runs, and once at its end.

        The last time is left out if the thread hangs, in a call of a Ray that died for example.

        Args:
            displays: Further displays, from now on.
            outage: Returns the present outage of MLflow, if any.
        """
        self.displays += displays
        self._outage = outage
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
            is_over.set()
            thread.join(_JOIN_SECONDS)
            if not thread.is_alive():
                self._next_count = 0.0
                self.show()

    @contextmanager
    def watching(self, machines: Callable[[], Sequence[Machine]]) -> Iterator[None]:
        """Asks for the machines of a cluster while the block runs, and never after it."""
        self.machines = machines
        try:
            yield
        finally:
            is_idle = self._asking.acquire(timeout=_JOIN_SECONDS)  # a call of a dead Ray hangs
            self.machines = tuple
            if is_idle:
                self._asking.release()

    def show(self) -> None:
        """Reads what is new and calls every display."""
        self._update_machines()
        with self.recording("progress could not be read"):
            started = time.monotonic()
            with self._lock:
                is_trained = self._share() >= 1  # "all trained" stands beside the final counts
            if started >= self._next_count or is_trained:
                self._counts = self.counter.read()
                now = time.monotonic()
                self._next_count = now + (now - started) / _COUNTING_SHARE
            self._call_displays()

    def announce_stop(self) -> None:
        """Shows at once that the run stops; later progress shows it too."""
        self._is_stopping = True
        with self.recording("progress could not be shown"):
            self._call_displays()

    def _call_displays(self) -> None:
        with self._showing:
            status = self.snapshot()
            for display in list(self.displays):
                try:
                    display(status)
                except Exception as error:  # for example a closed terminal
                    self.displays.remove(display)
                    self.add_problem(
                        f"progress could not be shown: {type(error).__name__}: {error}"
                    )

    def snapshot(self) -> SweepStatus:
        """Status as recorded so far."""
        with self._lock:
            # Later packs of an adaptive search change the estimate of the whole.
            self._shown_share = share = max(self._shown_share, self._share())
            now, counts = time.monotonic(), self._counts
            elapsed = now - self._started_at
            waiting = 0.0 if self._waiting_since is None else now - self._waiting_since
            minutes = (elapsed - self._waited - waiting) / 60
            trained = sum(n * self._sizes[pack] for pack, n in self._shares.items())
            waits = (
                describe_wait(self._alive, self.work.resources)
                if waiting >= _WAITING_SECONDS
                else None
            )
            eta = self._seconds_left(now, share, trained)
            live: dict[str, list[float]] = {}
            for name, value in (each for own in self._live.values() for each in own.items()):
                live.setdefault(name, []).append(value)
            is_spent = eta == 0 and share < 1
            return SweepStatus(
                updated_at=datetime.now(UTC),
                points=self.work.points,
                counts=replace(counts, failed=counts.failed + len(self._failed_points)),
                activity=STOPPING if self._is_stopping else self.activity,
                waiting=_BUDGET_SPENT if is_spent else waits,
                share=share,
                rate=trained / minutes if trained and minutes > 0 else None,
                eta=None if is_spent else eta,
                use=self._resource_use(),
                live={name: math.fsum(each) / len(each) for name, each in live.items()},
                trainings=(counts.trainings, self.work.trainings),
                trained_before=self.trained_before,
                warning_count=len(self._warnings),
                last_warning=self._warnings[-1] if self._warnings else None,
                outage=self._outage(),
            )

    def _seconds_left(self, now: float, share: float, trained: float) -> float | None:
        """Estimates when the work ends, or before it the budget of this run; None if unknown."""
        if share <= _MIN_SHARE_FOR_ETA or self._waiting_since is not None:
            return None
        training = now - self._started_at - self._waited
        ends = [training * (1 - share) / share]
        budget = self.work.budget
        if isinstance(budget, int) and trained:
            ends.append(training * (budget - trained) / trained)
        elif isinstance(budget, str):
            ends.append((budget_seconds(budget) or 0.0) - (now - self._started_at))
        return max(0.0, min(ends))

    def _update_machines(self, *, at_once: bool = False) -> None:
        """Looks every few seconds which machines are alive: they come and go."""
        if (now := time.monotonic()) < self._next_machines and not at_once:
            return
        self._next_machines = now + _MACHINES_SECONDS
        with self.recording("the cluster's machines could not be listed"):
            with self._asking:
                alive = self.machines()
            with self._lock:
                self._alive = alive
                self._hosts.update({machine.node: machine.name for machine in alive})

    def _resource_use(self) -> ResourceUse | None:
        if not self._alive:
            return None
        # Ray may report the loss of a node's packs much later than that of the node.
        nodes = [node for node in self._nodes.values() if node is None or self._is_alive(node)]
        packs, resources = len(nodes), self.work.resources
        return ResourceUse(
            packs=packs,
            nodes=sum(bool(machine.cpus or machine.gpus) for machine in self._alive),
            busy_nodes=len({node for node in nodes if node is not None}) or min(packs, 1),
            cpus=sum(machine.cpus for machine in self._alive),
            busy_cpus=packs * resources.pack_cpus,
            gpus=sum(machine.gpus for machine in self._alive),
            busy_gpus=packs * resources.pack_gpus,
        )

    def _is_alive(self, node: str) -> bool:
        """Whether a node is alive, or too new to have been listed."""
        return node not in self._hosts or any(m.node == node for m in self._alive)

    def _share(self) -> float:
        if not self._sizes:
            return 0.0
        total = sum(self._costs.values())
        if total == 0:
            return 1.0
        # Most packs of an adaptive search may not be known yet.
        total *= 1 + (self.work.trainings - self.work.planned) / sum(self._sizes.values())
        done = sum(self._costs[pack_id] * share for pack_id, share in self._shares.items())
        return min(1.0, done / total)
