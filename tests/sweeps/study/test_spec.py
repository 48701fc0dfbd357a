import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sweeps.study.search_space import Axis, find_condition_errors, grid_points, grid_size
from sweeps.study.spec import Claim, SearchSpec, Study, StudySource, budget_seconds
from sweeps.study.validation import validate_study

COMPLETE = {
    "name": "s",
    "experiment": "membership",
    "description": "d",
    "reproduces": {"paper": "arXiv:1", "figure": 3},
    "claims": [
        {"statement": "c", "metric": "m", "axis": "a", "trend": "constant", "where": {"b": None}},
        {"statement": "c", "metric": "m", "at_most": 1, "given": {"n": {"at_least": 0.5}}},
        {
            **{"statement": "c", "metric": "m", "above": "n", "by": 0.1, "source": "figure 1"},
            **{"where": {"a": 1}, "elsewhere": {"a": 2}},
        },
    ],
    "fixed": {"dataset": "adult", "features": None, "train_size": 10, "weight_decay": 1.0},
    "space": {
        "a": {"grid": [0, 1.0, "x", True, None]},
        "b": {"choice": ["u", "v"]},
        "c": {"uniform": [-1, 1]},
        "d": {"loguniform": [1e-6, 1]},
        "e": {"range": [1, 10, 3]},
    },
    "replicates": 3,
    "search": {"algorithm": "random", "num_points": 5, "seed": 7},
    "objectives": {"m": "min", "n": "max"},
    "resources": {"cpus": 2, "gpus": 0.5, "pack": 4, "concurrency": "auto"},
}


def study(**changes: object) -> Study:
    return Study.model_validate({"name": "s", "experiment": "membership"} | changes)


def axis(kind: str, value: object):
    return study(space={"f": {kind: value}}).space["f"]


def test_to_dict_gives_plain_values_that_make_an_equal_study():
    first = Study.model_validate(COMPLETE)
    assert Study.model_validate(first.to_dict()) == first
    assert first.to_dict()["space"] == {
        **COMPLETE["space"], "c": {"uniform": [-1.0, 1.0]}, "d": {"loguniform": [1e-6, 1.0]},
    }  # fmt: skip


def test_values_keep_their_types():
    grid = Study.model_validate(COMPLETE).space["a"].values()
    assert [type(value) for value in grid] == [int, float, str, bool, type(None)]


def test_the_source_does_not_affect_equality():
    first = study()
    assert first.with_source(StudySource("elsewhere", {("name",): ("elsewhere", 3)})) == first


@given(st.floats(0, 1), st.floats(-1e300, 1e300), st.floats(1e-6, 1e300))
def test_a_uniform_axis_stays_between_its_ends(fraction, low, span):
    if low + span > low:
        assert low <= axis("uniform", [low, low + span]).at(fraction) <= low + span


@given(st.floats(0, 1), st.floats(1e-300, 1e300), st.floats(1.001, 1e6))
def test_a_loguniform_axis_stays_between_its_ends(fraction, low, ratio):
    assert low <= axis("loguniform", [low, low * ratio]).at(fraction) <= low * ratio


def test_a_loguniform_axis_is_geometric():
    found = axis("loguniform", [1e-4, 1e4])
    points = [found.at(fraction) for fraction in (0, 0.25, 0.5, 0.75, 1)]
    assert points == pytest.approx([1e-4, 1e-2, 1, 1e2, 1e4], rel=1e-12)


