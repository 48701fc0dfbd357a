"""Capacity of a cluster: how many packs it trains at once, and waiting until it has room for one.

A pack is never spread over several machines, and never over parts of several GPUs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import privnets
from cluster.connection import Connection, Machine
from cluster.nodes import demand_node
from privnets.config import ExperimentConfig
from sweeps.analysis.text import format_count
from sweeps.errors import InputError
from sweeps.planning.packing import Capacity, local_capacity
from sweeps.study.spec import Resources, Study

# Limit on the wait for a node: an autoscaler's may load images for long, and a wait for ever would
# use up a batch system's allocation.
_PATIENCE_SECONDS: Final = 3600.0
_POLL_SECONDS: Final = 0.5
# Half of the memory of a small GPU. Packs whose configurations need more get a whole one.
_HALF_GPU_BYTES: Final = 4 * 2**30
# Share of a machine's memory that packs may take; Ray's processes and peaks of stacks need more.
_MEMORY_SHARE: Final = 0.6


def resolve_auto(
    resources: Resources, machines: Sequence[Machine], memory_each: int = 0
) -> Resources:
    """Replaces `auto` CPUs and GPUs of a pack by amounts for these machines.

    Two packs share a GPU, so that attackers of one train beside the game of the other, if there are
    CPUs and memory for both. A pack on GPUs gets its share of the CPUs of a machine, for attackers.

    Args:
        resources: Resources as the study has them.
        machines: Machines that may train packs.
        memory_each: Bytes that the largest configuration needs.
    """
    suited = [m for m in machines if m.gpus and resources.accelerator in (None, m.accelerator)]
    share = min((machine.cpus / machine.gpus for machine in suited), default=0)
    gpus = resources.gpus
    if gpus == "auto":
        is_shared = (
            share >= 2 * resources.pack_cpus
            and memory_each <= _HALF_GPU_BYTES
            and resources.concurrency != 1
        )
        gpus = (0.5 if is_shared else 1) if suited else 0
    cpus = max(1, math.floor(share * gpus)) if resources.cpus == "auto" else resources.cpus
    return resources.model_copy(update={"cpus": cpus, "gpus": gpus})


def resolve_study_resources(
    study: Study, configs: Iterable[ExperimentConfig], machines: Sequence[Machine]
) -> Resources:
    """Resources of a study's packs on these machines, for the largest of its configurations."""
    memory = 0
    if study.resources.gpus == "auto" and any(machine.gpus for machine in machines):
        experiment = privnets.experiment(study.experiment)
        by_structure = {config.structure(): config for config in configs}
        memory = max((experiment.cost(c).memory for c in by_structure.values()), default=0)
    return resolve_auto(study.resources, machines, memory)


def cluster_capacity(machines: Sequence[Machine], resources: Resources) -> Capacity:
    """Capacity of machines for packs of the given resources.

    Raises:
        InputError: If no machine has room for a pack.
    """
    workers = slots(machines, resources)
    if not workers:
        raise _too_small_error(machines, resources)
    shares = [
        _MEMORY_SHARE * machine.memory / min(packs, workers)
        for machine in machines
        if machine.memory and (packs := _machine_slots(machine, resources))
    ]
    local = local_capacity(resources.model_copy(update={"concurrency": workers}))
    return Capacity(workers, int(min(shares, default=local.memory)))


def slots(machines: Sequence[Machine], resources: Resources) -> int:
    """Number of packs that machines can train at once, at most `resources.concurrency`."""
    packs = sum(_machine_slots(machine, resources) for machine in machines)
    return packs if resources.concurrency == "auto" else min(packs, resources.concurrency)


def wait_for_capacity(
    connection: Connection,
    resources: Resources,
    should_stop: Callable[[], bool],
) -> list[Machine]:
    """Waits until a machine of a cluster has room for a pack.

    An autoscaler, if there is one, sees the demand; otherwise people may start a node by hand.

    Args:
        connection: Connection to the cluster.
        resources: Resources of a pack.
        should_stop: Polled; once true, the function returns.

    Raises:
        InputError: If none has within an hour.
    """
    machines = connection.machines()
    started = time.monotonic()
    with demand_node(resources.bundle()):
        while not (slots(machines, resources) or should_stop()):
            if time.monotonic() - started >= _PATIENCE_SECONDS:
                raise _too_small_error(machines, resources)
            time.sleep(_POLL_SECONDS)
            machines = connection.machines()
    return machines


