import math
from itertools import pairwise, product

import pytest
from scipy.stats import kstest, qmc

from sweeps.planning.search import complaints, grid_size, propose
from sweeps.study.spec import Study

LISTED = {"a": {"grid": [1, 2, 3]}, "b": {"choice": ["x", "y"]}, "c": {"range": [0, 4, 2]}}
MIXED = {**LISTED, "u": {"uniform": [-1, 3]}, "l": {"loguniform": [1e-4, 1]}}
DRAWN = ("random", "sobol")


def made(space: dict[str, object], **search: object):
    study = Study.model_validate(
        {"name": "s", "experiment": "membership", "space": space, "search": search}
    )
    return study.space, study.search


def test_a_grid_is_every_combination_with_the_last_axis_fastest():
    found = propose(*made(LISTED))
    assert [tuple(p.values()) for p in found] == list(product([1, 2, 3], ["x", "y"], [0, 2, 4]))
    assert list(found[0]) == ["a", "b", "c"]


def test_an_empty_space_has_one_point():
    assert propose(*made({})) == [{}]
    assert propose(*made({}, algorithm="sobol", num_points=8)) == [{}]


@pytest.mark.parametrize("algorithm", ["grid", *DRAWN])
def test_more_points_of_the_same_study_hold_those_that_fewer_had(algorithm):
    space = LISTED if algorithm == "grid" else MIXED
    runs = [
        [tuple(p.items()) for p in propose(*made(space, algorithm=algorithm, num_points=n, seed=3))]
        for n in (3, 4, 7, 16)
    ]
    assert [len(run) for run in runs] == [3, 4, 7, 16]
    assert all(set(small) <= set(large) for small, large in pairwise(runs))


@pytest.mark.parametrize("algorithm", ["grid", *DRAWN])
def test_the_seed_alone_decides(algorithm):
    space = LISTED if algorithm == "grid" else MIXED

    def run(seed: int):
        return propose(*made(space, algorithm=algorithm, num_points=9, seed=seed))

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_a_part_of_a_grid_keeps_the_grid_s_order_and_is_never_more_than_the_grid():
    whole = propose(*made(LISTED))
    part = propose(*made(LISTED, num_points=7, seed=1))
    assert [p for p in whole if p in part] == part
    assert propose(*made(LISTED, num_points=99)) == whole


@pytest.mark.parametrize("algorithm", DRAWN)
def test_draws_are_uniform_along_each_axis(algorithm):
    count = 512
    found = propose(*made(MIXED, algorithm=algorithm, num_points=count, seed=5))
    linear = [(p["u"] + 1) / 4 for p in found]
    geometric = [math.log(p["l"] / 1e-4) / math.log(1e4) for p in found]
    assert kstest(linear, "uniform").pvalue > 1e-3
    assert kstest(geometric, "uniform").pvalue > 1e-3
    for name, values in (("a", [1, 2, 3]), ("b", ["x", "y"]), ("c", [0, 2, 4])):
        shares = [sum(p[name] == value for p in found) / count for value in values]
        spread = math.sqrt(1 / len(values) * (1 - 1 / len(values)) / count)
        assert all(abs(share - 1 / len(values)) < 4 * spread for share in shares)


def test_a_sobol_sequence_fills_the_space_more_evenly_than_random_draws():
    def discrepancy(algorithm: str) -> float:
        unit = {name: {"uniform": [0, 1]} for name in "abc"}
        found = propose(*made(unit, algorithm=algorithm, num_points=128, seed=0))
        return float(qmc.discrepancy([list(p.values()) for p in found]))

    assert discrepancy("sobol") < discrepancy("random") / 3


@pytest.mark.parametrize(
    ("space", "search", "path"),
    [
        (MIXED, {}, ("space", "u")),
        (MIXED, {}, ("space", "l")),
        (MIXED, {"algorithm": "sobol"}, ("search", "num_points")),
        (LISTED, {"algorithm": "random"}, ("search", "num_points")),
        ({name: {"range": [1, 1000]} for name in "abc"}, {}, ("space",)),
    ],
)
def test_what_an_algorithm_cannot_search_is_told(space, search, path):
    assert path in [complaint.path for complaint in complaints(*made(space, **search))]


def test_what_it_can_search_raises_no_complaint():
    assert not complaints(*made(LISTED))
    assert not complaints(*made(MIXED, algorithm="random", num_points=1))
    assert not complaints(*made(MIXED, algorithm="sobol", num_points=1))


def test_the_size_of_a_grid_too_large_to_list_is_known():
    assert grid_size(made({name: {"range": [1, 10**9]} for name in "abc"})[0]) == 10**27
