"""How a running sweep stands, told from the few columns of its ledger that say so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from privnets.contract import Direction
from sweeps.store.following import Fresh
from sweeps.store.ledger import Ledger

T = TypeVar("T")
_TELLING: Final = ("point_id", "seed", "failure", "stopped")
_SHARE: Final = 0.05


@dataclass(frozen=True, slots=True)
class SweepCounts:
    """How a sweep stands.

    Attributes:
        complete: Points that have all their replicates.
        failed: Those of them with a failed replicate.
        stopped: Those with none, but with a stopped one.
        front: How many of the finished are on the front.
        best: The front's best value of each objective, by metric.
        trainings: Replicates that there are, of points that are not complete too.
    """

    complete: int = 0
    failed: int = 0
    stopped: int = 0
    front: int = 0
    best: Mapping[str, float] = field(default_factory=dict)
    trainings: int = 0


@dataclass(slots=True)
class _Partial:
    """What is known of a point that lacks replicates."""

    sums: NDArray[np.float64]
    seeds: set[int] = field(default_factory=set)
    failed: bool = False
    stopped: bool = False


class SweepCounter:
    """Follows a ledger; of complete points it keeps the ids and the front."""

    def __init__(
        self, ledger: Ledger, seeds: Iterable[int], objectives: Mapping[str, Direction]
    ) -> None:
        """Begin at the beginning of the ledger.

        Args:
            ledger: To follow.
            seeds: A point is complete when it has a replicate of each.
            objectives: Metric to direction.
        """
        self._ledger = ledger
        self._fresh = Fresh(ledger)
        self._seeds = frozenset(seeds)
        self._objectives = dict(objectives)
        self._partial: dict[str, _Partial] = {}
        self._complete: set[str] = set()
        self._failed = self._stopped = self._trainings = 0
        self._front = np.empty((0, len(self._objectives)))
        self._waiting: list[NDArray[np.float64]] = []

    def read(self) -> SweepCounts:
        """How the sweep stands with the packs that appeared since the last call."""
        for table in self._fresh.read(lambda packs: self._ledger.read_tables(packs, self._wanted)):
            told = [table[name].to_pylist() for name in _TELLING]
            values = np.full((table.num_rows, len(self._objectives)), np.nan)
            for place, metric in enumerate(self._objectives):
                if (name := f"metric/{metric}") in table.column_names:
                    values[:, place] = table[name].to_numpy()
            for point_id, seed, failure, stopped, row in zip(*told, values, strict=True):
                self._add(point_id, seed, failure is not None, stopped is not None, row)
        self._merge()
        best = [
            self._front[:, place].min() if direction == "min" else self._front[:, place].max()
            for place, direction in enumerate(self._objectives.values())
            if len(self._front)
        ]
        return SweepCounts(
            complete=len(self._complete),
            failed=self._failed,
            stopped=self._stopped,
            front=len(self._front),
            best=dict(zip(self._objectives, map(float, best), strict=bool(best))),
            trainings=self._trainings,
        )

    def _wanted(self, name: str) -> bool:
        return name in _TELLING or name.removeprefix("metric/") in self._objectives

    def _add(
        self, point_id: str, seed: int, failed: bool, stopped: bool, values: NDArray[np.float64]
    ) -> None:
        """Take in a replicate; the first of a seed counts."""
        if point_id in self._complete:
            return
        point = self._partial.setdefault(point_id, _Partial(np.zeros(len(self._objectives))))
        if seed in point.seeds:
            return
        point.seeds.add(seed)
        self._trainings += 1
        point.sums += values
        point.failed |= failed
        point.stopped |= stopped
        if point.seeds >= self._seeds:
            self._end(point_id, self._partial.pop(point_id))

    def _end(self, point_id: str, point: _Partial) -> None:
        self._complete.add(point_id)
        if point.failed:
            self._failed += 1
        elif point.stopped:
            self._stopped += 1
        else:
            self._waiting.append(point.sums / len(point.seeds))

    def _merge(self) -> None:
        """Bring the front up to date: whatever another point beat once is beaten for good."""
        if not self._waiting:
            return
        import pandas as pd

        from sweeps.analysis.pareto import pareto_front

        rows = np.concatenate([self._front, self._waiting])
        self._waiting = []
        front = pareto_front(pd.DataFrame(rows, columns=list(self._objectives)), self._objectives)
        self._front = front.to_numpy(dtype=np.float64)


class BackgroundCall(Generic[T]):
    """Calls a function again and again in a thread of its own, for a small share of the time.

    Attributes:
        latest: What it gave last.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        """Call it once, in this thread.

        Args:
            work: Never called twice at once.
        """
        self._work = work
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._rested = 0.0
        self.latest = work()

    def poll(self) -> T:
        """What the function gave last; it is called anew if it has rested long enough.

        Raises:
            Exception: What the last call raised, once.
        """
        if self._thread is None or not self._thread.is_alive():
            self._raise()
            if time.monotonic() >= self._rested:
                self._thread = threading.Thread(target=self._call, daemon=True)
                self._thread.start()
        return self.latest

    def now(self) -> T:
        """What the function gives now.

        Raises:
            Exception: What it raises.
        """
        if self._thread is not None:
            self._thread.join()
        self._call()
        self._raise()
        return self.latest

    def _call(self) -> None:
        began = time.monotonic()
        try:
            self.latest = self._work()
        except Exception as error:  # told to whoever asks next
            self._error = error
        ended = time.monotonic()
        self._rested = ended + (ended - began) * (1 - _SHARE) / _SHARE

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
