"""Counts of a running sweep: complete points, failures, and the front so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from privnets.contract import Direction
from sweeps.analysis.pareto import pareto_front
from sweeps.store.ledger import Ledger
from sweeps.store.reader import LedgerReader

_COLUMNS: Final = ("point_id", "seed", "failure", "stopped")


@dataclass(frozen=True, slots=True)
class SweepCounts:
    """Counts of a sweep.

    Attributes:
        complete: Points with all replicates.
        failed: Complete points with a failed replicate.
        stopped: Complete points without a failed replicate, but with a stopped one.
        front: Finished points on the front.
        best: Best value of each objective on the front, by metric.
        trainings: Replicates in the ledger, also of incomplete points.
    """

    complete: int = 0
    failed: int = 0
    stopped: int = 0
    front: int = 0
    best: Mapping[str, float] = field(default_factory=dict)
    trainings: int = 0


@dataclass(slots=True)
class _PartialPoint:
    """Replicates so far of an incomplete point."""

    sums: NDArray[np.float64]
    seeds: set[int] = field(default_factory=set)
    has_failed: bool = False
    was_stopped: bool = False


class SweepCounter:
    """Counts the points of a ledger as it grows; of complete points it keeps ids and the front."""

    def __init__(
        self, ledger: Ledger, seeds: Iterable[int], objectives: Mapping[str, Direction]
    ) -> None:
        """Starts before the first pack.

        Args:
            ledger: Ledger to read.
            seeds: Seeds of a complete point.
            objectives: Metric to direction.
        """
        self._objectives = dict(objectives)
        self._seeds = frozenset(seeds)
        self._reader = LedgerReader(ledger, self._is_counted)
        self._partial: dict[str, _PartialPoint] = {}
        self._complete: set[str] = set()
        self._failed = self._stopped = self._trainings = 0
        self._front = pd.DataFrame(columns=list(self._objectives), dtype=np.float64)

    def read(self) -> SweepCounts:
        """Counts the packs that appeared since the last call, and returns all counts."""
        means = [mean for table in self._reader.read_new() for mean in self._add_rows(table)]
        if means:  # a point that was dominated once stays dominated
            new = pd.DataFrame(means, columns=self._front.columns)
            candidates = pd.concat([self._front, new]) if len(self._front) else new
            self._front = pareto_front(candidates, self._objectives)
        best = {
            metric: float(getattr(self._front[metric], direction)())
            for metric, direction in self._objectives.items()
            if len(self._front)
        }
        return SweepCounts(
            complete=len(self._complete),
            failed=self._failed,
            stopped=self._stopped,
            front=len(self._front),
            best=best,
            trainings=self._trainings,
        )

    def _is_counted(self, name: str) -> bool:
        return name in _COLUMNS or name.removeprefix("metric/") in self._objectives

    def _add_rows(self, table: pa.Table) -> list[NDArray[np.float64]]:
        """Adds replicates; returns the mean objectives of the points that they finish."""
        values = np.full((table.num_rows, len(self._objectives)), np.nan)
        for index, metric in enumerate(self._objectives):
            if (name := f"metric/{metric}") in table.column_names:
                values[:, index] = table[name].to_numpy()
        rows = zip(*(table[name].to_pylist() for name in _COLUMNS), values, strict=True)
        means = (self._add(*row) for row in rows)
        return [mean for mean in means if mean is not None]

    def _add(
        self,
        point_id: str,
        seed: int,
        failure: str | None,
        stopped: str | None,
        values: NDArray[np.float64],
    ) -> NDArray[np.float64] | None:
        """Adds a replicate, the first of its seed; returns the means if its point is finished."""
        if point_id in self._complete:
            return None
        point = self._partial.setdefault(point_id, _PartialPoint(np.zeros(len(values))))
        if seed in point.seeds:
            return None
        point.seeds.add(seed)
        point.sums += values
        point.has_failed |= failure is not None
        point.was_stopped |= stopped is not None
        self._trainings += 1
        return self._complete_point(point_id) if point.seeds >= self._seeds else None

    def _complete_point(self, point_id: str) -> NDArray[np.float64] | None:
        point = self._partial.pop(point_id)
        self._complete.add(point_id)
        if point.has_failed:
            self._failed += 1
        elif point.was_stopped:
            self._stopped += 1
        else:
            return point.sums / len(point.seeds)
        return None
