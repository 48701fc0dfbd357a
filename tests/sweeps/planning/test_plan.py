import importlib.metadata
import importlib.util
import os
from dataclasses import replace

import pytest

import privnets
from sweeps.errors import InputError, StudyError
from sweeps.planning.costs import check_confirmed, format_duration
from sweeps.planning.plan import make_plan
from sweeps.study.spec import Study

FIXED = {"dataset": "digits", "model": "logistic", "train_size": 50}


def study(**changes: object) -> Study:
    base = {"name": "s", "experiment": "membership", "fixed": FIXED, "replicates": 3}
    return Study.model_validate(base | changes)


def plan_errors(**changes: object) -> list[str]:
    with pytest.raises(StudyError) as caught:
        make_plan(study(**changes))
    return [str(error) for error in caught.value.errors]


def test_points_follow_the_search_and_have_the_ids_of_the_experiment():
    planned = make_plan(study(space={"weight_decay": {"grid": [0.1, 0, 1]}}))
    experiment = privnets.experiment("membership")
    assert [p.config.weight_decay for p in planned.points] == [0.1, 0, 1]
    assert [p.point_id for p in planned.points] == [
        experiment.point_id(experiment.Config(**FIXED, weight_decay=w)) for w in (0.1, 0, 1)
    ]


def test_replicates_combine_every_point_with_every_seed():
    planned = make_plan(study(fixed={**FIXED, "seed": 7}, space={"weight_decay": {"grid": [0, 1]}}))
    replicates = planned.replicates()
    assert planned.seeds == (7, 8, 9)
    assert [(r.point_id, r.seed, r.config.seed) for r in replicates] == [
        (point.point_id, seed, seed) for point in planned.points for seed in (7, 8, 9)
    ]
    assert all(
        privnets.experiment("membership").point_id(r.config) == r.point_id for r in replicates
    )


def test_equal_points_are_merged_with_a_note():
    planned = make_plan(study(space={"weight_decay": {"grid": [1, 1.0, 2]}}))
    assert [p.config.weight_decay for p in planned.points] == [1, 2]
    assert planned.notes == ("1 of 3 points are the same as others: merged.",)


def test_num_points_replaces_that_of_the_study():
    space = {"weight_decay": {"loguniform": [1e-6, 1]}}
    own = study(space=space, search={"algorithm": "sobol", "num_points": 4})
    assert len(make_plan(own).points) == 4
    assert len(make_plan(own, 6).points) == 6
    assert make_plan(own, 6).study.search.num_points == 6
    assert make_plan(own).points == make_plan(own, 6).points[:4]
    with pytest.raises(InputError, match="num_points must be from 1"):
        make_plan(own, 0)


def test_a_subset_of_a_grid_has_a_note():
    planned = make_plan(study(space={"weight_decay": {"grid": [0, 1, 2, 3]}}), 2)
    assert len(planned.points) == 2
    assert planned.notes == ("2 of the grid's 4 combinations, drawn by seed 0.",)


@pytest.mark.parametrize("num_points", [5, 1000])
def test_num_points_beyond_a_grid_has_a_note(num_points):
    planned = make_plan(study(space={"weight_decay": {"grid": [0, 1, 2, 3]}}), num_points)
    assert len(planned.points) == 4
    assert planned.notes == (
        f"num_points is {num_points:,}, but the grid has only 4 combinations.",
    )


def test_num_points_without_a_space_has_a_note():
    assert make_plan(study(), 3).notes == ("num_points has no effect, because no field is swept.",)


def test_points_that_differ_in_an_unused_field_are_merged_with_a_note():
    space = {"model": {"choice": ["logistic", "mlp"]}, "hidden_units": {"grid": [10, 20]}}
    planned = make_plan(study(fixed={"dataset": "digits", "train_size": 50}, space=space))
    default = planned.points[0].config.hidden_units
    assert [(p.config.model, p.config.hidden_units) for p in planned.points] == [
        ("logistic", default),
        ("mlp", 10),
        ("mlp", 20),
    ]
    assert planned.notes == (
        "1 of 4 points are the same as others, as not every point uses hidden_units: merged.",
    )


