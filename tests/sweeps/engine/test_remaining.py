"""What is left of a sweep: all of it, once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from small_sweeps import small_plan

import privnets
from cluster import Machine
from sweeps.engine.capacity import (
    Capacity,
    cluster_capacity,
    pack_costs,
    pending_packs,
    pending_replicates,
)
from sweeps.engine.pack_trainer import PackTrainer
from sweeps.errors import InputError
from sweeps.planning.plan import Plan
from sweeps.store.ledger import Ledger
from sweeps.study.spec import Resources

ROOM = Capacity(2, 2**30)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return small_plan(tmp_path_factory.mktemp("study"), "resources.pack=3", "fixed.draws=48")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(str(tmp_path), "sweep")


def members(packs: list[object]) -> Counter[tuple[str, int]]:
    return Counter((r.point_id, r.seed) for p in packs for r in p.replicates)  # type: ignore[attr-defined]


def packs(plan: Plan, ledger: Ledger) -> list[object]:
    return list(pending_packs(plan, ledger, pending_replicates(plan, ledger), ROOM))


def run(plan: Plan, ledger: Ledger, pack: object, stages: int | None = None) -> None:
    training = PackTrainer(
        pack,  # type: ignore[arg-type]
        privnets.experiment("membership"),
        ledger,
        checkpoint_seconds=0.0,
    )
    while stages is None or stages > 0:
        stages = None if stages is None else stages - 1
        if training.advance().committed:
            return


def test_a_new_sweep_lacks_everything_once(plan: Plan, ledger: Ledger) -> None:
    planned = Counter((r.point_id, r.seed) for r in plan.replicates())
    assert members(packs(plan, ledger)) == planned


def test_what_is_in_the_ledger_is_not_left(plan: Plan, ledger: Ledger) -> None:
    first, *others = packs(plan, ledger)
    run(plan, ledger, first)
    assert members(packs(plan, ledger)) == members(others)


def test_a_pack_with_a_checkpoint_comes_first_and_as_it_was(plan: Plan, ledger: Ledger) -> None:
    *others, last = packs(plan, ledger)
    run(plan, ledger, last, stages=1)
    again = packs(plan, ledger)
    assert again[0].pack_id == last.pack_id  # type: ignore[attr-defined]
    assert members(again[:1]) == members([last])
    assert members(again[1:]) == members(others)


def test_a_damaged_checkpoint_is_dropped_and_its_pack_is_left(plan: Plan, ledger: Ledger) -> None:
    first, *_ = packs(plan, ledger)
    run(plan, ledger, first, stages=1)
    for path in Path(ledger.directory.path, "checkpoints").glob("*/*"):
        path.write_bytes(b"")
    planned = Counter((r.point_id, r.seed) for r in plan.replicates())
    assert members(packs(plan, ledger)) == planned
    assert list(Path(ledger.directory.path, "checkpoints").iterdir()) == []


def test_a_pack_weighs_what_its_replicates_cost(plan: Plan, ledger: Ledger) -> None:
    """What a stack shares is paid once."""
    begun = pending_packs(plan, ledger, pending_replicates(plan, ledger), ROOM)
    cost = privnets.experiment("membership").cost
    shared = [max(cost(r.config).shared for r in made.replicates) for made in begun]
    assert sum(pack_costs(begun).values()) == pytest.approx(plan.cost_seconds() + sum(shared))


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
def test_a_part_of_a_gpu_is_never_parts_of_two(cpus: float, gpus: float, workers: int) -> None:
    assert cluster_capacity([Machine(16, 2)], Resources(cpus=cpus, gpus=gpus)).workers == workers


def test_packs_share_the_memory_of_the_machine_they_are_on_and_not_of_this_one() -> None:
    machines = [Machine(4, 0, memory=80_000), Machine(2, 0, memory=10_000), Machine(0, 0, memory=9)]
    assert cluster_capacity(machines, Resources()).memory == 3000
    assert cluster_capacity(machines, Resources(concurrency=1)).memory == 6000
    assert cluster_capacity(machines, Resources()).on_gpus(77).memory == 77


@pytest.mark.parametrize(("cpus", "gpus"), [(9, 0), (5, 1), (1, 3)])
def test_a_pack_that_fits_on_no_machine_is_refused(cpus: int, gpus: int) -> None:
    with pytest.raises(InputError, match=f"{cpus} CPUs? and {gpus} GPU"):
        cluster_capacity([Machine(4, 2), Machine(8, 0)], Resources(cpus=cpus, gpus=gpus))
