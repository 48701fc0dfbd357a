"""What curves say of stacks of any size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privnets.contract import Cost
from sweeps.planning.cost_curves import PACK_SECONDS, CostCurve, PackSizes

COST = Cost(seconds=0.3, memory=1000, shared=1.7)
# Seconds per member fall to 16 members, and rise beyond.
MEASURED = CostCurve((1, 2, 4, 8, 16, 32), (10.0, 14.0, 20.0, 32.0, 56.0, 136.0), 1000)


@given(st.integers(1, 10_000))
def test_a_stack_of_the_cost_model_takes_what_is_shared_once_and_each_member_s_own(
    size: int,
) -> None:
    assert CostCurve.from_cost(COST).stack_seconds(size) == pytest.approx(1.7 + 0.3 * size)


@given(st.integers(1, 32))
def test_a_measured_curve_goes_through_what_was_measured_and_straight_between(size: int) -> None:
    total = MEASURED.stack_seconds(size)
    for known, seconds in zip(MEASURED.sizes, MEASURED.totals, strict=True):
        assert total == pytest.approx(seconds) or size != known
    below = max(s for s in MEASURED.sizes if s <= size)
    assert MEASURED.stack_seconds(below) <= total
    assert MEASURED.pack_seconds(size) == total + PACK_SECONDS


def test_a_curve_ends_along_its_last_line() -> None:
    assert MEASURED.stack_seconds(40) == pytest.approx(136.0 + 8 * 5.0)


def test_sizes_that_pay_lie_about_the_best_of_the_curve() -> None:
    sizes = PackSizes.of(MEASURED, members=100, memory=2**40)
    best = min(MEASURED.seconds_per_member(k) for k in range(1, 33))
    assert sizes.least <= sizes.good <= sizes.most <= 32
    assert MEASURED.seconds_per_member(sizes.least) <= 1.4 * best
    assert MEASURED.seconds_per_member(max(1, sizes.least // 2)) > 1.4 * best
    assert MEASURED.seconds_per_member(sizes.good) <= 1.05 * best
    assert MEASURED.seconds_per_member(sizes.most) <= 1.05 * best


@pytest.mark.parametrize(("members", "memory", "most"), [(3, 2**40, 3), (100, 5500, 5)])
def test_a_stack_is_no_larger_than_what_there_is_and_fits_into_memory(
    members: int, memory: int, most: int
) -> None:
    assert PackSizes.of(CostCurve.from_cost(Cost(1.0, 1000, 100.0)), members, memory).most == most


def test_a_member_larger_than_memory_is_alone() -> None:
    assert PackSizes.of(MEASURED, members=10, memory=1) == PackSizes(1, 1, 1)


def test_nothing_is_stacked_beyond_what_was_measured_unless_it_is_cheap() -> None:
    dear = CostCurve((1, 2, 4), (10.0, 10.1, 10.2), 1000)
    cheap = CostCurve((1, 2, 4), (1e-4, 1.1e-4, 1.2e-4), 1000)
    assert PackSizes.of(dear, members=1000, memory=2**40).most == 4
    assert PackSizes.of(cheap, members=1000, memory=2**40).most == 1000


def test_a_scaled_curve_pays_at_the_same_sizes() -> None:
    twice = MEASURED.scale(2.0, 77)
    assert twice.stack_seconds(5) == pytest.approx(2 * MEASURED.stack_seconds(5))
    assert (twice.memory, twice.measured) == (77, True)