@pytest.mark.parametrize(
    ("limits", "members"),
    [([1, 3], [1, 2, 3]), ([1, 10, 3], [1, 4, 7, 10]), ([1, 9, 3], [1, 4, 7]), ([5, 5], [5])],
)
def test_a_range_includes_its_ends_and_every_member_is_equally_wide(limits, members):
    numbers = axis("range", limits)
    assert list(numbers.values()) == members
    fractions = [(i + 0.5) / len(members) for i in range(len(members))]
    assert [numbers.at(fraction) for fraction in fractions] == members


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("loguniform", [1, 2], True),
        ("uniform", [1e-9, 1], False),
        ("grid", [0, 1e-6, 1], True),
        ("grid", [1, 10, 100], True),
        ("grid", [1, 10, 99], False),
        ("grid", [-1, 1, 1000], False),
        ("grid", [0], False),
        ("grid", [0.5, 1, math.inf], False),
        ("grid", [0.5, 100, math.inf], True),
        ("grid", [1, 1000, math.nan], False),
        ("grid", [0, math.inf], False),
        ("grid", [True, 1000], False),
        ("grid", ["a", 1, 1000], False),
        ("choice", [1, 1000], False),
        ("range", [1, 1000], False),
    ],
)
def test_numbers_over_two_decades_are_log_scaled(kind, value, expected):
    assert axis(kind, value).is_log_scaled is expected


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../elsewhere"},
        {"name": ""},
        {"experiment": 3},
        {"unknown": 1},
        {"replicates": 0},
        {"replicates": True},
        {"replicates": 2.0},
        {"fixed": {"a": {1: 2}}},
        {"space": {"a": {}}},
        {"space": {"a": {"grid": None}}},
        {"space": {"a": 1}},
        {"space": {"a": {"grid": [1], "choice": [1]}}},
        {"space": {"a": {"grid": []}}},
        {"space": {"a": {"uniform": [1, 1]}}},
        {"space": {"a": {"uniform": [0, math.inf]}}},
        {"space": {"a": {"uniform": ["0", 1]}}},
        {"space": {"a": {"loguniform": [0, 1]}}},
        {"space": {"a": {"range": [1.0, 2.0]}}},
        {"space": {"a": {"range": [1, 5, 0]}}},
        {"space": {"a": {"range": [2, 1]}}},
        {"search": {"num_points": 0}},
        {"objectives": {}},
        {"objectives": {"m": "minimise"}},
        {"resources": {"cpus": 1.5}},
        {"resources": {"gpus": -1}},
        {"resources": {"gpus": math.nan}},
        {"resources": {"gpus": True}},
        {"resources": {"cpus": 4097}},
        {"resources": {"cpus": "all"}},
        {"resources": {"pack": 0}},
        {"resources": {"concurrency": "all"}},
        {"claims": [{"statement": "s", "metric": "m", "axis": "a", "trend": "up"}]},
        {"claims": [{"statement": "s", "metric": "m", "at_least": math.inf}]},
    ],
)
def test_invalid_values_are_refused(changes):
    with pytest.raises(ValidationError):
        study(**changes)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({}, "one of three"),
        ({"axis": "a"}, "one of three"),
        ({"axis": "a", "trend": "constant", "at_least": 0}, "one of three"),
        ({"at_least": 0, "above": "n"}, "one of three"),
        ({"at_least": 0, "trend": "constant"}, "one of three"),
        ({"axis": "a", "trend": "constant", "given": {"n": {"at_least": 0}}}, "given without"),
        ({"at_least": 0, "given": {"m": {"at_least": 0}}}, "with other metrics"),
        ({"at_least": 0, "where": {"a": 1}, "elsewhere": {"a": 2}}, "elsewhere with above"),
        ({"above": "n", "elsewhere": {"a": 2}}, "that where has too"),
    ],
)
def test_a_claim_has_exactly_one_form(form, expected):
    with pytest.raises(ValidationError, match=expected):
        Claim(statement="s", metric="m", **form)


@pytest.mark.parametrize(
    ("budget", "seconds"), [(500, None), ("90s", 90), ("30m", 1800), ("1.5h", 5400), ("1d", 86400)]
)
def test_a_budget_is_a_number_of_trainings_or_a_time(budget, seconds):
    assert SearchSpec(budget=budget).budget == budget
    assert budget_seconds(budget) == seconds


@pytest.mark.parametrize("budget", [0, -1, True, 2.5, "2", "0h", "2 hours", "h"])
def test_other_budgets_are_refused(budget):
    with pytest.raises(ValidationError, match="a number of trainings, or a time"):
        SearchSpec(budget=budget)


def test_obfuscation_adds_points_to_those_of_the_space():
    study = Study.model_validate(
        {
            "name": "own",
            "experiment": "adversarial",
            "fixed": {"problem": "digits"},
            "space": {"privacy_weight": {"grid": [0.3, 3.0]}},
            "obfuscation": ["noise", "blur"],
        }
    )
    again = Study.model_validate(study.to_dict())
    assert again == study
    points = list(grid_points(study.space))
    assert points[:2] == [{"obfuscation": "none", "privacy_weight": w} for w in (0.3, 3.0)]
    assert {p["obfuscation"] for p in points[2:]} == {"noise", "blur"}
    assert all(p.keys() == {"obfuscation", "strength"} for p in points[2:])


def test_obfuscation_shares_records_and_yardstick_with_learned_releases():
    space = {
        "problem": {"choice": ["digits", "amnist"]},
        "panel": {"choice": ["quick", "full"]},
        "privacy_weight": {"grid": [0.3, 3.0]},
    }
    raw = {"name": "own", "experiment": "adversarial", "space": space, "obfuscation": ["noise"]}
    points = list(grid_points(Study.model_validate(raw).space))
    for kind in ("none", "noise"):
        shared = {(p["problem"], p["panel"]) for p in points if p["obfuscation"] == kind}
        assert len(shared) == 4


def test_an_axis_obfuscation_beside_the_section_is_refused():
    space = {"obfuscation": {"choice": ["none", "box"]}}
    raw = {"name": "own", "experiment": "adversarial", "space": space, "obfuscation": ["noise"]}
    raw["fixed"] = {"problem": "digits"}
    (error,) = validate_study(Study.model_validate(raw), data=False).errors
    assert error.path == ("space", "obfuscation")
    assert error.expected == "it in one of the two"


LEARNED = {"noise_std": 0.5, "releaser_width": 8, "learning_rate": 0.1, "privacy_weight": 3.0}