def test_a_proposed_point_gets_the_first_seed_that_it_lacks():
    """The plan of an adaptive search grows ask by ask; a grid's serves, without its points."""
    whole = make_plan(study(fixed={**FIXED, "seed": 3}, space={"weight_decay": {"grid": [0, 1]}}))
    plan = replace(whole, points=(), seeds=(3,), confirming_seeds=(1003, 1004))
    asks = [[{"weight_decay": 1}, {"weight_decay": 1}], [{"weight_decay": 0}, {"weight_decay": 1}]]
    for proposals in asks:
        plan = plan.grow(plan.propose("search", proposals, told=0))
    assert [ask.seeds for ask in plan.asks] == [(3, 4), (3, 5)]
    assert [(p.config.weight_decay, p.seeds) for p in plan.points] == [(1, (3, 4, 5)), (0, (3,))]
    confirmed = plan.grow(plan.propose("confirm", [{"weight_decay": 0}], told=2))
    assert [p.seeds for p in confirmed.points] == [(3, 4, 5), (3, 1003, 1004)]
    again = confirmed.grow(confirmed.propose("search", [{"weight_decay": 0}], told=2))
    assert again.asks[-1].seeds == (4,)
    assert len(again.replicates()) == 7


def test_planning_does_not_look_packages_up_for_every_point(monkeypatch):
    lookups = []

    def count(owner: object, name: str) -> None:
        function = getattr(owner, name)

        def record_lookup(*args: object, **options: object) -> object:
            lookups.append(name)
            return function(*args, **options)

        monkeypatch.setattr(owner, name, record_lookup)

    count(importlib.metadata.Distribution, "discover")
    count(importlib.util, "find_spec")
    monkeypatch.syspath_prepend("nowhere")  # forgets earlier look-ups
    space = {"weight_decay": {"range": [0, 9]}, "train_size": {"range": [10, 39]}}
    planned = make_plan(study(fixed={"dataset": "digits", "model": "logistic"}, space=space))
    assert len(planned.points) == 300
    assert len(lookups) < 10


def test_objectives_default_to_those_of_the_experiment():
    default = {"privacy/membership_advantage": "min", "utility/test_accuracy": "max"}
    assert make_plan(study()).objectives == default
    assert make_plan(study()).study.objectives == default
    own = {"privacy/rho_mi": "min"}
    assert make_plan(study(objectives=own)).objectives == own


def test_unusual_directions_and_untestable_claims_have_notes():
    claim = {"statement": "c", "metric": "privacy/rho_kl", "axis": "draws", "trend": "constant"}
    notes = make_plan(study(objectives={"privacy/rho_kl": "max"}, claims=[claim])).notes
    assert "privacy/rho_kl has the direction max here, but smaller is better for it." in notes
    assert "A claim is not tested, because draws is not swept: c" in notes


def test_log_fields_are_the_log_scaled_axes():
    space = {"weight_decay": {"grid": [0, 1e-3, 1]}, "noise_std": {"grid": [0, 1, 2]}}
    assert make_plan(study(space=space)).log_fields == {"weight_decay"}


def test_the_cost_is_the_sum_over_replicates():
    experiment = privnets.experiment("membership")
    fixed = {"dataset": "digits", "model": "logistic"}
    planned = make_plan(study(fixed=fixed, space={"train_size": {"grid": [50, 100]}}))
    each = [experiment.cost(r.config).seconds for r in planned.replicates()]
    assert planned.cost_seconds() == pytest.approx(sum(each), rel=1e-12)


def test_only_a_large_plan_needs_confirmation():
    planned = make_plan(study())
    configs = [point.config for point in planned.points]
    check_confirmed(planned.study, configs * 10_000, False)
    large = configs * 10_001
    check_confirmed(planned.study, large, True)
    with pytest.raises(InputError, match=r"10,001 points, 30,003 trainings.*--yes") as caught:
        check_confirmed(planned.study, large, False)
    assert format_duration(10_001 * planned.cost_seconds()) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"experiment": "membrship"}, 'study experiment: got "membrship"; expected one of members'),
        ({"fixed": {}}, "study fixed.dataset: got nothing; expected a value here"),
        ({"fixed": {**FIXED, "dataset": "iris"}}, 'study fixed.dataset: got "iris"; expected adu'),
        ({"fixed": {**FIXED, "train_size": "50"}}, 'study fixed.train_size: got "50"; expected a'),
        ({"fixed": {**FIXED, "noise_std": True}}, "study fixed.noise_std: got true; expected a n"),
        (
            {"space": {"train_size": {"grid": [50]}}},
            "study space.train_size: got a field that is also in fixed",
        ),
        ({"space": {"depth": {"grid": [1]}}}, "study space.depth: got an unknown field; expected"),
        (
            {"space": {"draws": {"uniform": [8, 10]}}},
            "study space.draws: got 8.0, 10.0; expected a whole number, by range",
        ),
        (
            {"space": {"features": {"range": [1, 100]}}},
            "study space.features: got 65, 66, 67, 68, 69 and 31 more; expected",
        ),
        ({"space": {"weight_decay": {"uniform": [-1, 1]}}}, "study space.weight_decay: got -1.0"),
        (
            {"search": {"algorithm": "sobol"}},
            "study search.num_points: got nothing; expected the number",
        ),
        ({"objectives": {"utility/test_mse": "min"}}, "study objectives.utility/test_mse: got u"),
        ({"fixed": {**FIXED, "seed": 2**31 - 2}}, "study replicates: got 3 seeds from 21"),
    ],
)
def test_studies_that_the_experiment_cannot_run_are_refused(changes, line):
    errors = plan_errors(**changes)
    assert any(error.startswith(line) for error in errors), errors


