"""The work that a sweep still lacks, and how much of it can be done at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import privnets
from privnets.contract import Cost
from sweeps.analysis.text import format_count
from sweeps.engine.pack_trainer import label
from sweeps.errors import InputError
from sweeps.planning.cost_curves import CostCurve
from sweeps.planning.packing import Pack, local_capacity, make_packs
from sweeps.planning.plan import Plan, PlannedReplicate
from sweeps.store.checkpoints import Checkpoint, ReplicateKey, checkpointed_packs
from sweeps.store.ledger import Ledger
from sweeps.study.spec import Resources

if TYPE_CHECKING:
    from cluster.connection import Machine

# Of what Ray may give to work on a machine, as its own processes and a stack's peaks take more.
_MEMORY_SHARE: Final = 0.6


@dataclass(frozen=True, slots=True)
class Capacity:
    """What there is to run packs on.

    Attributes:
        workers: Packs at once.
        memory: Bytes that each may take.
    """

    workers: int
    memory: int

    def on_gpus(self, memory: int | None) -> Capacity:
        """With the memory that packs have on GPUs; the same where there are none."""
        return self if memory is None else Capacity(self.workers, memory)

    def times(self, growth: int, resources: Resources) -> Capacity:
        """With so many times the workers, as far as a sweep may have them."""
        workers = self.workers * growth
        limit = resources.concurrency
        return Capacity(workers if limit == "auto" else min(workers, limit), self.memory)


def pending_replicates(plan: Plan, ledger: Ledger) -> dict[ReplicateKey, PlannedReplicate]:
    """The plan's replicates that are not in the ledger."""
    done = ledger.finished_replicates()
    planned = {(r.point_id, r.seed): r for r in plan.replicates()}
    return {member: replicate for member, replicate in planned.items() if member not in done}


def pending_packs(
    plan: Plan,
    ledger: Ledger,
    missing: dict[ReplicateKey, PlannedReplicate],
    capacity: Capacity,
    curves: Mapping[str, CostCurve] = MappingProxyType({}),
) -> list[Pack]:
    """Packs of what is missing: first those that have a checkpoint, as they were, then the rest.

    Args:
        plan: What the sweep trains.
        ledger: What it has.
        missing: From `pending_replicates`.
        capacity: What there is to run packs on.
        curves: Structure to how long its stacks take; by the cost model where it is missing.

    Raises:
        OSError: If checkpoints cannot be looked at.
    """
    left = dict(missing)
    begun = [
        made
        for pack_id in checkpointed_packs(ledger)
        if (made := _begun(plan, ledger, pack_id, left)) is not None
    ]
    return begun + make_packs(
        list(left.values()),
        experiment=plan.study.experiment,
        size=plan.study.resources.pack,
        workers=capacity.workers,
        memory=capacity.memory,
        curves=curves,
    )


def pack_costs(packs: Sequence[Pack]) -> dict[str, float]:
    """Pack to what it costs, in seconds of one core."""
    costs: dict[str, Cost] = {}
    found = {}
    for made in packs:
        experiment = privnets.experiment(made.experiment)
        for replicate in made.replicates:
            if replicate.point_id not in costs:
                costs[replicate.point_id] = experiment.cost(replicate.config)
        own = [costs[replicate.point_id] for replicate in made.replicates]
        found[made.pack_id] = max(c.shared for c in own) + math.fsum(c.seconds for c in own)
    return found


def cluster_capacity(machines: Sequence[Machine], resources: Resources) -> Capacity:
    """How many packs can run at once, and the memory that each may take.

    Args:
        machines: Those that Ray runs on; a pack is never spread over several.
        resources: What a pack is to have.

    Raises:
        InputError: If no machine has room for a single one.
    """
    workers = slots(machines, resources)
    if not workers:
        raise too_small(machines, resources)
    shares = [
        _MEMORY_SHARE * machine.memory / min(room, workers)
        for machine in machines
        if machine.memory and (room := _room(machine, resources))
    ]
    _, memory = local_capacity(resources.model_copy(update={"concurrency": workers}))
    return Capacity(workers, int(min(shares, default=memory)))


def slots(machines: Sequence[Machine], resources: Resources) -> int:
    """How many packs can run at once; 0 where no machine has room for one."""
    room = sum(_room(machine, resources) for machine in machines)
    return room if resources.concurrency == "auto" else min(room, resources.concurrency)


def too_small(machines: Sequence[Machine], resources: Resources) -> InputError:
    """What is wrong where no machine has room for a pack."""
    there = ", ".join(sorted({f"{m.cpus:g} and {m.gpus:g}" for m in machines})) or "none"
    return InputError(
        f"resources: a pack is to have {format_count(resources.cpus, 'CPU')} and "
        f"{format_count(resources.gpus, 'GPU')}, and no machine has as many (there are: {there})"
    )


def _begun(
    plan: Plan, ledger: Ledger, pack_id: str, left: dict[ReplicateKey, PlannedReplicate]
) -> Pack | None:
    """The pack that a checkpoint is of, taken out of `left`; None where it is of no more use."""
    checkpoint = Checkpoint(ledger, pack_id, label(privnets.experiment(plan.study.experiment)))
    members = checkpoint.load().replicate_keys()
    if not members or any(member not in left for member in members):
        checkpoint.remove()
        return None
    return Pack(pack_id, plan.study.experiment, tuple(left.pop(member) for member in members))


def _room(machine: Machine, resources: Resources) -> int:
    """How many packs find room on a machine; a part of a GPU is never parts of two."""
    rooms = []
    if resources.cpus:
        rooms.append(_times(machine.cpus, resources.cpus))
    if resources.gpus >= 1:
        rooms.append(_times(machine.gpus, resources.gpus))
    elif resources.gpus:
        rooms.append(math.floor(machine.gpus) * _times(1, resources.gpus))
    return min(rooms, default=1)


def _times(there: float, each: float) -> int:
    """How often one fits into the other, whatever quotients round to."""
    return math.floor(there / each + 1e-9)
