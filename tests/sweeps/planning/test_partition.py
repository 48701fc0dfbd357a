"""Partition into packs: complete, within the efficient sizes, and without idle workers."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from privnets.contract import Cost
from sweeps.planning.cost_curves import CostCurve, Workload
from sweeps.planning.packing import partition_workloads, split_evenly

ROOMY = 2**50


def make_workload(members: int, seconds: float, shared: float, memory: int = ROOMY) -> Workload:
    curve = CostCurve.from_cost(Cost(seconds, 1000, shared))
    return Workload.from_curve(curve, members, memory)


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
        assert sum(sizes) == own.members
        assert max(sizes) <= own.largest
        assert min(sizes) >= own.smallest // 2


@settings(max_examples=75)
@given(workloads, st.integers(1, 64))
def test_workers_are_idle_for_at_most_one_pack(workloads: list[Workload], workers: int) -> None:
    """The end is within 5% of a lower bound, plus one pack."""
    packs = partition_workloads(workloads, workers)
    pairs = zip(workloads, packs, strict=True)
    lengths = [own.curve.pack_seconds(size) for own, sizes in pairs for size in sizes]
    best = (
        sum(own.members * own.curve.seconds_per_member(own.largest) for own in workloads) / workers
    )
    longest = max(*lengths, *(own.curve.pack_seconds(own.preferred) for own in workloads))
    assert simulate_end(sorted(lengths, reverse=True), workers) <= 1.05 * best + longest


def test_the_last_packs_of_a_long_sweep_are_smaller() -> None:
    (sizes,) = partition_workloads([make_workload(400, 1.0, 0.0)], 4)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] >= 2 * sizes[-1] - 1


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
