"""Points that leave a pack are dominated with confidence, whatever their order and units."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privnets.statistics.estimates import Estimate
from sweeps.engine.early_stopping import StoppingRule, dominated_points

Estimates = dict[tuple[str, int], dict[str, Estimate]]
TWO: Mapping[str, Literal["min", "max"]] = {"privacy/leakage": "min", "utility/error": "min"}


def rule(
    objectives: Mapping[str, Literal["min", "max"]] = TWO, confidence: float = 0.95
) -> StoppingRule:
    return StoppingRule(objectives, (0.125, 0.25, 0.5), 2.0, confidence)


def known(
    points: Mapping[str, Sequence[Sequence[float]]],
    error: float = 0.0,
    objectives: Mapping[str, object] = TWO,
) -> Estimates:
    """Point to its objectives' values for seeds 0, 1, ..., all equally certain."""
    return {
        (name, seed): {
            metric: Estimate(value, error) for metric, value in zip(objectives, row, strict=True)
        }
        for name, rows in points.items()
        for seed, row in enumerate(rows)
    }


def test_a_dominated_point_leaves_and_names_the_better_one():
    points = {"a": [(0, 1)], "b": [(1, 0)], "worse": [(0.5, 3)], "c": [(2, 0.5)]}
    assert dominated_points(known(points, 0.01), rule(), 2) == {"worse": "a", "c": "b"}


def test_with_one_seed_the_gap_must_exceed_the_normal_quantile_of_both_errors():
    one = {"utility/error": "min"}
    needed = stats.norm.ppf(0.95) * math.hypot(0.1, 0.1)
    for gap, leaves in ((0.999 * needed, False), (1.001 * needed, True)):
        found = dominated_points(known({"a": [(0,)], "b": [(gap,)]}, 0.1, one), rule(one), 1)
        assert found == ({"b": "a"} if leaves else {})


def test_seeds_are_paired_and_their_spread_meets_students_quantile():
    one = {"utility/error": "min"}
    seeds = np.array([0.0, 40.0, -7.0])  # what pairing takes away
    largest = math.sqrt(3) / stats.t.ppf(0.95, 2)  # standard deviation of gaps of mean 1
    for factor, leaves in ((0.999, True), (1.001, False)):
        gaps = 1 + factor * largest * np.array([-1.0, 0.0, 1.0])
        points = {"a": seeds[:, None].tolist(), "b": (seeds + gaps)[:, None].tolist()}
        assert bool(dominated_points(known(points, 0, one), rule(one), 1)) == leaves


def test_errors_within_replicates_count_where_seeds_agree_by_chance():
    one = {"utility/error": "min"}
    needed = stats.t.ppf(0.95, 2) * math.hypot(0.1, 0.1) / math.sqrt(3)
    for gap, leaves in ((0.999 * needed, False), (1.001 * needed, True)):
        points = {"a": [(0,)] * 3, "b": [(gap,)] * 3}
        assert bool(dominated_points(known(points, 0.1, one), rule(one), 1)) == leaves


def test_the_choice_among_the_front_is_corrected_for():
    """Each of two points that may dominate is tested at half the error."""
    needed = stats.norm.ppf(0.975) * math.hypot(0.1, 0.1)
    for gap, leaves in ((0.999 * needed, False), (1.001 * needed, True)):
        points = {"a": [(0, 0)], "b": [(50, -50)], "c": [(gap, gap)]}
        assert dominated_points(known(points, 0.1), rule(), 1) == ({"c": "a"} if leaves else {})


def test_seeds_that_only_one_of_two_points_has_prove_nothing():
    estimates = known({"a": [(0, 0)], "b": [(5, 5)]})
    assert dominated_points(estimates, rule(), 1) == {"b": "a"}
    moved = {(name, seed + (name == "b")): e for (name, seed), e in estimates.items()}
    assert dominated_points(moved, rule(), 1) == {}


def test_the_best_stay_however_clearly_they_are_dominated():
    points = {name: [(i, i)] for i, name in enumerate("abcd")}
    assert set(dominated_points(known(points), rule(), 1)) == {"b", "c", "d"}
    assert set(dominated_points(known(points), rule(), 3)) == {"d"}
    assert dominated_points(known(points), rule(), 4) == {}


def test_within_a_rank_those_of_most_volume_stay():
    front = {"a": [(0, 0)]}
    layer = {"left": [(1, 9)], "crowded": [(8, 2.9)], "middle": [(3, 3)], "right": [(9, 1)]}
    assert set(dominated_points(known(front | layer), rule(), 4)) == {"crowded"}


