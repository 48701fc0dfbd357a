"""Packs: replicates that are trained together as one stack, in one trial."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import Final, Literal

import privnets
from privnets.contract import Cost, Experiment
from sweeps.planning.cost_curves import CostCurve, PackSizes
from sweeps.planning.partition import Workload, partition, split_evenly
from sweeps.planning.plan import PlannedReplicate
from sweeps.study.spec import Resources

# A sweep whose packs are longer than this begins with a pack of a single point.
_EARLY_SECONDS: Final = 10.0
_UNMEASURED: Final[Mapping[str, CostCurve]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Pack:
    """Replicates of one structure.

    Attributes:
        pack_id: Hash of the members: equal packs have equal ids on any machine.
        experiment: The experiment's name.
        replicates: The members, those of one seed side by side.
    """

    pack_id: str
    experiment: str
    replicates: tuple[PlannedReplicate, ...]


def make_packs(
    replicates: Sequence[PlannedReplicate],
    *,
    experiment: str,
    size: Literal["auto"] | int,
    workers: int,
    memory: int,
    curves: Mapping[str, CostCurve] = _UNMEASURED,
) -> list[Pack]:
    """ReplicateGroup replicates by structure and cut the groups into packs.

    With `auto` a pack is as large as pays and fits into memory, but leaves every worker something
    to do until the end: the last ones are smaller, though none so small that it wastes much. Which
    replicates share a pack follows from the arguments alone.

    Args:
        replicates: Of one experiment, in any order.
        experiment: The experiment's name.
        size: Replicates in a pack at most, or `auto`.
        workers: How many packs run at once.
        memory: Bytes that one pack may take.
        curves: Structure to how long its stacks take; by the cost model where it is missing.

    Returns:
        The longest first; before them one pack of a single point where they are long.
    """
    runs = privnets.experiment(experiment)
    groups = [
        ReplicateGroup.of(runs, members, curves.get(structure))
        for structure, members in sorted(group_by_structure(replicates).items())
    ]
    if size != "auto":
        return _packs(experiment, groups, [split_evenly(len(g.members), size) for g in groups])
    loads = [group.load(memory) for group in groups]
    sizes = partition(loads, max(workers, 1))
    first = _early(groups, loads, sizes)
    if first is None:
        return _packs(experiment, groups, sizes)
    early, rest = groups[first].split()
    loads[first] = rest.load(memory)
    groups[first] = rest
    begun = _packs(experiment, [early], [[len(early.members)]])
    return begun + _packs(experiment, groups, partition(loads, max(workers, 1)))


def local_capacity(resources: Resources) -> tuple[int, int]:
    """What this machine alone offers packs.

    Args:
        resources: What a pack is given, and how many may run at once.

    Returns:
        How many packs run at once, and the bytes of memory that each may take: its part of half
        the machine's.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    workers = max(1, int((cores or 1) / max(resources.cpus, 1.0)))
    if resources.concurrency != "auto":
        workers = min(workers, resources.concurrency)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return workers, memory // 2 // workers


@dataclass(frozen=True, slots=True)
class ReplicateGroup:
    """Replicates of one structure, point by point, and how long their stacks take."""

    members: Sequence[PlannedReplicate]
    curve: CostCurve

    @classmethod
    def of(
        cls, experiment: Experiment, members: Sequence[PlannedReplicate], curve: CostCurve | None
    ) -> ReplicateGroup:
        """Price replicates of one structure.

        Args:
            experiment: Theirs.
            members: In any order.
            curve: As measured; None to go by the cost model.
        """
        ordered = sorted(members, key=lambda r: (r.point_id, r.seed))
        return cls(ordered, curve or CostCurve.from_cost(mean_cost(experiment, ordered)))

    def load(self, memory: int) -> Workload:
        """To be cut into packs of so many bytes at most."""
        count = len(self.members)
        return Workload(count, self.curve, PackSizes.of(self.curve, count, memory))

    def split(self) -> tuple[ReplicateGroup, ReplicateGroup]:
        """The first point, and the others."""
        first = [m for m in self.members if m.point_id == self.members[0].point_id]
        return ReplicateGroup(first, self.curve), ReplicateGroup(
            self.members[len(first) :], self.curve
        )

    def parts(self, sizes: Sequence[int]) -> list[tuple[PlannedReplicate, ...]]:
        """Consecutive members by so many at a time.

        Members of one seed stand together, as they may share their random draws, but not those of
        all points: points are to be complete one after the other, not all in the end.
        """
        block = max(sizes)
        place = {name: i for i, name in enumerate(dict.fromkeys(m.point_id for m in self.members))}
        ordered = sorted(
            self.members, key=lambda m: (place[m.point_id] // block, m.seed, m.point_id)
        )
        return [tuple(ordered[a:b]) for a, b in pairwise(accumulate(sizes, initial=0))]


def mean_cost(experiment: Experiment, members: Iterable[PlannedReplicate]) -> Cost:
    """What one of several replicates costs: the mean of seconds, the most of memory."""
    points = {member.point_id: member.config for member in members}
    costs = [experiment.cost(config) for config in points.values()]
    return Cost(
        math.fsum(cost.seconds for cost in costs) / len(costs),
        max(cost.memory for cost in costs),
        math.fsum(cost.shared for cost in costs) / len(costs),
    )


def group_by_structure(replicates: Iterable[PlannedReplicate]) -> dict[str, list[PlannedReplicate]]:
    """Structure to its replicates."""
    structures: dict[str, str] = {}
    groups: dict[str, list[PlannedReplicate]] = {}
    for replicate in replicates:
        # The seed is stackable everywhere, so the replicates of a point share their structure.
        if replicate.point_id not in structures:
            structures[replicate.point_id] = replicate.config.structure()
        groups.setdefault(structures[replicate.point_id], []).append(replicate)
    return groups


def _early(
    groups: Sequence[ReplicateGroup], loads: Sequence[Workload], sizes: Sequence[Sequence[int]]
) -> int | None:
    """The group whose first point is soon done, where all packs are long and hold more; or None."""
    shortest = min(
        (load.curve.pack_seconds(min(own)) for load, own in zip(loads, sizes, strict=True)),
        default=0.0,
    )
    if shortest <= _EARLY_SECONDS:
        return None
    waits = []
    for group, load in zip(groups, loads, strict=True):
        replicates = sum(m.point_id == group.members[0].point_id for m in group.members)
        fits = replicates <= load.sizes.most and replicates < len(group.members)
        waits.append(load.curve.pack_seconds(replicates) if fits else math.inf)
    quickest = min(range(len(waits)), key=waits.__getitem__)
    return quickest if waits[quickest] < shortest else None


def _packs(
    experiment: str, groups: Sequence[ReplicateGroup], sizes: Sequence[Sequence[int]]
) -> list[Pack]:
    """The longest first; of equal length, those of earlier points."""
    found = [
        (group.curve.pack_seconds(len(part)), _made(experiment, part))
        for group, own in zip(groups, sizes, strict=True)
        for part in group.parts(own)
    ]
    return [made for _, made in sorted(found, key=lambda p: -p[0])]


def _made(experiment: str, members: tuple[PlannedReplicate, ...]) -> Pack:
    names = "\n".join(sorted(f"{m.point_id}:{m.seed}" for m in members))
    digest = hashlib.sha256(f"{experiment}\n{names}".encode()).hexdigest()
    return Pack(digest[:16], experiment, members)
