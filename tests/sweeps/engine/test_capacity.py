"""Capacity of a cluster, and waiting for it: as long as there is hope, and no longer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from cluster import Machine
from cluster.connection import Connection, local_machine
from sweeps.engine.capacity import (
    cluster_capacity,
    describe_wait,
    resolve_auto,
    slots,
    wait_for_capacity,
)
from sweeps.errors import InputError
from sweeps.study.spec import Resources


@pytest.mark.parametrize(
    ("cpus", "gpus", "workers"), [(1, 0, 12), (3, 0, 3), (4, 0, 3), (8, 0, 1), (2, 1, 2)]
)
def test_a_pack_is_not_spread_over_machines(cpus: int, gpus: int, workers: int) -> None:
    machines = [Machine(4, 2), Machine(8, 0)]
    assert cluster_capacity(machines, Resources(cpus=cpus, gpus=gpus)).workers == workers


@pytest.mark.parametrize(
    ("cpus", "gpus", "workers"),
    [
        (1, 0.3, 6),
        (1, 0.25, 8),
        (1, 0.4, 4),
        (1, 0.6, 2),
        (0.1, 0.1, 20),
        (4, 0.5, 4),
        (0.1, 0, 160),
    ],
)
def test_a_pack_gets_its_share_of_one_gpu(cpus: float, gpus: float, workers: int) -> None:
    assert cluster_capacity([Machine(16, 2)], Resources(cpus=cpus, gpus=gpus)).workers == workers


def test_packs_share_the_memory_of_their_machine() -> None:
    machines = [Machine(4, 0, memory=80_000), Machine(2, 0, memory=10_000), Machine(0, 0, memory=9)]
    assert cluster_capacity(machines, Resources()).memory == 3000
    assert cluster_capacity(machines, Resources(concurrency=1)).memory == 6000


@pytest.mark.parametrize(("cpus", "gpus"), [(9, 0), (5, 1), (1, 3)])
def test_a_pack_that_fits_on_no_machine_is_refused(cpus: int, gpus: int) -> None:
    with pytest.raises(InputError, match=f"{cpus} CPUs? and {gpus} GPU"):
        cluster_capacity([Machine(4, 2), Machine(8, 0)], Resources(cpus=cpus, gpus=gpus))


def test_a_machine_needs_both_cpus_and_gpus_for_a_pack() -> None:
    cpus_only, both = Machine(cpus=8, gpus=0), Machine(cpus=2, gpus=1)
    resources = Resources(cpus=2, gpus=1)
    assert (slots([cpus_only], resources), slots([cpus_only, both], resources)) == (0, 1)


def test_memory_accelerator_and_custom_resources_limit_packs() -> None:
    machine = Machine(8, 2, memory=16 * 2**30, accelerator="A100", custom=(("licence", 3.0),))
    for resources, packs in (
        (Resources(memory=6.0), 2),
        (Resources(custom={"licence": 1.0}), 3),
        (Resources(custom={"absent": 1.0}), 0),
        (Resources(gpus=1, accelerator="A100"), 2),
        (Resources(gpus=1, accelerator="H100"), 0),
    ):
        assert slots([machine], resources) == packs
    with pytest.raises(InputError, match="the accelerator H100, 1 licence on one machine"):
        cluster_capacity([machine], Resources(accelerator="H100", custom={"licence": 1.0}))


_GPU_MACHINE = Machine(16, 4, accelerator="A100")


@pytest.mark.parametrize(
    ("resources", "machines", "cpus", "gpus", "packs"),
    [
        (Resources(), [], 1, 0, 0),
        (Resources(), [Machine(8, 0)], 1, 0, 8),
        (Resources(), [Machine(64, 0), _GPU_MACHINE], 2, 0.5, 8),
        (Resources(), [_GPU_MACHINE, Machine(5, 2)], 1, 0.5, 12),
        (Resources(), [Machine(1, 2)], 1, 1, 1),
        (Resources(cpus=2), [_GPU_MACHINE], 2, 0.5, 8),
        (Resources(cpus=3), [_GPU_MACHINE], 3, 1, 4),
        (Resources(concurrency=1), [_GPU_MACHINE], 4, 1, 1),
        (Resources(accelerator="H100"), [_GPU_MACHINE], 1, 0, 0),
        (Resources(gpus=1), [_GPU_MACHINE], 4, 1, 4),
        (Resources(gpus=0.5), [_GPU_MACHINE], 2, 0.5, 8),
        (Resources(gpus=2), [_GPU_MACHINE], 8, 2, 2),
        (Resources(gpus=0), [_GPU_MACHINE], 1, 0, 16),
    ],
)
def test_auto_shares_a_gpu_where_there_is_one_with_its_cores(
    resources: Resources, machines: list[Machine], cpus: float, gpus: float, packs: int
) -> None:
    resolved = resolve_auto(resources, machines)
    assert (resolved.cpus, resolved.gpus) == (cpus, gpus)
    assert slots(machines, resolved) == packs


def test_configurations_that_need_much_memory_get_a_whole_gpu() -> None:
    resolved = resolve_auto(Resources(), [_GPU_MACHINE], memory_each=5 * 2**30)
    assert (resolved.cpus, resolved.gpus) == (4, 1)


def test_the_resource_that_is_short_is_named() -> None:
    machines = [Machine(2, 0, memory=6 * 2**30), Machine(4, 0, memory=3 * 2**30)]
    with pytest.raises(InputError) as refused:
        cluster_capacity(machines, Resources(cpus=1, memory=8.0))
    assert str(refused.value) == (
        "resources: a pack requires 1 CPU and 0 GPUs, 8 GiB of memory on one machine; got machines "
        "with 2 CPUs and 0 GPUs, 6 GiB of memory, or 4 CPUs and 0 GPUs, 3 GiB of memory. Change "
        "resources.memory, or add a machine"
    )
    with pytest.raises(InputError, match=r"Change resources\.cpus or resources\.memory, or add"):
        cluster_capacity(machines, Resources(cpus=3, memory=4.0))


def test_an_accelerator_that_ray_detects_is_accepted() -> None:
    machine = Machine.from_resources({"CPU": 4.0, "GPU": 2.0, "accelerator_type:A100": 1.0})
    assert slots([machine], Resources(gpus=1, accelerator="A100")) == 2


def test_this_machine_is_refused_before_ray_starts_if_its_memory_is_too_small() -> None:
    machine = local_machine()
    assert machine.memory > 0
    with pytest.raises(InputError, match=r"Change resources\.memory, or add a machine"):
        cluster_capacity([machine], Resources(memory=2.0 * machine.memory / 2**30))


def test_a_bundle_has_ray_s_names_and_no_zero() -> None:
    resources = Resources(memory=0.5, accelerator="A100", custom={"licence": 2.0})
    expected = {"CPU": 1, "memory": 2.0**29, "accelerator_type:A100": 0.001, "licence": 2.0}
    assert resources.bundle() == expected


def test_a_wait_names_the_resources_and_whether_others_use_them() -> None:
    machines = [Machine(cpus=2, gpus=0)]
    assert describe_wait(machines, Resources(cpus=1, gpus=1)) == (
        "waiting for a node with 1 CPU and 1 GPU"
    )
    assert describe_wait(machines, Resources(cpus=2)) == (
        "waiting for 2 CPUs to become free (all are in use by others)"
    )


@pytest.fixture
def joined(local_ray: Connection) -> Connection:
    """A Ray of two CPUs, as a driver that joins it sees it."""
    return Connection(local_ray.address, started=False)


@dataclass
class GrowingConnection(Connection):
    """Cluster without resources until its machines have been listed a number of times."""

    empty_looks: int = 0

    def machines(self) -> list[Machine]:
        self.empty_looks -= 1
        return [Machine(cpus=0, gpus=0)] if self.empty_looks >= 0 else super().machines()


def after(polls: int) -> Callable[[], bool]:
    """Stop condition that is true after a number of polls."""
    counts = iter([*[False] * polls, True])
    return lambda: next(counts)


def never() -> bool:
    return False


def test_a_cluster_with_room_is_used_at_once(joined: Connection) -> None:
    machines = wait_for_capacity(joined, Resources(cpus=2), after(0))
    assert [machine.cpus for machine in machines] == [2]


def test_a_stop_request_ends_the_wait(joined: Connection) -> None:
    machines = wait_for_capacity(joined, Resources(cpus=1, gpus=1), after(2))
    assert slots(machines, Resources(cpus=1, gpus=1)) == 0


def test_machines_that_are_too_small_are_waited_for_with_patience(
    joined: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.engine.capacity._PATIENCE_SECONDS", 1.0)
    with pytest.raises(InputError, match="3 CPUs and 0 GPUs on one machine; got machines with 2"):
        wait_for_capacity(joined, Resources(cpus=3), never)


def test_the_wait_ends_when_a_node_joins(joined: Connection) -> None:
    growing = GrowingConnection(joined.address, started=False, empty_looks=3)
    machines = wait_for_capacity(growing, Resources(cpus=2), never)
    assert [machine.cpus for machine in machines] == [2]