@pytest.mark.parametrize(
    ("points", "share", "room"), [(16, 0.125, 8), (16, 0.25, 4), (16, 0.5, 2), (3, 0.5, 1)]
)
def test_each_rung_halves_the_room(points, share, room):
    assert rule().safe_points(points, share) == room


def test_where_a_rung_was_passed_over_room_is_halved_for_it_too():
    stopping = StoppingRule(TWO, (0.1, 0.2), 3.0, 0.95)
    assert [stopping.safe_points(9, share) for share in (0.1, 0.2)] == [3, 1]


@pytest.mark.parametrize("missing", [math.nan, math.inf])
@pytest.mark.parametrize("part", ["value", "error"])
def test_a_point_without_an_estimate_neither_leaves_nor_dominates(missing, part):
    points = {"a": [(0, 0)] * 2, "b": [(1, 1)] * 2}
    for name in points:
        estimates = known(points)
        told = estimates[name, 1]["utility/error"]
        fields = {"value": told.value, "error": told.error, part: missing}
        estimates[name, 1]["utility/error"] = Estimate(**fields)
        assert dominated_points(estimates, rule(), 1) == {}
    assert dominated_points({}, rule(), 0) == {}


numbers = st.integers(-20, 20).map(float)


@st.composite
def packs(draw: st.DrawFn) -> Estimates:
    """Some points of the same seeds, on a coarse grid so that ties come up."""
    names = [f"p{i}" for i in range(draw(st.integers(1, 9)))]
    seeds = draw(st.integers(1, 3))
    row = st.tuples(numbers, numbers)
    points = {name: draw(st.lists(row, min_size=seeds, max_size=seeds)) for name in names}
    return known(points, draw(st.sampled_from([0.0, 0.1, 2.0])))


def means(estimates: Estimates) -> dict[str, tuple[float, float]]:
    rows: dict[str, list[tuple[float, ...]]] = {}
    for (name, _), told in estimates.items():
        rows.setdefault(name, []).append(tuple(told[metric].value for metric in TWO))
    return {name: tuple(np.mean(found, axis=0)) for name, found in rows.items()}


@given(packs(), st.integers(1, 9))
def test_the_front_never_leaves_and_dominates_whatever_does(estimates, room):
    where = means(estimates)
    front = {
        name
        for name, (x, y) in where.items()
        if not any(a <= x and b <= y and (a, b) != (x, y) for a, b in where.values())
    }
    found = dominated_points(estimates, rule(), room)
    assert not front & found.keys()
    assert len(found) <= max(0, len(where) - room)
    for worse, better in found.items():
        assert better in front
        assert all(np.array(where[better]) < where[worse])


@given(packs(), st.integers(1, 9), st.randoms(use_true_random=False))
def test_the_order_of_members_does_not_matter(estimates, room, random):
    members = list(estimates)
    random.shuffle(members)
    shuffled = {member: estimates[member] for member in members}
    assert dominated_points(shuffled, rule(), room) == dominated_points(estimates, rule(), room)


@given(packs(), st.integers(1, 9), st.integers(-8, 8), st.integers(-8, 8))
def test_units_and_declared_directions_do_not_matter(estimates, room, one, other):
    """Powers of two scale without rounding; turned, an objective is maximised."""
    factors = dict(zip(TWO, (2.0**one, -(2.0**other)), strict=True))
    scaled = {
        member: {
            metric: Estimate(e.value * factors[metric], e.error * abs(factors[metric]))
            for metric, e in told.items()
        }
        for member, told in estimates.items()
    }
    turned = rule({"privacy/leakage": "min", "utility/error": "max"})
    assert dominated_points(scaled, turned, room) == dominated_points(estimates, rule(), room)


@given(packs(), st.integers(1, 9))
def test_points_that_leave_at_high_confidence_leave_at_low_confidence(estimates, room):
    sure, unsure = (
        dominated_points(estimates, rule(confidence=c), room).keys() for c in (0.99, 0.6)
    )
    assert sure <= unsure


@pytest.mark.parametrize("seeds", [1, 4])
def test_a_point_as_good_as_another_leaves_no_more_often_than_confidence_allows(seeds):
    """Equal in one objective, worse in the other: chance alone decides whether it leaves."""
    random, error, rounds = np.random.default_rng(5), 0.3, 2000
    centres = {"a": (0.0, 0.0), "equal": (0.0, 9.0), "far": (30.0, -30.0)}
    left = 0
    for _ in range(rounds):
        noise = {name: random.normal(0, error, (seeds, 2)) for name in centres}
        points = {name: (noise[name] + centre).tolist() for name, centre in centres.items()}
        left += "equal" in dominated_points(known(points, error), rule(), 1)
    assert left / rounds <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / rounds)
    assert left > 0
