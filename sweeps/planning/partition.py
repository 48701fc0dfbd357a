"""Partition of replicates into packs, so that all workers are busy until the end.

Packs start in order of decreasing length, each on the first free worker. Several partitions are
simulated: equal packs, and guided self-scheduling (Polychronopoulos and Kuck 1987), in which a pack
is a share of the remaining work. The one that ends first is chosen.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sweeps.planning.cost_curves import CostCurve, PackSizes

# Limit on a pack's length where smaller packs are as good: results are saved when a pack ends.
_MAX_SECONDS: Final = 20.0
# Packs per worker that each partition aims at.
_GUIDED_FACTORS: Final = (1.5, 2.0, 3.0)
_EQUAL_ROUNDS: Final = (1, 2, 3, 4)
# Relative error of estimated pack lengths.
_UNCERTAINTY: Final = 0.25


@dataclass(frozen=True, slots=True)
class Workload:
    """Replicates of one structure.

    Attributes:
        members: Number of replicates.
        curve: Cost curve of their stacks.
        sizes: Efficient stack sizes.
    """

    members: int
    curve: CostCurve
    sizes: PackSizes

    @property
    def seconds(self) -> float:
        """Estimated seconds of one worker for all members."""
        return self.members * self.curve.seconds_per_member(self.sizes.preferred)

    def size_for(self, seconds: float) -> int:
        """Returns an efficient pack size that takes about `seconds`."""
        wanted = seconds / self.curve.seconds_per_member(self.sizes.preferred)
        fitting = _MAX_SECONDS / self.curve.seconds_per_member(self.sizes.largest)
        largest = min(max(self.sizes.preferred, math.floor(fitting)), self.sizes.largest)
        return max(self.sizes.smallest, min(round(wanted), largest))


def partition(workloads: Sequence[Workload], workers: int) -> list[list[int]]:
    """Chooses the pack sizes of each workload, in the order in which its members are taken.

    Args:
        workloads: All the work.
        workers: Number of packs that run at once.
    """
    candidates = [_guided_partition(workloads, workers, factor) for factor in _GUIDED_FACTORS]
    candidates += [_equal_partition(workloads, workers, rounds) for rounds in _EQUAL_ROUNDS]
    return min(candidates, key=lambda c: _expected_end([*_pack_seconds(workloads, c)], workers))


def split_evenly(members: int, max_size: int) -> list[int]:
    """Splits members into the fewest packs of at most `max_size`, as equal as possible."""
    count = math.ceil(members / max_size)
    bounds = [members * i // count for i in range(count + 1)]
    return [end - start for start, end in pairwise(bounds)]


def makespan(seconds: Iterable[float], workers: int) -> float:
    """Simulates when the last worker ends, if each takes the next pack once it is free.

    Args:
        seconds: Length of each pack, in order.
        workers: Number of workers.
    """
    free_at = [0.0] * workers
    for length in seconds:
        heapq.heapreplace(free_at, free_at[0] + length)
    return max(free_at)


def _equal_partition(workloads: Sequence[Workload], workers: int, rounds: int) -> list[list[int]]:
    """Makes packs of equal length, `rounds` of them per worker."""
    length = sum(workload.seconds for workload in workloads) / (workers * rounds)
    return [split_evenly(workload.members, workload.size_for(length)) for workload in workloads]


def _guided_partition(
    workloads: Sequence[Workload], workers: int, factor: float
) -> list[list[int]]:
    """Makes each pack a share of the remaining work, the most expensive structure first."""
    remaining = sum(workload.seconds for workload in workloads)
    sizes: list[list[int]] = [[] for _ in workloads]
    shortest = [workload.curve.pack_seconds(workload.sizes.smallest) for workload in workloads]
    for i in sorted(range(len(workloads)), key=lambda i: -shortest[i]):
        workload, members = workloads[i], workloads[i].members
        while members:
            wanted = workload.size_for(remaining / (workers * factor))
            size = _avoid_small_rest(workload.sizes, members, wanted)
            sizes[i].append(size)
            members -= size
            remaining -= size * workload.curve.seconds_per_member(workload.sizes.preferred)
    return sizes


def _avoid_small_rest(sizes: PackSizes, members: int, size: int) -> int:
    """Adjusts a size so that it leaves no members, or enough for another pack."""
    if members - size >= sizes.smallest or size >= members:
        return min(size, members)
    fits_one_pack = members < 2 * sizes.smallest and members <= sizes.largest
    return members if fits_one_pack else math.ceil(members / 2)


def _pack_seconds(
    workloads: Sequence[Workload], partition: Sequence[Sequence[int]]
) -> Iterator[float]:
    for workload, sizes in zip(workloads, partition, strict=True):
        seconds = {size: workload.curve.pack_seconds(size) for size in set(sizes)}
        yield from (seconds[size] for size in sizes)


def _expected_end(lengths: Sequence[float], workers: int) -> float:
    """Returns the makespan, plus the delay expected of the last packs."""
    ordered = sorted(lengths, reverse=True)
    last = ordered[-workers:]
    return makespan(ordered, workers) + _UNCERTAINTY * math.fsum(last) / len(last)
