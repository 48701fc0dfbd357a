"""Packs that a sweep still lacks: those with a checkpoint, then the rest of its plan.

Imports neither Ray nor what reads results, which nodes without Ray need not have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import privnets
from privnets.contract import Cost
from sweeps.planning.packing import Capacity, Pack, make_packs
from sweeps.planning.plan import Plan, PlannedReplicate
from sweeps.store.checkpoints import Checkpoint, checkpoint_label, checkpointed_packs
from sweeps.store.codec import ReplicateKey
from sweeps.store.ledger import Ledger
from sweeps.study.spec import budget_trainings

Replicates = Mapping[ReplicateKey, PlannedReplicate]
"""Planned replicates by (point_id, seed)."""


def pending_replicates(plan: Plan, ledger: Ledger) -> dict[ReplicateKey, PlannedReplicate]:
    """Replicates of a plan that are not in the ledger."""
    finished = ledger.finished_replicates()
    return {r.key: r for r in plan.replicates() if r.key not in finished}


def pending_packs(
    plan: Plan,
    ledger: Ledger,
    replicates: Replicates,
    capacity: Capacity,
) -> list[Pack]:
    """Packs of pending replicates: first those that have a checkpoint, unchanged, then the rest.

    A pack ends where the study's budget of trainings ends, unless it has a checkpoint.

    Raises:
        OSError: If checkpoints cannot be read.
    """
    name, remaining = plan.study.experiment, dict(replicates)
    label = checkpoint_label(privnets.experiment(name))
    packs = []
    for pack_id in checkpointed_packs(ledger):
        checkpoint = Checkpoint(ledger, pack_id, label)
        members = checkpoint.replicate_keys()
        if members and remaining.keys() >= set(members):
            packs.append(Pack(pack_id, name, tuple(remaining.pop(member) for member in members)))
        else:
            checkpoint.remove()
    begun = sum(len(pack.replicates) for pack in packs)
    count = max(0, budget_trainings(plan.study.search.budget) - begun)
    rest = list(remaining.values())
    size = plan.study.resources.pack
    for part in (rest[:count], rest[count:]):
        packs += make_packs(part, experiment=name, size=size, capacity=capacity)
    return packs


def pack_costs(packs: Sequence[Pack]) -> dict[str, float]:
    """Cost of each pack by its id, in seconds of one core; a stack pays shared costs once."""
    costs: dict[str, Cost] = {}
    totals = {}
    for pack in packs:
        experiment = privnets.experiment(pack.experiment)
        for replicate in pack.replicates:
            if replicate.point_id not in costs:
                costs[replicate.point_id] = experiment.cost(replicate.point_config)
        own = [costs[replicate.point_id] for replicate in pack.replicates]
        totals[pack.pack_id] = max(c.shared for c in own) + math.fsum(c.seconds for c in own)
    return totals
