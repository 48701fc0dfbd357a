"""Following a ledger as it grows."""

from __future__ import annotations

from collections.abc import Iterable

from privnets.points import TradeoffPoint, merge_replicates
from sweeps.ledger import Ledger


class Follower:
    """Reads each pack of a ledger once, as it appears, and tells which points became complete.

    Attributes:
        points: Every point met so far, complete or not, by id.
    """

    def __init__(self, ledger: Ledger, seeds: Iterable[int]) -> None:
        """Begin at the beginning.

        Args:
            ledger: To follow.
            seeds: A point is complete when it has a replicate of each.
        """
        self.points: dict[str, TradeoffPoint] = {}
        self._ledger = ledger
        self._seeds = frozenset(seeds)
        self._seen: set[str] = set()
        self._complete: set[str] = set()

    def read(self) -> list[TradeoffPoint]:
        """The points that became complete since the last call."""
        fresh = [pack for pack in self._ledger.packs() if pack not in self._seen]
        points = self._ledger.points(fresh)
        # A damaged file may yet be replaced by a whole one of the same name.
        self._seen.update(p for p in fresh if f"{p}.parquet" not in self._ledger.unreadable)
        touched: dict[str, TradeoffPoint] = {}
        for point in points:
            known = self.points.get(point.point_id)
            (merged,) = merge_replicates([point] if known is None else [known, point])
            self.points[point.point_id] = touched[point.point_id] = merged
        return [point for point in touched.values() if self._completes(point)]

    def _completes(self, point: TradeoffPoint) -> bool:
        if point.point_id in self._complete or not complete(point, self._seeds):
            return False
        self._complete.add(point.point_id)
        return True


def complete(point: TradeoffPoint, seeds: frozenset[int]) -> bool:
    """Whether a point has a replicate of every seed."""
    return seeds <= {replicate.seed for replicate in point.replicates}