def test_points_without_common_objectives_need_their_own():
    fixed = {"dataset": "adult", "train_size": 50, "features": 5}
    space = {"model": {"choice": ["linear", "logistic"]}}
    if privnets.data.status("adult") != "present":
        pytest.skip("data set 'adult' is not present (PRIVNETS_DATA)")
    (line,) = plan_errors(fixed=fixed, space=space)
    assert line.startswith("study objectives: got nothing; expected metrics that every point")
    (line,) = plan_errors(fixed=fixed, space=space, objectives={"utility/test_mse": "min"})
    assert line.startswith("study objectives.utility/test_mse: got utility/test_mse, which not")
    assert make_plan(study(fixed=fixed, space=space, objectives={"privacy/rho_mi": "min"}))


def test_an_absent_data_set_is_reported_with_other_mistakes(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVNETS_DATA", str(tmp_path))
    fixed = {"dataset": "adult", "model": "linear", "train_size": 50, "draws": 3}
    errors = plan_errors(fixed=fixed, objectives={"privacy/nothing": "min"})
    assert len(errors) == 3
    assert any("fixed.dataset: got data set 'adult' cannot be used" in line for line in errors)
    assert any("fixed.draws: got 3; expected at least 8" in line for line in errors)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.1, "1 second"), (90, "90 seconds"), (600, "10 minutes"), (9000, "2.5 hours"),
     (864000, "10 days")],
)  # fmt: skip
def test_durations_have_one_unit(seconds, words):
    assert format_duration(seconds) == words


def test_an_objective_that_too_few_trials_support_is_a_mistake():
    rate = "privacy/attack/white_box/tpr_at_fpr_0.001"
    (error,) = plan_errors(fixed={**FIXED, "records": 20}, objectives={rate: "min"})
    assert f"{rate}, which is undefined (too few non-members: 6.0 expected" in error
    assert make_plan(study(fixed={**FIXED, "records": 40}, objectives={rate: "min"})).points


def conditional_study(**axes: object) -> Study:
    fixed = {"dataset": "digits", "train_size": 50, "weight_decay": 0.01}
    space = {"model": {"choice": ["logistic", "mlp"]}, **axes}
    raw = {"name": "s", "experiment": "membership", "fixed": fixed, "space": space}
    return Study.model_validate(raw)


def test_points_leave_a_field_at_its_default_where_its_condition_is_not_met():
    units = {"grid": [16, 64], "when": {"model": "mlp"}}
    plan = make_plan(conditional_study(hidden_units=units))
    values = [(point.config.model, point.config.hidden_units) for point in plan.points]
    assert values == [("logistic", 50), ("mlp", 16), ("mlp", 64)]
    assert not plan.notes


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ({"draws": 400}, "a field above it in space: model, noise_std"),
        ({"model": "tree"}, 'a listed value of model: "logistic", "mlp"'),
        ({"noise_std": 0.5}, "got noise_std, which is uniform; expected a field with listed"),
    ],
)
def test_a_condition_names_a_field_above_it_and_one_of_its_values(when, expected):
    noise = {"uniform": [0, 1]}
    units = {"grid": [16], "when": when}
    study = conditional_study(noise_std=noise, hidden_units=units, draws={"grid": [400]})
    with pytest.raises(StudyError, match=expected):
        make_plan(study)


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        (
            {"weight_decay": 0.5},
            "search.enqueue.0: .*a value for each of weight_decay, noise_std",
        ),
        ({"weight_decay": 0.5, "noise": 1}, "search.enqueue.0: .* keys weight_decay, noise;"),
        ({"weight_decay": 0.5, "noise_std": 50}, "search.enqueue.0.noise_std: got 50; expected a"),
    ],
)
@pytest.mark.parametrize("algorithm", ["sobol", "frontier"])
def test_a_point_to_try_first_lies_in_the_space(point, expected, algorithm):
    search = {"algorithm": algorithm, "num_points": 8, "enqueue": [point]}
    space = {"weight_decay": {"loguniform": [0.1, 1]}, "noise_std": {"uniform": [0, 1]}}
    with pytest.raises(StudyError, match=expected) as raised:
        make_plan(study(space=space, search=search))
    assert len(raised.value.errors) == 1
