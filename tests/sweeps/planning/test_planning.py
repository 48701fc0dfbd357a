import os
from dataclasses import replace

import pytest

import privnets
from sweeps.errors import InputError, StudyError
from sweeps.planning.plan import confirmation_question, format_duration, make_plan
from sweeps.study.spec import Study

FIXED = {"dataset": "digits", "model": "logistic", "train_size": 50}


def study(**changes: object) -> Study:
    base = {"name": "s", "experiment": "membership", "fixed": FIXED, "replicates": 3}
    return Study.model_validate(base | changes)


def refused(**changes: object) -> list[str]:
    with pytest.raises(StudyError) as caught:
        make_plan(study(**changes))
    return [str(problem) for problem in caught.value.errors]


def test_points_are_the_search_s_in_its_order_with_the_experiment_s_identities():
    planned = make_plan(study(space={"weight_decay": {"grid": [0.1, 0, 1]}}))
    experiment = privnets.experiment("membership")
    assert [p.config.weight_decay for p in planned.points] == [0.1, 0, 1]
    assert [p.point_id for p in planned.points] == [
        experiment.point_id(experiment.Config(**FIXED, weight_decay=w)) for w in (0.1, 0, 1)
    ]


def test_replicates_are_every_point_with_every_seed_from_the_base_seed_on():
    planned = make_plan(study(fixed={**FIXED, "seed": 7}, space={"weight_decay": {"grid": [0, 1]}}))
    found = planned.replicates()
    assert planned.seeds == (7, 8, 9)
    assert [(r.point_id, r.seed, r.config.seed) for r in found] == [
        (point.point_id, seed, seed) for point in planned.points for seed in (7, 8, 9)
    ]
    assert all(privnets.experiment("membership").point_id(r.config) == r.point_id for r in found)


def test_points_that_are_the_same_are_one_and_that_is_noted():
    planned = make_plan(study(space={"weight_decay": {"grid": [1, 1.0, 2]}}))
    assert [p.config.weight_decay for p in planned.points] == [1, 2]
    assert planned.notes == ("1 of 3 points are the same as others: merged.",)


def test_num_points_takes_the_place_of_the_study_s_own():
    space = {"weight_decay": {"loguniform": [1e-6, 1]}}
    own = study(space=space, search={"algorithm": "sobol", "num_points": 4})
    assert len(make_plan(own).points) == 4
    assert len(make_plan(own, 6).points) == 6
    assert make_plan(own, 6).study.search.num_points == 6
    assert make_plan(own).points == make_plan(own, 6).points[:4]
    with pytest.raises(InputError, match="num_points must be from 1"):
        make_plan(own, 0)


def test_a_part_of_a_grid_is_noted():
    planned = make_plan(study(space={"weight_decay": {"grid": [0, 1, 2, 3]}}), 2)
    assert len(planned.points) == 2
    assert planned.notes == ("2 of the grid's 4 combinations, drawn by seed 0.",)


def test_objectives_are_the_study_s_or_else_the_experiment_s():
    default = {"privacy/membership_advantage": "min", "utility/test_accuracy": "max"}
    assert make_plan(study()).objectives == default
    assert make_plan(study()).study.objectives == default
    own = {"privacy/rho_mi": "min"}
    assert make_plan(study(objectives=own)).objectives == own


def test_an_unusual_direction_and_a_claim_about_what_is_not_swept_are_noted():
    claim = {"statement": "c", "metric": "privacy/rho_kl", "axis": "draws", "trend": "constant"}
    notes = make_plan(study(objectives={"privacy/rho_kl": "max"}, claims=[claim])).notes
    assert "privacy/rho_kl is to be max, though the experiment calls min better." in notes
    assert "A claim is not put to the test, as draws is not swept: c" in notes


def test_log_fields_are_the_swept_ones_on_a_logarithmic_scale():
    space = {"weight_decay": {"grid": [0, 1e-3, 1]}, "noise_std": {"grid": [0, 1, 2]}}
    assert make_plan(study(space=space)).log_fields == {"weight_decay"}


