"""Search algorithms: one set of tests for all, and properties of each."""

import math
from itertools import pairwise, product

import pytest
from scipy.stats import kstest

from privnets.points import Replicate, TradeoffPoint
from sweeps.study.search import SEARCHES, Search, SearchResult
from sweeps.study.search_space import Axis, Proposal, example_point, grid_size, is_in_space
from sweeps.study.spec import Study

LISTED = {"a": {"grid": [1, 2, 3]}, "b": {"choice": ["x", "y"]}, "c": {"range": [0, 4, 2]}}
MIXED = {**LISTED, "u": {"uniform": [-1, 3]}, "l": {"loguniform": [1e-4, 1]}}
DRAWN = ("random", "sobol")

# Computed with numpy 2 and scipy 1.17.
RANDOM_POINTS = [0.6369616873214543, 0.2697867137638703, 0.04097352393619469, 0.016527635528529094]
SOBOL_POINTS = [
    *(0.40994958858937025, 0.9641202185302973),
    *(0.7219116594642401, 0.10752477683126926),
    *(0.9048664066940546, 0.5285515235736966),
]
GRID_POINTS = [2, 4, 6]


def space_of(algorithm: str) -> dict[str, object]:
    return LISTED if algorithm == "grid" else MIXED


def start(space: dict[str, object], **search: object) -> Search:
    raw = {"name": "s", "experiment": "membership", "space": space, "search": search}
    study = Study.model_validate(raw)
    algorithm = type(SEARCHES.get(study.search.algorithm))
    assert not algorithm.find_errors(study.space, study.search)
    return algorithm(study.space, study.search)


def propose(space: dict[str, object], **search: object) -> list[Proposal]:
    return start(space, **search).ask(int(search.get("num_points", 1000)))


def error_paths(space: dict[str, object], **search: object) -> list[object]:
    raw = {"name": "s", "experiment": "membership", "space": space, "search": search}
    study = Study.model_validate(raw)
    algorithm = type(SEARCHES.get(study.search.algorithm))
    return [error.path for error in algorithm.find_errors(study.space, study.search)]


@pytest.mark.parametrize("algorithm", SEARCHES.names())
def test_the_same_seed_proposes_the_same_points(algorithm):
    def propose_nine(seed: int) -> list[Proposal]:
        return propose(space_of(algorithm), algorithm=algorithm, num_points=9, seed=seed)

    assert propose_nine(1) == propose_nine(1)
    assert propose_nine(1) != propose_nine(2)


@pytest.mark.parametrize("algorithm", SEARCHES.names())
def test_results_do_not_change_the_points_unless_the_search_is_adaptive(algorithm):
    settings = {"algorithm": algorithm, "num_points": 9, "seed": 3}
    search = start(space_of(algorithm), **settings)
    first = search.ask(4)
    search.tell([SearchResult(first[0], TradeoffPoint("0" * 20, "membership", first[0], ()))])
    assert search.is_adaptive or [*first, *search.ask(5)] == propose(
        space_of(algorithm), **settings
    )


@pytest.mark.parametrize("algorithm", ["grid", *DRAWN])
def test_more_points_contain_those_of_fewer(algorithm):
    proposals = [
        [
            tuple(p.items())
            for p in propose(space_of(algorithm), algorithm=algorithm, num_points=n, seed=3)
        ]
        for n in (3, 4, 7, 16)
    ]
    assert [len(points) for points in proposals] == [3, 4, 7, 16]
    assert all(set(small) <= set(large) for small, large in pairwise(proposals))


def test_a_grid_has_every_combination_and_the_last_axis_changes_fastest():
    proposals = propose(LISTED)
    combinations = product([1, 2, 3], ["x", "y"], [0, 2, 4])
    assert [tuple(p.values()) for p in proposals] == list(combinations)


def test_a_subset_of_a_grid_keeps_the_order_of_the_grid():
    grid = propose(LISTED)
    subset = propose(LISTED, num_points=7, seed=1)
    assert [p for p in grid if p in subset] == subset
    assert propose(LISTED, num_points=99) == grid


def test_known_points_of_each_algorithm():
    """Plans of existing sweeps must not change."""
    unit = {"u": {"uniform": [0, 1]}, "v": {"uniform": [0, 1]}}
    random = propose(unit, algorithm="random", num_points=2, seed=0)
    sobol = propose(unit, algorithm="sobol", num_points=3, seed=0)
    assert [v for p in random for v in p.values()] == pytest.approx(RANDOM_POINTS, abs=1e-12)
    assert [v for p in sobol for v in p.values()] == pytest.approx(SOBOL_POINTS, abs=1e-12)
    assert [p["a"] for p in propose({"a": {"range": [0, 9]}}, num_points=3, seed=0)] == GRID_POINTS


