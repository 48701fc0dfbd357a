"""Fronts, hypervolume and attainment against slow obvious versions and hand-made cases."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.analysis.flags import ATTAINABLE_FLOOR, STRONGEST, is_flagged
from sweeps.analysis.pareto import attainment, hypervolume, pareto_front

A, B, C = "privacy/a", "utility/b", "utility/c"
MIN_MAX = {A: "min", B: "max"}

# Few distinct values, so that ties and duplicates are common.
_value = st.sampled_from([-1.0, -0.0, 0.0, 0.5, 1.0, 2.0, math.inf, -math.inf])
_rows = st.lists(st.tuples(_value, _value, _value), max_size=12)
_directions = st.tuples(*[st.sampled_from(["min", "max"])] * 3).map(
    lambda d: dict(zip([A, B, C], d, strict=True))
)


def frame(rows: list[tuple[float, ...]]) -> pd.DataFrame:
    columns = [A, B, C][: len(rows[0]) if rows else 3]
    return pd.DataFrame(rows, columns=columns, dtype=float)


def dominates(a: tuple[float, ...], b: tuple[float, ...], directions: list[str]) -> bool:
    pairs = [(y, x) if d == "max" else (x, y) for x, y, d in zip(a, b, directions, strict=True)]
    return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)


def slow_front(rows: list[tuple[float, ...]], objectives: dict[str, str]) -> list[int]:
    directions = list(objectives.values())
    return [i for i, row in enumerate(rows) if not any(dominates(o, row, directions) for o in rows)]


@given(_rows, _directions)
def test_the_front_has_every_nondominated_row(rows, objectives):
    assert list(pareto_front(frame(rows), objectives).index) == slow_front(rows, objectives)


@given(_rows, _directions, st.data())
def test_each_problem_has_a_front_of_its_own(rows, objectives, data):
    problems = data.draw(
        st.lists(st.sampled_from([0.2, 0.4]), min_size=len(rows), max_size=len(rows))
    )
    points = frame(rows).assign(**{"config/problem.mixture.dependence": problems, "config/x": 0})
    expected = []
    for problem in set(problems):
        own = [i for i, each in enumerate(problems) if each == problem]
        expected += [own[i] for i in slow_front([rows[i] for i in own], objectives)]
    assert sorted(pareto_front(points, objectives).index) == sorted(expected)


def test_points_of_several_problems_have_no_hypervolume():
    points = frame([(0.0, 1.0), (-1.0, 3.0)]).assign(**{"config/problem": ["digits", "eco"]})
    with pytest.raises(ValueError, match="differ in problem share no scale"):
        hypervolume(points, MIN_MAX, (1.0, 0.0))


def test_flagged_rows_are_left_out_unless_asked_for():
    points = frame([(0.0, 1.0), (-1.0, 3.0)]).assign(**{"flag/attack_beats_bound": [0.0, 0.25]})
    front = pareto_front(points, MIN_MAX)
    assert list(front.index) == [0]
    assert list(pareto_front(points, MIN_MAX, include_flagged=True).index) == [1]
    assert hypervolume(points, MIN_MAX, (1.0, 0.0)) == 1.0


@pytest.mark.parametrize(
    ("columns", "raised"),
    [
        ({"flag/other": 0.0}, False),
        ({"flag/other": 0.5}, True),
        ({"flag/attacker_not_converged": 0.25}, False),
        ({"flag/attacker_not_converged": 0.5}, True),
        ({"flag/attacker_not_converged": math.nan}, False),
        ({"flag/below_bound": 0.0, "bound/gap.ci_high": 0.01}, False),
        ({"flag/below_bound": 0.0, "bound/gap.ci_high": -0.01}, True),
        ({"flag/attacker_below_floor": 1.0, STRONGEST: 0.49, f"{STRONGEST}.ci_high": 0.51}, False),
        ({"flag/attacker_below_floor": 1.0, STRONGEST: 0.45, f"{STRONGEST}.ci_high": 0.47}, True),
        ({"flag/attacker_below_floor": 0.0, STRONGEST: 0.45, f"{STRONGEST}.ci_high": 0.47}, False),
        ({"flag/attacker_below_floor": 1.0, STRONGEST: 0.45}, True),
        ({"flag/attacker_below_floor": math.nan, STRONGEST: math.nan}, False),
    ],
)
def test_a_flag_is_raised_by_a_replicate_or_by_an_interval(columns, raised):
    points = pd.DataFrame([{ATTAINABLE_FLOOR: 0.5, **columns}])
    assert is_flagged(points).tolist() == [raised]


def test_a_release_that_hides_the_utility_label_is_not_held_to_the_true_label():
    """The true label would determine the secret, but nothing infers it from the release."""
    floors = {"floor/attacker_balanced_accuracy": 1.0, ATTAINABLE_FLOOR: 0.59}
    strongest = {STRONGEST: 0.6, f"{STRONGEST}.ci_low": 0.58, f"{STRONGEST}.ci_high": 0.62}
    points = pd.DataFrame([{"flag/attacker_below_floor": flag} for flag in (0.0, 0.5)])
    assert is_flagged(points.assign(**floors, **strongest)).tolist() == [False, False]


def test_rows_that_cannot_be_compared_are_left_out_and_counted():
    points = frame([(0.0, 1.0), (math.nan, 2.0), (1.0, math.nan), (-1.0, 3.0)])
    points["status"] = ["finished", "finished", "failed", "failed"]
    front = pareto_front(points, MIN_MAX)
    assert list(front.index) == [0]
    assert list(front.columns) == list(points.columns)


def test_infinitely_good_point_dominates_an_infinite_volume():
    assert hypervolume(frame([(-math.inf, 1.0), (0.0, 0.0)]), MIN_MAX, (1.0, -1.0)) == math.inf
    assert hypervolume(frame([(math.inf, 1.0), (0.0, 0.0)]), MIN_MAX, (1.0, -1.0)) == 1.0


def test_front_of_nothing_is_empty():
    assert pareto_front(frame([]), MIN_MAX).empty
    assert hypervolume(frame([]), MIN_MAX, (1.0, 0.0)) == 0.0


@pytest.mark.parametrize(
    ("objectives", "message"),
    [
        ({}, "at least one metric"),
        ({A: "minimise"}, "must be min or max; got 'minimise'"),
        ({"privacy/aa": "min"}, "did you mean privacy/a"),
        ({"x": "min"}, "the metrics are privacy/a, utility/b"),
    ],
)
def test_invalid_objectives_are_refused(objectives, message):
    points = frame([(0.0, 1.0)]).assign(point_id="p", **{f"{A}.std": 0.1, "config/n": 3})
    with pytest.raises(ValueError, match=message):
        pareto_front(points, objectives)


def slow_hypervolume(points: np.ndarray, reference: np.ndarray) -> float:
    """Inclusion-exclusion over the boxes between each point and the reference (minimised)."""
    total = 0.0
    for size in range(1, len(points) + 1):
        for subset in itertools.combinations(points, size):
            sides = np.maximum(reference - np.max(subset, axis=0), 0.0)
            total += (-1) ** (size + 1) * float(np.prod(sides))
    return total


_small = st.integers(-8, 8).map(lambda i: i / 4)


@given(st.lists(st.tuples(_small, _small, _small), max_size=7), _directions)
def test_hypervolume_is_inclusion_exclusion(rows, objectives):
    points = frame(rows)
    signs = np.array([-1.0 if d == "max" else 1.0 for d in objectives.values()])
    expected = slow_hypervolume(points.to_numpy() * signs, np.ones(3))
    reference = dict(zip(objectives, signs, strict=True))
    assert hypervolume(points, objectives, reference) == pytest.approx(expected, abs=1e-9)
    assert hypervolume(points, objectives, list(signs)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("reference", [(1.0,), {A: 1.0}, (1.0, math.nan), (math.inf, 0.0)])
def test_reference_must_be_a_number_for_each_objective(reference):
    with pytest.raises(ValueError, match="reference must give a finite number"):
        hypervolume(frame([(0.0, 1.0)]), MIN_MAX, reference)


def replicates(rows: list[tuple[int, float, float]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["seed", A, B])


def test_median_attainment_of_three_crossing_replicates():
    """Seeds 0 and 1 cross; seed 2 is behind both: two of three attain exactly these corners."""
    seeds = replicates([(2, 5.0, 5.0), (0, 1.0, 4.0), (1, 2.0, 2.0), (0, 4.0, 1.0)])
    surface = attainment(seeds, {A: "min", B: "min"})
    assert surface.to_numpy().tolist() == [[2.0, 4.0], [4.0, 2.0]]
    assert attainment(seeds, {A: "min", B: "min"}, 1 / 3).to_numpy().tolist() == [
        [1.0, 4.0],
        [2.0, 2.0],
        [4.0, 1.0],
    ]
    assert attainment(seeds, {A: "min", B: "min"}, 1.0).to_numpy().tolist() == [[5.0, 5.0]]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), _small | st.just(math.inf), _small), min_size=1, max_size=14
    ),
    st.sampled_from([0.25, 1 / 3, 0.5, 2 / 3, 1.0]),
    st.sampled_from([MIN_MAX, {A: "max", B: "min"}]),
)
def test_attainment_is_what_enough_replicates_reach(rows, level, objectives):
    """Every grid place is at or behind the surface exactly when that share of seeds attains it."""
    table = replicates(rows)
    surface = attainment(table, objectives, level)
    signs = np.array([-1.0 if d == "max" else 1.0 for d in objectives.values()])
    seeds = table["seed"].unique()
    values = table[[A, B]].to_numpy() * signs
    for place in itertools.product(np.arange(-9, 10, 3) / 4, repeat=2):
        reached = (values <= np.array(place)).all(axis=1)
        share = table["seed"][reached].nunique() / len(seeds)
        behind = (surface.to_numpy() * signs <= np.array(place)).all(axis=1).any()
        assert behind == (share >= level - 1e-9)


def test_point_with_a_failed_replicate_is_left_out_of_every_set():
    """The front leaves it out too: its successful seeds must not represent it."""
    seeds = replicates([(0, 1.0, 1.0), (1, math.nan, math.nan), (0, 2.0, 1.0), (1, 2.0, 1.0)])
    seeds["point_id"] = ["diverged", "diverged", "sound", "sound"]
    seeds["status"] = ["finished", "failed", "finished", "finished"]
    assert attainment(seeds, MIN_MAX, 0.5).to_numpy().tolist() == [[2.0, 1.0]]


def test_seed_without_defined_points_attains_nothing():
    seeds = replicates([(0, 1.0, 1.0), (1, math.nan, 1.0)])
    assert attainment(seeds, MIN_MAX, 0.5).to_numpy().tolist() == [[1.0, 1.0]]
    assert attainment(seeds, MIN_MAX, 1.0).empty


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"replicates": frame([(1.0, 1.0)])}, "pass result.replicates"),
        ({"level": 0.0}, r"level must be in \(0, 1\]"),
        ({"objectives": {A: "min"}}, "two or three objectives; got 1"),
    ],
)
def test_invalid_attainment_arguments_are_refused(change, message):
    given_ = {"replicates": replicates([(0, 1.0, 1.0)]), "objectives": MIN_MAX, "level": 0.5}
    with pytest.raises(ValueError, match=message):
        attainment(**{**given_, **change})
