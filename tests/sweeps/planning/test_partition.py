"""Partition into packs: complete, within the efficient sizes, and without idle workers."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from privnets.contract import Cost
from sweeps.planning.packing import Capacity, Workload, partition_workloads, split_evenly

ROOMY = 2**50


def make_workload(
    members: int, seconds: float, shared: float, memory: int = ROOMY, *, on_gpu: bool = False
) -> Workload:
    listed: Any = range(members)
    return Workload.from_cost(listed, Cost(seconds, 1000, shared), Capacity(1, memory, on_gpu))


seconds = st.floats(1e-4, 300)
workloads = st.lists(
    st.builds(
        make_workload,
        st.integers(1, 200),
        seconds,
        st.one_of(st.just(0.0), seconds),
        st.one_of(st.just(ROOMY), st.integers(1000, 50_000)),
    ),
    min_size=1,
    max_size=6,
)


def simulate_end(lengths: list[float], workers: int) -> float:
    """Simulates when the last pack ends, in the most direct way."""
    free_at = [0.0 for _ in range(workers)]
    for length in lengths:
        first = min(range(workers), key=lambda w: free_at[w])
        free_at[first] += length
    return max(free_at)


@settings(max_examples=50)
@given(workloads, st.integers(1, 64))
def test_packs_have_every_member_and_efficient_sizes(
    workloads: list[Workload], workers: int
) -> None:
    packs = partition_workloads(workloads, workers)
    for own, sizes in zip(workloads, packs, strict=True):
        assert sum(sizes) == len(own.members)
        assert max(sizes) <= own.largest
        assert min(sizes) >= own.smallest // 2


@settings(max_examples=75)
@given(workloads, st.integers(1, 64))
def test_workers_are_idle_for_at_most_one_pack(workloads: list[Workload], workers: int) -> None:
    """The end is within 5% of a lower bound, plus one pack."""
    packs = partition_workloads(workloads, workers)
    pairs = zip(workloads, packs, strict=True)
    lengths = [own.pack_seconds(size) for own, sizes in pairs for size in sizes]
    each = ((own, own.pack_seconds(own.largest) / own.largest) for own in workloads)
    best = sum(len(own.members) * seconds for own, seconds in each) / workers
    longest = max(*lengths, *(own.pack_seconds(own.preferred) for own in workloads))
    assert simulate_end(sorted(lengths, reverse=True), workers) <= 1.05 * best + longest


def test_the_last_packs_of_a_long_sweep_are_smaller() -> None:
    (sizes,) = partition_workloads([make_workload(400, 1.0, 0.0)], 4)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] >= 2 * sizes[-1] - 1


def test_workers_with_gpus_share_stacks_as_large_as_memory_allows() -> None:
    (sizes,) = partition_workloads([make_workload(300, 60.0, 5.0, on_gpu=True)], 3)
    assert sizes == [100, 100, 100]
    (sizes,) = partition_workloads([make_workload(300, 60.0, 5.0, 20_000, on_gpu=True)], 3)
    assert 15 <= max(sizes) <= 20


def test_cheap_points_share_large_packs_and_expensive_ones_do_not() -> None:
    (cheap_sizes,) = partition_workloads([make_workload(10_000, 1e-4, 0.0)], 2)
    (expensive_sizes,) = partition_workloads([make_workload(240, 300.0, 0.0)], 2)
    assert min(cheap_sizes) >= 100
    assert max(expensive_sizes) == 1


@given(st.integers(1, 1000), st.integers(1, 100))
def test_an_even_split_differs_by_at_most_one(members: int, size: int) -> None:
    parts = split_evenly(members, size)
    assert sum(parts) == members
    assert max(parts) <= size
    assert max(parts) - min(parts) <= 1
    assert len(parts) == math.ceil(members / size)