@pytest.mark.parametrize("algorithm", DRAWN)
def test_draws_are_uniform_along_each_axis(algorithm):
    count = 512
    proposals = propose(MIXED, algorithm=algorithm, num_points=count, seed=5)
    linear = [(p["u"] + 1) / 4 for p in proposals]
    geometric = [math.log(p["l"] / 1e-4) / math.log(1e4) for p in proposals]
    assert kstest(linear, "uniform").pvalue > 1e-3
    assert kstest(geometric, "uniform").pvalue > 1e-3
    for name, values in (("a", [1, 2, 3]), ("b", ["x", "y"]), ("c", [0, 2, 4])):
        fractions = [sum(p[name] == value for p in proposals) / count for value in values]
        spread = math.sqrt(1 / len(values) * (1 - 1 / len(values)) / count)
        assert all(abs(fraction - 1 / len(values)) < 4 * spread for fraction in fractions)


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
def test_an_unsuitable_space_is_an_error(space, search, path):
    assert path in error_paths(space, **search)


CONDITIONAL = {
    "model": {"choice": ["linear", "mlp"]},
    "width": {"grid": [8, 16, 32], "when": {"model": "mlp"}},
    "depth": {"range": [1, 2], "when": {"model": "mlp", "width": 16}},
    "rate": {"grid": [0.1, 0.2]},
}


def test_a_grid_leaves_out_fields_whose_condition_is_not_met():
    proposals = propose(CONDITIONAL)
    linear = [{"model": "linear", "rate": rate} for rate in (0.1, 0.2)]
    plain = [{"model": "mlp", "width": w, "rate": r} for w in (8, 32) for r in (0.1, 0.2)]
    deep = [
        {"model": "mlp", "width": 16, "depth": d, "rate": r} for d in (1, 2) for r in (0.1, 0.2)
    ]
    assert proposals == linear + plain[:2] + deep + plain[2:]
    assert len(propose(CONDITIONAL, num_points=7)) == 7
    space = {name: Axis.model_validate(axis) for name, axis in CONDITIONAL.items()}
    assert grid_size(space) == len(proposals) == 10


def test_an_example_meets_the_conditions_of_all_its_fields():
    space = {
        "model": {"choice": ["linear", "mlp", "cnn"]},
        "width": {"grid": [8, 16], "when": {"model": "cnn"}},
        "depth": {"range": [1, 2], "when": {"width": 16, "model": ["mlp", "cnn"]}},
    }
    axes = {name: Axis.model_validate(axis) for name, axis in space.items()}
    assert example_point(axes, {"depth": 2}) == {"model": "cnn", "width": 16, "depth": 2}
    assert example_point(axes, {"width": 8}) == {"model": "cnn", "width": 8}


def test_a_condition_may_list_several_values():
    deep = {"range": [1, 2], "when": {"model": "mlp", "width": [8, 32]}}
    proposals = propose({**CONDITIONAL, "depth": deep})
    widths = {proposal["width"] for proposal in proposals if "depth" in proposal}
    assert widths == {8, 32}
    axes = {**CONDITIONAL, "depth": deep}
    space = {name: Axis.model_validate(axis) for name, axis in axes.items()}
    assert grid_size(space) == len(proposals) == 2 + 2 + 2 * 2 * 2


@pytest.mark.parametrize("algorithm", SEARCHES.names())
def test_every_proposal_has_exactly_the_fields_whose_condition_it_meets(algorithm):
    space = dict(CONDITIONAL)
    if algorithm != "grid":
        space["width"] = {"uniform": [8, 32], "when": {"model": "mlp"}}
        del space["depth"]
    axes = {name: Axis.model_validate(axis) for name, axis in space.items()}
    search = start(space, algorithm=algorithm, num_points=32)
    search.objectives = {"privacy/leakage": "min", "utility/accuracy": "max"}
    models = set()
    for _ in range(4):
        pack = search.ask(8)
        assert all(is_in_space(axes, proposal) for proposal in pack)
        models |= {proposal["model"] for proposal in pack}
        search.tell([_result(proposal) for proposal in pack])
    assert models == {"linear", "mlp"}


def _result(proposal: Proposal) -> SearchResult:
    width = float(proposal.get("width", 0))  # type: ignore[arg-type]
    metrics = {"privacy/leakage": width / 32, "utility/accuracy": 0.5 + (width / 64) ** 2}
    replicate = Replicate(0, metrics)
    return SearchResult(proposal, TradeoffPoint("0" * 20, "membership", proposal, (replicate,)))


def test_the_size_of_a_grid_too_large_to_list_is_known():
    raw = {name: {"range": [1, 10**9]} for name in "abc"}
    study = Study.model_validate({"name": "s", "experiment": "membership", "space": raw})
    assert grid_size(study.space) == 10**27
