"""How work is cut: all of it, no stack too large, and nobody idle for long."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privnets.contract import Cost
from sweeps.planning.cost_curves import CostCurve, PackSizes
from sweeps.planning.partition import Workload, makespan, partition, split_evenly

ROOMY = 2**50


def load(members: int, seconds: float, shared: float, memory: int = ROOMY) -> Workload:
    curve = CostCurve.from_cost(Cost(seconds, 1000, shared))
    return Workload(members, curve, PackSizes.of(curve, members, memory))


costs = st.floats(1e-4, 300)
loads = st.lists(
    st.builds(
        load,
        st.integers(1, 200),
        costs,
        st.one_of(st.just(0.0), costs),
        st.one_of(st.just(ROOMY), st.integers(1000, 50_000)),
    ),
    min_size=1,
    max_size=6,
)


def finished(lengths: list[float], workers: int) -> float:
    """When the last pack ends: told by walking through time, second by second of all workers."""
    clocks = [0.0 for _ in range(workers)]
    for length in lengths:
        soonest = min(range(workers), key=lambda w: clocks[w])
        clocks[soonest] += length
    return max(clocks)


@settings(max_examples=100)
@given(loads, st.integers(1, 64))
def test_every_member_is_cut_once_and_no_stack_is_larger_or_smaller_than_pays(
    work: list[Workload], workers: int
) -> None:
    found = partition(work, workers)
    for own, sizes in zip(work, found, strict=True):
        assert sum(sizes) == own.members
        assert max(sizes) <= own.sizes.most
        assert min(sizes) >= own.sizes.least // 2


@settings(max_examples=150)
@given(loads, st.integers(1, 64))
def test_no_worker_is_idle_for_longer_than_a_pack(work: list[Workload], workers: int) -> None:
    """All is done within 5% of what no cut can beat, and one pack of a size that pays."""
    found = partition(work, workers)
    pairs = zip(work, found, strict=True)
    lengths = [own.curve.pack_seconds(size) for own, sizes in pairs for size in sizes]
    best = sum(own.members * own.curve.seconds_per_member(own.sizes.most) for own in work) / workers
    longest = max(own.curve.pack_seconds(own.sizes.good) for own in work)
    assert finished(sorted(lengths, reverse=True), workers) <= 1.05 * best + longest


@settings(max_examples=100)
@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=60), st.integers(1, 20))
def test_the_makespan_is_when_the_last_pack_ends(lengths: list[float], workers: int) -> None:
    assert makespan(lengths, workers) == pytest.approx(finished(lengths, workers))


def test_the_last_packs_of_a_long_sweep_are_smaller() -> None:
    (sizes,) = partition([load(400, 1.0, 0.0)], 4)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] >= 4 * sizes[-1]


def test_cheap_points_are_carried_by_the_hundred_and_dear_ones_by_few() -> None:
    (cheap,) = partition([load(10_000, 1e-4, 0.0)], 2)
    (dear,) = partition([load(240, 300.0, 0.0)], 2)
    assert min(cheap) >= 100
    assert max(dear) == 1


@given(st.integers(1, 1000), st.integers(1, 100))
def test_even_parts_differ_by_one_at_most(members: int, size: int) -> None:
    parts = split_evenly(members, size)
    assert sum(parts) == members
    assert max(parts) <= size
    assert max(parts) - min(parts) <= 1
    assert len(parts) == math.ceil(members / size)
