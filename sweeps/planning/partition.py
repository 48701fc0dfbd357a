"""How to cut work into packs, so that all workers are busy until the end.

Packs are handed out in order of decreasing length, each to the first worker that is free. Several
ways to cut are tried on paper, even ones and ones by guided self-scheduling (Polychronopoulos and
Kuck 1987: a pack is a share of what is left, so that sizes shrink toward the end), and the one that
ends first is taken.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sweeps.planning.cost_curves import CostCurve, PackSizes

# A pack is no longer than this unless its size needs it: it is in the ledger only when it ends.
_LONGEST_SECONDS: Final = 20.0
# Shares of what each worker would still have to do.
_GUIDED: Final = (1.5, 2.0, 3.0)
_EVEN: Final = (1, 2, 3, 4)
# Packs take longer or shorter than was thought, by about this share.
_UNCERTAINTY: Final = 0.25


@dataclass(frozen=True, slots=True)
class Workload:
    """Members of one structure, to be cut into packs.

    Attributes:
        members: How many.
        curve: How long stacks of them take.
        sizes: Which stacks may be made.
    """

    members: int
    curve: CostCurve
    sizes: PackSizes

    @property
    def seconds(self) -> float:
        """Of one worker for all of it, about."""
        return self.members * self.curve.seconds_per_member(self.sizes.good)

    def within(self, seconds: float) -> int:
        """The size of a pack of about so many seconds, as far as sizes allow."""
        wanted = seconds / self.curve.seconds_per_member(self.sizes.good)
        longest = _LONGEST_SECONDS / self.curve.seconds_per_member(self.sizes.most)
        most = min(max(self.sizes.good, math.floor(longest)), self.sizes.most)
        return max(self.sizes.least, min(round(wanted), most))


def partition(loads: Sequence[Workload], workers: int) -> list[list[int]]:
    """PackSizes of the packs of each load, in the order in which its members are to be taken.

    Args:
        loads: All work there is.
        workers: How many packs run at once.
    """
    tried = [_guided(loads, workers, factor) for factor in _GUIDED]
    tried += [_even(loads, workers, rounds) for rounds in _EVEN]
    return min(tried, key=lambda found: _expected(_lengths(loads, found), workers))


def split_evenly(members: int, size: int) -> list[int]:
    """PackSizes, as equal as can be, of the fewest packs that are no larger than `size`."""
    count = math.ceil(members / size)
    bounds = [members * i // count for i in range(count + 1)]
    return [b - a for a, b in pairwise(bounds)]


def makespan(seconds: Iterable[float], workers: int) -> float:
    """When the last worker is done, each taking the next pack once it is free.

    Args:
        seconds: Of the packs, in order.
        workers: How many.
    """
    free = [0.0] * workers
    for length in seconds:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def _even(loads: Sequence[Workload], workers: int, rounds: int) -> list[list[int]]:
    """Packs of like length, so that each worker gets so many."""
    share = sum(load.seconds for load in loads) / (workers * rounds)
    return [split_evenly(load.members, load.within(share)) for load in loads]


def _guided(loads: Sequence[Workload], workers: int, factor: float) -> list[list[int]]:
    """Packs that are each a share of what is left, those of the dearest structure first."""
    left = sum(load.seconds for load in loads)
    found: list[list[int]] = [[] for _ in loads]
    dearest = [load.curve.pack_seconds(load.sizes.least) for load in loads]
    for i in sorted(range(len(loads)), key=lambda i: -dearest[i]):
        load, members = loads[i], loads[i].members
        while members:
            size = _sparing(load.sizes, members, load.within(left / (workers * factor)))
            found[i].append(size)
            members -= size
            left -= size * load.curve.seconds_per_member(load.sizes.good)
    return found


def _sparing(sizes: PackSizes, members: int, size: int) -> int:
    """A size that leaves nothing, or enough for another pack."""
    if members - size >= sizes.least or size >= members:
        return min(size, members)
    small = members < 2 * sizes.least and members <= sizes.most
    return members if small else math.ceil(members / 2)


def _lengths(loads: Sequence[Workload], found: Sequence[Sequence[int]]) -> Iterator[float]:
    for load, sizes in zip(loads, found, strict=True):
        known = {size: load.curve.pack_seconds(size) for size in set(sizes)}
        yield from (known[size] for size in sizes)


def _expected(lengths: Iterable[float], workers: int) -> float:
    """When all is done, and later by what the last packs may take longer."""
    ordered = sorted(lengths, reverse=True)
    last = ordered[-workers:]
    return makespan(ordered, workers) + _UNCERTAINTY * math.fsum(last) / len(last)
