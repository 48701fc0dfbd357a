"""Packs: replicates that one Ray Tune trial trains as one stack.

Packs start in order of decreasing length, each on the first free worker. They are as large as is
efficient. In few rounds of one pack per worker they are of equal length, so that workers end
together; in more rounds, the last packs are halved.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, Literal

import privnets
from privnets.contract import Cost
from sweeps.planning.plan import PlannedReplicate
from sweeps.store.codec import ReplicateKey
from sweeps.study.spec import Resources

# Overhead of a pack: a trial, a file in the ledger, the removal of a checkpoint.
_PACK_SECONDS: Final = 0.05
# A size is good, or acceptable, if its time per member is within this factor of the best.
_GOOD, _ACCEPTABLE = 1.05, 1.4
# Limit on a pack's length where smaller packs are as good: results are saved when a pack ends.
_MAX_SECONDS: Final = 20.0
# Most members of a stack on a GPU; on CPUs this many, or as many as take a second.
_MAX_ON_GPU, _ALIKE_ON_GPU, _MAX_ON_CPUS, _CHEAP_SECONDS = 256, 64, 16, 1.0
# With fewer rounds than this, equal lengths matter more than the largest packs.
_ROUNDS_TO_HALVE: Final = 4


@dataclass(frozen=True, slots=True)
class Pack:
    """Replicates of one structure.

    Attributes:
        pack_id: Hash of the members; equal packs have equal ids on any machine.
        experiment: Name of the experiment.
        replicates: The members, ordered by seed.
    """

    pack_id: str
    experiment: str
    replicates: tuple[PlannedReplicate, ...]

    @property
    def keys(self) -> list[ReplicateKey]:
        """Point id and seed of each member."""
        return [replicate.key for replicate in self.replicates]

    @classmethod
    def of(cls, experiment: str, members: Sequence[PlannedReplicate]) -> Pack:
        """Makes a pack of replicates; its id does not depend on their order."""
        names = "\n".join(sorted(f"{m.point_id}:{m.seed}" for m in members))
        digest = hashlib.sha256(f"{experiment}\n{names}".encode()).hexdigest()
        return cls(digest[:16], experiment, tuple(members))

    def halves(self) -> tuple[Pack, Pack]:
        """Divides the pack in two; replicates of one point stay together as far as possible."""
        ordered = sorted(self.replicates, key=lambda r: (r.point_id, r.seed))
        middle = (len(ordered) + 1) // 2
        parts = (ordered[:middle], ordered[middle:])
        first, second = (sorted(part, key=lambda r: (r.seed, r.point_id)) for part in parts)
        return Pack.of(self.experiment, first), Pack.of(self.experiment, second)


@dataclass(frozen=True, slots=True)
class Capacity:
    """Number of packs that are trained at once, and bytes of memory that each may take."""

    workers: int
    memory: int
    on_gpu: bool = False


def make_packs(
    replicates: Sequence[PlannedReplicate],
    *,
    experiment: str,
    size: Literal["auto"] | int,
    capacity: Capacity,
) -> list[Pack]:
    """Groups replicates by structure and partitions the groups into packs.

    With `auto` a pack is as large as is efficient and fits into memory, while every worker has work
    until the end: the last packs are smaller. The result depends on the arguments alone.

    Args:
        replicates: Replicates of one experiment, in any order.
        size: Maximum number of replicates in a pack, or `auto`.
        capacity: Workers, and memory of a pack.

    Returns:
        Packs, the longest first.
    """
    estimate = privnets.experiment(experiment).cost
    groups: dict[str, list[PlannedReplicate]] = {}
    structures: dict[str, str] = {}
    for replicate in sorted(replicates, key=lambda r: (r.point_id, r.seed)):
        # The seed is never structural, so the replicates of a point share their structure.
        if replicate.point_id not in structures:
            structures[replicate.point_id] = replicate.point_config.structure()
        groups.setdefault(structures[replicate.point_id], []).append(replicate)
    workloads = []
    for _, members in sorted(groups.items()):
        costs = [estimate(c) for c in {m.point_id: m.point_config for m in members}.values()]
        mean = Cost(
            math.fsum(cost.seconds for cost in costs) / len(costs),
            max(cost.memory for cost in costs),
            math.fsum(cost.shared for cost in costs) / len(costs),
        )
        workloads.append(Workload.from_cost(members, mean, capacity))
    if size == "auto":
        sizes = partition_workloads(workloads, capacity.workers)
    else:
        sizes = [split_evenly(len(workload.members), size) for workload in workloads]
    packs = [
        (workload.pack_seconds(len(members)), Pack.of(experiment, members))
        for workload, own in zip(workloads, sizes, strict=True)
        for members in workload.split(own)
    ]
    # Packs of equal length are in the order of their points.
    return [pack for _, pack in sorted(packs, key=lambda entry: -entry[0])]


def local_capacity(resources: Resources) -> Capacity:
    """Returns how many packs this machine runs at once, and the memory for each.

    Together they may take half of the machine's memory.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    workers = max(1, int((cores or 1) / max(resources.pack_cpus, 1.0)))
    if resources.concurrency != "auto":
        workers = min(workers, resources.concurrency)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Capacity(workers, memory // 2 // workers)


@dataclass(frozen=True, slots=True)
class Workload:
    """Replicates of one structure, with the time of their packs by the cost model.

    Attributes:
        members: The replicates, ordered by point.
        shared: Seconds of a pack apart from its members.
        each: Seconds that each member adds.
        limit: Largest pack that memory and the cost model allow.
    """

    members: Sequence[PlannedReplicate]
    shared: float
    each: float
    limit: int

    @classmethod
    def from_cost(
        cls, members: Sequence[PlannedReplicate], cost: Cost, capacity: Capacity
    ) -> Workload:
        """Makes the workload of members with this mean cost.

        A GPU is taken to train a stack of 64 in twice the time of one member.
        """
        shared, each, most = cost.shared, cost.seconds, _MAX_ON_GPU
        if capacity.on_gpu:
            shared, each = shared + each, (shared + each) / _ALIKE_ON_GPU
        else:
            mean = each + shared / _MAX_ON_CPUS
            most = max(_MAX_ON_CPUS, math.floor(_CHEAP_SECONDS / max(mean, 1e-9)))
        fitting = max(1, capacity.memory // max(cost.memory, 1))
        return cls(members, _PACK_SECONDS + shared, each, min(fitting, most))

    @property
    def largest(self) -> int:
        """Largest size of a pack."""
        return min(self.limit, len(self.members))

    @property
    def smallest(self) -> int:
        """Smallest acceptable size of a pack."""
        return self._size_within(_ACCEPTABLE)

    @property
    def preferred(self) -> int:
        """Smallest good size of a pack."""
        return self._size_within(_GOOD)

    def pack_seconds(self, size: int) -> float:
        """Estimates the seconds of a pack, its overhead included."""
        return self.shared + self.each * size

    def size_for(self, seconds: float) -> int:
        """Returns an efficient pack size that takes about `seconds`."""
        wanted = seconds / self._seconds_each(self.preferred)
        fitting = math.floor(_MAX_SECONDS / self._seconds_each(self.largest))
        largest = min(max(self.preferred, fitting), self.largest)
        return max(self.smallest, min(round(wanted), largest))

    def split(self, sizes: Sequence[int]) -> list[tuple[PlannedReplicate, ...]]:
        """Splits the members into consecutive packs of the given sizes.

        Members of one seed are adjacent, since they may share random draws. Points are ordered in
        blocks, so that they finish one after the other and not all at the end.
        """
        block = max(sizes)
        index = {name: i for i, name in enumerate(dict.fromkeys(m.point_id for m in self.members))}
        ordered = sorted(
            self.members, key=lambda m: (index[m.point_id] // block, m.seed, m.point_id)
        )
        bounds = pairwise(accumulate(sizes, initial=0))
        return [tuple(ordered[start:end]) for start, end in bounds]

    def _seconds_each(self, size: int) -> float:
        return self.pack_seconds(size) / size

    def _size_within(self, factor: float) -> int:
        """Smallest size whose time per member is within a factor of that of the largest."""
        spare = factor * self._seconds_each(self.largest) - self.each
        return min(math.ceil(self.shared / spare), self.largest)


def partition_workloads(workloads: Sequence[Workload], workers: int) -> list[list[int]]:
    """Chooses the pack sizes of each workload, in the order in which its members are taken."""
    seconds = (len(w.members) / w.preferred * w.pack_seconds(w.preferred) for w in workloads)
    share = math.fsum(seconds) / workers
    sizes = [split_evenly(len(w.members), w.size_for(share)) for w in workloads]
    rounds = math.ceil(sum(map(len, sizes)) / workers)
    if rounds < _ROUNDS_TO_HALVE:
        return [split_evenly(len(w.members), w.size_for(share / rounds)) for w in workloads]
    lengths = [
        (workload.pack_seconds(size), i, j)
        for i, (workload, own) in enumerate(zip(workloads, sizes, strict=True))
        for j, size in enumerate(own)
    ]
    for _, i, j in sorted(lengths)[:workers]:
        half = sizes[i][j] // 2
        if half >= workloads[i].smallest:
            sizes[i][j] -= half
            sizes[i].append(half)
    return [sorted(own, reverse=True) for own in sizes]


def split_evenly(members: int, max_size: int) -> list[int]:
    """Splits members into the fewest packs of at most `max_size`, as equal as possible."""
    count = math.ceil(members / max_size)
    bounds = [members * i // count for i in range(count + 1)]
    return [end - start for start, end in pairwise(bounds)]
