"""Packs: replicates that one Ray Tune trial trains as one stack.

Packs start in order of decreasing length, each on the first free worker. They are as large as is
efficient. In few rounds of one pack per worker they are of equal length, so that workers end
together; in more rounds, the last packs are halved.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import Final, Literal

import privnets
from privnets.contract import Cost, Experiment
from sweeps.planning.cost_curves import CostCurve, Workload
from sweeps.planning.plan import PlannedReplicate
from sweeps.study.spec import Resources

# If all packs are longer, the sweep starts with a pack of one point, for an early first result.
_FIRST_RESULT_SECONDS: Final = 10.0
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


def make_packs(
    replicates: Sequence[PlannedReplicate],
    *,
    experiment: str,
    size: Literal["auto"] | int,
    workers: int,
    memory: int,
    curves: Mapping[str, CostCurve] = MappingProxyType({}),
) -> list[Pack]:
    """Groups replicates by structure and partitions the groups into packs.

    With `auto` a pack is as large as is efficient and fits into memory, while every worker has work
    until the end: the last packs are smaller. The result depends on the arguments alone.

    Args:
        replicates: Replicates of one experiment, in any order.
        size: Maximum number of replicates in a pack, or `auto`.
        workers: Number of packs that run at once.
        memory: Bytes that one pack may take.
        curves: Cost curve of each structure; the cost model serves for the others.

    Returns:
        Packs, the longest first; before them one pack of a single point if all packs are long.
    """
    if not replicates:
        return []
    implementation = privnets.experiment(experiment)
    groups = [
        ReplicateGroup.from_members(implementation, structure, members, curves.get(structure))
        for structure, members in sorted(group_by_structure(replicates).items())
    ]
    if size != "auto":
        sizes = [split_evenly(len(group.members), size) for group in groups]
        return _packs(experiment, groups, sizes)
    workloads = [Workload.from_curve(g.curve, len(g.members), memory) for g in groups]
    sizes = partition_workloads(workloads, max(workers, 1))
    first = _first_result_group(groups, min(_pack_seconds(workloads, sizes), default=0.0))
    if first is None:
        return _packs(experiment, groups, sizes)
    point, rest = groups[first].split_first_point()
    groups[first] = rest
    workloads[first] = Workload.from_curve(rest.curve, len(rest.members), memory)
    early = _packs(experiment, [point], [[len(point.members)]])
    sizes = partition_workloads(workloads, max(workers, 1))
    return early + _packs(experiment, groups, sizes)


def local_capacity(resources: Resources) -> tuple[int, int]:
    """Returns how many packs this machine runs at once, and the bytes of memory for each.

    Together they may take half of the machine's memory.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    workers = max(1, int((cores or 1) / max(resources.pack_cpus, 1.0)))
    if resources.concurrency != "auto":
        workers = min(workers, resources.concurrency)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return workers, memory // 2 // workers


@dataclass(frozen=True, slots=True)
class ReplicateGroup:
    """Replicates of one structure, ordered by point, with the cost curve of their stacks."""

    structure: str
    members: Sequence[PlannedReplicate]
    curve: CostCurve

    @classmethod
    def from_members(
        cls,
        experiment: Experiment,
        structure: str,
        members: Sequence[PlannedReplicate],
        curve: CostCurve | None = None,
    ) -> ReplicateGroup:
        """Orders replicates; without a measured curve the cost model serves."""
        ordered = sorted(members, key=lambda r: (r.point_id, r.seed))
        curve = curve or CostCurve.from_cost(_mean_cost(experiment, ordered))
        return cls(structure, ordered, curve)

    def split_first_point(self) -> tuple[ReplicateGroup, ReplicateGroup]:
        """Splits off the replicates of the first point."""
        count = self.first_point_size()
        first, others = self.members[:count], self.members[count:]
        return replace(self, members=first), replace(self, members=others)

    def first_point_size(self) -> int:
        """Counts the replicates of the first point."""
        return sum(member.point_id == self.members[0].point_id for member in self.members)

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


def group_by_structure(
    replicates: Iterable[PlannedReplicate],
) -> dict[str, list[PlannedReplicate]]:
    """Returns each structure with its replicates."""
    structures: dict[str, str] = {}
    groups: dict[str, list[PlannedReplicate]] = {}
    for replicate in replicates:
        # The seed is never structural, so the replicates of a point share their structure.
        if replicate.point_id not in structures:
            structures[replicate.point_id] = replicate.point_config.structure()
        groups.setdefault(structures[replicate.point_id], []).append(replicate)
    return groups


def _mean_cost(experiment: Experiment, members: Iterable[PlannedReplicate]) -> Cost:
    """Averages the seconds of replicates; takes the maximum of their memory."""
    points = {member.point_id: member.point_config for member in members}
    costs = [experiment.cost(config) for config in points.values()]
    return Cost(
        math.fsum(cost.seconds for cost in costs) / len(costs),
        max(cost.memory for cost in costs),
        math.fsum(cost.shared for cost in costs) / len(costs),
    )


def _first_result_group(groups: Sequence[ReplicateGroup], shortest: float) -> int | None:
    """Returns the index of the group whose first point should start alone, before `shortest` s."""
    waits = [group.curve.pack_seconds(group.first_point_size()) for group in groups]
    is_early = shortest > _FIRST_RESULT_SECONDS and min(waits) < shortest
    return waits.index(min(waits)) if is_early else None


def _packs(
    experiment: str, groups: Sequence[ReplicateGroup], sizes: Sequence[Sequence[int]]
) -> list[Pack]:
    """Makes packs, the longest first; packs of equal length are in the order of their points."""
    packs = []
    for group, own in zip(groups, sizes, strict=True):
        for members in group.split(own):
            packs.append((group.curve.pack_seconds(len(members)), Pack.of(experiment, members)))
    return [pack for _, pack in sorted(packs, key=lambda entry: -entry[0])]


def partition_workloads(workloads: Sequence[Workload], workers: int) -> list[list[int]]:
    """Chooses the pack sizes of each workload, in the order in which its members are taken."""
    share = sum(workload.seconds for workload in workloads) / workers
    sizes = [split_evenly(w.members, w.size_for(share)) for w in workloads]
    rounds = math.ceil(sum(map(len, sizes)) / workers)
    if rounds < _ROUNDS_TO_HALVE:
        return [split_evenly(w.members, w.size_for(share / rounds)) for w in workloads]
    lengths = [
        (workload.curve.pack_seconds(size), i, j)
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


def _pack_seconds(
    workloads: Sequence[Workload], partition: Sequence[Sequence[int]]
) -> Iterator[float]:
    for workload, sizes in zip(workloads, partition, strict=True):
        seconds = {size: workload.curve.pack_seconds(size) for size in set(sizes)}
        yield from (seconds[size] for size in sizes)
