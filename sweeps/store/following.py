"""Following a ledger as it grows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeVar

from privnets.points import TradeoffPoint, merge_replicates
from sweeps.store.ledger import Ledger

T = TypeVar("T")

_AT_ONCE = 8


class Fresh:
    """Knows which packs of a ledger were read, so that each is read once, as it appears."""

    def __init__(self, ledger: Ledger) -> None:
        """Begin at the beginning of a ledger."""
        self._ledger = ledger
        self._seen: set[str] = set()

    def packs(self) -> list[str]:
        """The packs that were not read yet, or could not be."""
        return [pack for pack in self._ledger.pack_ids() if pack not in self._seen]

    def read(self, read: Callable[[list[str]], T], packs: list[str] | None = None) -> T:
        """Read the packs that appeared since the last call.

        Args:
            read: Reads packs of the ledger, given their ids.
            packs: Those to read; all of `packs()` by default.
        """
        fresh = self.packs() if packs is None else packs
        found = read(fresh)
        # A damaged file may yet be replaced by a whole one of the same name.
        self._seen.update(p for p in fresh if f"{p}.parquet" not in self._ledger.unreadable)
        return found


class Follower:
    """Reads a ledger as it grows, and hands out the points that became complete.

    It keeps the replicates of incomplete points alone; of the others their ids.
    """

    def __init__(self, ledger: Ledger, seeds: Iterable[int]) -> None:
        """Begin at the beginning.

        Args:
            ledger: To follow.
            seeds: A point is complete when it has a replicate of each.
        """
        self._ledger = ledger
        self._fresh = Fresh(ledger)
        self._seeds = frozenset(seeds)
        self._partial: dict[str, TradeoffPoint] = {}
        self._complete: set[str] = set()

    def read(self, enough: float = math.inf) -> list[TradeoffPoint]:
        """Points that became complete, and were not handed out yet.

        Args:
            enough: Read no more packs once there are so many.
        """
        packs = self._fresh.packs()
        found: list[TradeoffPoint] = []
        for begin in range(0, len(packs), _AT_ONCE):
            if len(found) >= enough:
                break
            read = self._fresh.read(self._ledger.read_points, packs[begin : begin + _AT_ONCE])
            found += self._completed(read)
        return found

    def _completed(self, points: Iterable[TradeoffPoint]) -> list[TradeoffPoint]:
        found = []
        for point in points:
            if point.point_id in self._complete:
                continue
            known = self._partial.pop(point.point_id, None)
            (merged,) = merge_replicates([point] if known is None else [known, point])
            if is_complete(merged, self._seeds):
                self._complete.add(point.point_id)
                found.append(merged)
            else:
                self._partial[point.point_id] = merged
        return found


def is_complete(point: TradeoffPoint, seeds: frozenset[int]) -> bool:
    """Whether a point has a replicate of every seed."""
    return seeds <= {replicate.seed for replicate in point.replicates}