def test_the_cost_is_the_sum_over_trainings():
    experiment = privnets.experiment("membership")
    fixed = {"dataset": "digits", "model": "logistic"}
    planned = make_plan(study(fixed=fixed, space={"train_size": {"grid": [50, 100]}}))
    each = [experiment.cost(r.config).seconds for r in planned.replicates()]
    assert planned.cost_seconds() == pytest.approx(sum(each), rel=1e-12)


def test_only_a_large_plan_asks_for_confirmation_and_says_its_size_and_cost():
    small = make_plan(study())
    assert confirmation_question(replace(small, points=small.points * 10_000)) is None
    large = replace(small, points=small.points * 10_001)
    question = confirmation_question(large)
    assert question is not None
    assert "10,001 points of 3 replicates" in question
    assert format_duration(large.cost()) in question
    assert "--yes" in question


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"experiment": "membrship"}, 'study experiment: found "membrship"; allowed one of advers'),
        ({"fixed": {}}, "study fixed.dataset: found nothing; allowed a value here"),
        ({"fixed": {**FIXED, "dataset": "iris"}}, 'study fixed.dataset: found "iris"; allowed adu'),
        ({"fixed": {**FIXED, "train_size": "50"}}, 'study fixed.train_size: found "50"; allowed a'),
        ({"fixed": {**FIXED, "noise_std": True}}, "study fixed.noise_std: found true; allowed a n"),
        ({"space": {"train_size": {"grid": [50]}}}, "study space.train_size: found it in fixed as"),
        ({"space": {"depth": {"grid": [1]}}}, "study space.depth: found an unknown field; allowed"),
        ({"space": {"draws": {"uniform": [8, 10]}}}, "study space.draws: found 8.0, 10.0; allowed"),
        ({"space": {"features": {"range": [1, 100]}}}, "study space.features: found 65, 66, 67, 6"),
        ({"space": {"weight_decay": {"uniform": [-1, 1]}}}, "study space.weight_decay: found -1.0"),
        ({"search": {"algorithm": "sobol"}}, "study search.num_points: found nothing; allowed how"),
        ({"objectives": {"utility/test_mse": "min"}}, "study objectives.utility/test_mse: found u"),
        ({"fixed": {**FIXED, "seed": 2**31 - 2}}, "study replicates: found 3 of them from seed 21"),
    ],
)
def test_what_the_experiment_cannot_run_is_told(changes, line):
    found = refused(**changes)
    assert any(problem.startswith(line) for problem in found), found


def test_points_without_common_objectives_need_their_own():
    fixed = {"dataset": "adult", "train_size": 50, "features": 5}
    space = {"model": {"choice": ["linear", "logistic"]}}
    if privnets.data.status("adult") != "present":
        pytest.skip("data set 'adult' is not present (PRIVNETS_DATA)")
    (line,) = refused(fixed=fixed, space=space)
    assert line.startswith("study objectives: found nothing; allowed metrics that every point")
    (line,) = refused(fixed=fixed, space=space, objectives={"utility/test_mse": "min"})
    assert line.startswith("study objectives.utility/test_mse: found utility/test_mse, which not")
    assert make_plan(study(fixed=fixed, space=space, objectives={"privacy/rho_mi": "min"}))


def test_an_absent_data_set_is_told_beside_other_mistakes(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVNETS_DATA", str(tmp_path))
    fixed = {"dataset": "adult", "model": "linear", "train_size": 50, "draws": 3}
    found = refused(fixed=fixed, objectives={"privacy/nothing": "min"})
    assert len(found) == 3
    assert any("fixed.dataset: found data set 'adult' cannot be used" in line for line in found)
    assert any("fixed.draws: found 3; allowed at least 8" in line for line in found)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.1, "1 second"), (90, "90 seconds"), (600, "10 minutes"), (9000, "2.5 hours"),
     (864000, "10 days")],
)  # fmt: skip
def test_durations_read_at_a_glance(seconds, words):
    assert format_duration(seconds) == words
