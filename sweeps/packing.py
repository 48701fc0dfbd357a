"""Packs: replicates that are trained together as one stack, in one trial."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

import privnets
from privnets.contract import Cost, Experiment
from sweeps.planning import PlannedReplicate
from sweeps.spec import Resources

_LONGEST_SECONDS: Final = 20.0
_PACKS_PER_WORKER: Final = 3
# On one CPU thread stacked networks train 2.4, 3.2 and 3.9 times as fast as separate ones with 2,
# 4 and 8 in a stack, and no faster beyond (tests/benchmarks): smaller stacks waste work.
_SMALLEST: Final = 8


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


def pack(
    replicates: Sequence[PlannedReplicate],
    *,
    experiment: str,
    size: Literal["auto"] | int,
    workers: int,
    memory: int,
) -> list[Pack]:
    """Group replicates by structure and cut the groups into packs of almost equal size.

    With `auto` a pack fits into memory, takes about 20 seconds at most, and is small enough that
    every worker gets about three, so that all finish at about the same time; it is not cut below
    8 replicates for that last reason alone. Which replicates share a pack follows from the
    arguments, so a resumed sweep that packs its whole plan again meets its checkpoints again.

    Args:
        replicates: Of one experiment, in any order.
        experiment: The experiment's name.
        size: Replicates in a pack, or `auto`.
        workers: How many packs run at once.
        memory: Bytes that one pack may take.

    Returns:
        The longest first.
    """
    runs = privnets.experiment(experiment)
    groups = [_Group.of(runs, members) for members in _by_structure(replicates)]
    work = math.fsum(group.seconds * len(group.members) for group in groups)
    share = work / (_PACKS_PER_WORKER * max(workers, 1))
    packs = [
        (group.seconds * len(part), _made(experiment, part))
        for group in groups
        for part in _cut(group.members, size if size != "auto" else group.size(share, memory))
    ]
    return [made for _, made in sorted(packs, key=lambda p: (-p[0], p[1].pack_id))]


def here(resources: Resources) -> tuple[int, int]:
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
class _Group:
    """Replicates of one structure, with what the dearest of them takes."""

    members: list[PlannedReplicate]
    seconds: float
    memory: int

    @classmethod
    def of(cls, experiment: Experiment, members: list[PlannedReplicate]) -> _Group:
        # Members of one seed stand together, as they may share their random draws.
        ordered = sorted(members, key=lambda r: (r.seed, r.point_id))
        points: dict[str, Cost] = {}
        for member in ordered:
            if member.point_id not in points:
                points[member.point_id] = experiment.cost(member.config)
        return cls(
            ordered,
            max(cost.seconds for cost in points.values()),
            max(cost.memory for cost in points.values()),
        )

    def size(self, share: float, memory: int) -> int:
        """How many members a pack holds, when one of `share` seconds balances the workers."""
        seconds = max(self.seconds, 1e-9)
        balanced = max(math.ceil(round(share / seconds, 6)), _SMALLEST)
        fitting = memory // max(self.memory, 1)
        return max(1, min(balanced, int(_LONGEST_SECONDS / seconds), fitting))


def _by_structure(replicates: Iterable[PlannedReplicate]) -> list[list[PlannedReplicate]]:
    structures: dict[str, str] = {}
    groups: dict[str, list[PlannedReplicate]] = {}
    for replicate in replicates:
        # The seed is stackable everywhere, so the replicates of a point share their structure.
        if replicate.point_id not in structures:
            structures[replicate.point_id] = replicate.config.structure()
        groups.setdefault(structures[replicate.point_id], []).append(replicate)
    return list(groups.values())


def _cut(members: list[PlannedReplicate], size: int) -> list[tuple[PlannedReplicate, ...]]:
    count = math.ceil(len(members) / size)
    bounds = [len(members) * i // count for i in range(count + 1)]
    return [tuple(members[a:b]) for a, b in pairwise(bounds)]


def _made(experiment: str, members: tuple[PlannedReplicate, ...]) -> Pack:
    names = "\n".join(sorted(f"{m.point_id}:{m.seed}" for m in members))
    digest = hashlib.sha256(f"{experiment}\n{names}".encode()).hexdigest()
    return Pack(digest[:16], experiment, members)