def describe_wait(machines: Sequence[Machine], resources: Resources) -> str:
    """Describes the wait of a sweep that has no pack in training."""
    amount = format_amount(resources)
    if not slots(machines, resources):
        return f"waiting for a node with {amount}"
    return f"waiting for {amount} to become free (all are in use by others)"


def _too_small_error(machines: Sequence[Machine], resources: Resources) -> InputError:
    limits = [_machine_limits(machine, resources) for machine in machines]
    names = dict.fromkeys(name for each in limits for name in each)
    short = [name for name in names if not any(each.get(name, 1) for each in limits)]
    sizes = set()
    for machine in machines:  # CPUs, GPUs, and its amounts of the other resources of a pack
        parts = [f"{machine.memory / 2**30:.3g} GiB of memory"] if resources.memory else []
        if resources.accelerator:
            kind = machine.accelerator
            parts += [f"the accelerator {kind}" if kind else "no GPU"]
        amounts = dict(machine.custom)
        parts += [f"{amounts.get(name, 0):g} {name}" for name in resources.custom]
        cpus, gpus = format_count(machine.cpus, "CPU"), format_count(machine.gpus, "GPU")
        sizes.add(", ".join([f"{cpus} and {gpus}", *parts]))
    reduced = " or ".join(f"resources.{name}" for name in short or names) or "resources.cpus"
    return InputError(
        f"resources: a pack requires {format_count(resources.pack_cpus, 'CPU')} and "
        f"{format_count(resources.pack_gpus, 'GPU')}{_format_others(resources)} on one machine; "
        f"got machines with {', or '.join(sorted(sizes)) or 'none'}. Change {reduced}, or add a "
        "machine"
    )


def _machine_slots(machine: Machine, resources: Resources) -> int:
    return min(_machine_limits(machine, resources).values(), default=1)


def _machine_limits(machine: Machine, resources: Resources) -> dict[str, int]:
    """Number of packs for which a machine has enough of each resource, by the study's name."""
    limits = {}
    if resources.pack_cpus:
        limits["cpus"] = _quotient(machine.cpus, resources.pack_cpus)
    if resources.pack_gpus >= 1:
        limits["gpus"] = _quotient(machine.gpus, resources.pack_gpus)
    elif resources.pack_gpus:
        limits["gpus"] = math.floor(machine.gpus) * _quotient(1, resources.pack_gpus)
    if resources.memory and machine.memory:
        limits["memory"] = _quotient(machine.memory, resources.memory * 2**30)
    if resources.accelerator is not None and resources.accelerator != machine.accelerator:
        limits["accelerator"] = 0
    amounts = dict(machine.custom)
    for name, need in resources.custom.items():
        limits[f"custom.{name}"] = _quotient(amounts.get(name, 0), need)
    return limits


def _quotient(amount: float, part: float) -> int:
    """Number of parts that fit into an amount, in spite of rounding errors."""
    return math.floor(amount / part + 1e-9)


def format_amount(resources: Resources) -> str:
    """CPUs, GPUs and other resources of a pack, in words."""
    gpus = f" and {format_count(resources.pack_gpus, 'GPU')}" if resources.pack_gpus else ""
    return format_count(resources.pack_cpus, "CPU") + gpus + _format_others(resources)


def _format_others(resources: Resources) -> str:
    """Memory, accelerator and custom resources of a pack, each after a comma."""
    parts = [f"{resources.memory:g} GiB of memory"] if resources.memory else []
    parts += [f"the accelerator {resources.accelerator}"] if resources.accelerator else []
    parts += [f"{amount:g} {name}" for name, amount in resources.custom.items()]
    return "".join(f", {part}" for part in parts)