@pytest.mark.parametrize("name", LEARNED)
def test_an_axis_of_learned_releases_alone_is_refused_beside_a_fixed_obfuscation(name):
    raw = {"name": "own", "experiment": "adversarial"}
    raw["fixed"] = {"problem": "digits", "obfuscation": "noise"}
    raw["space"] = {name: {"grid": [LEARNED[name], 2 * LEARNED[name]]}}
    (error,) = validate_study(Study.model_validate(raw), data=False).errors
    assert error.path == ("space", name)
    assert error.given == "an axis without effect"


def test_settings_of_learned_releases_may_be_fixed_beside_obfuscation():
    raw = {"name": "own", "experiment": "adversarial", "fixed": {"problem": "digits", **LEARNED}}
    raw |= {"space": {"alpha": {"grid": [0.5, 1.0]}}, "obfuscation": ["noise"]}
    assert not validate_study(Study.model_validate(raw), data=False).errors


def test_a_field_along_another_takes_its_values_in_step():
    space = {
        "privacy_weight": {"grid": [0.1, 1.0, 10.0]},
        "noise_std": {"grid": [0.05, 0.1, 0.4], "along": "privacy_weight"},
        "alpha": {"grid": [0.5, 1.0]},
    }
    study = Study.model_validate({"name": "own", "experiment": "adversarial", "space": space})
    points = list(grid_points(study.space))
    assert len(points) == grid_size(study.space) == 6
    pairs = {(p["privacy_weight"], p["noise_std"]) for p in points}
    assert pairs == {(0.1, 0.05), (1.0, 0.1), (10.0, 0.4)}


def _axes(space):
    return {name: Axis.model_validate(axis) for name, axis in space.items()}


def test_a_chain_of_fields_in_step_follows_its_first_one():
    space = _axes(
        {
            "alpha": {"grid": [0.5, 1.0, 2.0]},
            "noise_std": {"grid": [0.1, 0.3, 0.3], "along": "alpha"},
            "strength": {"grid": [5.0, 6.0, 7.0], "along": "noise_std"},
        }
    )
    assert not find_condition_errors(space)
    found = [tuple(point.values()) for point in grid_points(space)]
    assert found == [(0.5, 0.1, 5.0), (1.0, 0.3, 6.0), (2.0, 0.3, 7.0)]


def test_a_field_that_others_go_along_must_not_repeat_a_value():
    followers = {
        "noise_std": {"grid": [0.1, 0.2, 0.3], "along": "alpha"},
        "strength": {"grid": [5.0, 6.0, 7.0], "along": "noise_std"},
    }
    (error,) = find_condition_errors(_axes({"alpha": {"grid": [0.5, 1.0, 1.0]}, **followers}))
    assert error.path == ("space", "alpha", "grid")
    assert "noise_std and strength" in error.expected


@pytest.mark.parametrize(
    "others",
    [
        {"c": {"grid": [1, 2, 3], "when": {"b": 10}}},
        {"c": {"grid": [1, 2, 3], "when": {"b": [10, 20]}}},
        {"c": {"grid": [5, 5], "along": "b"}, "d": {"grid": [1, 2, 3], "when": {"c": 5}}},
        {"c": {"grid": [5, 6], "along": "b", "when": {"e": 1}}, "d": {"grid": [1, 2, 3, 4]}},
        {
            "c": {"grid": [5, 6], "along": "b", "when": {"e": 1}},
            "d": {"grid": [1, 2, 3], "when": {"c": 6}},
            "f": {"grid": [1, 2], "when": {"d": [1, 3], "a": 2}},
        },
    ],
)
@pytest.mark.parametrize("pair", [[10, 20], [10, 10]])
def test_conditions_on_fields_in_step_are_counted_exactly(others, pair):
    before = {"e": {"grid": [0, 1]}, "a": {"grid": [1, 2]}, "b": {"grid": pair, "along": "a"}}
    space = _axes({**before, **others})
    assert grid_size(space) == len(list(grid_points(space)))


def test_a_condition_on_a_field_in_step_adds_points_at_its_place_alone():
    space = {"a": {"grid": [1, 2]}, "b": {"grid": [10, 20], "along": "a"}}
    assert grid_size(_axes({**space, "c": {"grid": [1, 2, 3], "when": {"b": 10}}})) == 4


@pytest.mark.parametrize(
    "axis", [{"grid": [1.0], "along": "alpha"}, {"grid": [1.0, 2.0], "along": "steps"}]
)
def test_a_field_along_another_needs_as_many_values_of_a_field_above(axis):
    space = {"alpha": {"grid": [0.5, 1.0]}, "noise_std": axis}
    study = Study.model_validate({"name": "own", "experiment": "adversarial", "space": space})
    (error,) = find_condition_errors(study.space)
    assert error.path == ("space", "noise_std", "along")
    conditions = {"alpha": 1.0, "noise_std": 1.0}
    assert grid_size(study.space | {"steps": Axis(grid=(1, 2), when=conditions)}) > 0
