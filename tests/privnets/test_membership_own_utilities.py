"""Utilities of the user's own: scorers by name, functions, floors, errors and mistakes."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import metrics as oracle

import privnets
from privnets.data import UserFormError
from privnets.membership.own_utilities import own_utilities
from privnets.membership.utilities import TestOutputs, means
from privnets.references.scorers import Answers, score_models
from privnets.references.user_files import absolute_path, set_folder

CODE = """
import numpy as np
from sklearn.metrics import fbeta_score, make_scorer

def cost(y_true, y_prob):
    refused = y_prob[:, 1] > 1 / 11
    return np.where(y_true == "yes", 10 * ~refused, refused).mean()

def hits(y_true, y_pred):
    assert set(y_pred) <= {"no", "yes"}
    return (y_true == y_pred).mean()

def euros(y_true, y_pred):
    return np.abs(y_true - y_pred).mean()

f2 = make_scorer(fbeta_score, beta=2, pos_label="yes")

def same(y_true, y_pred):
    return float((y_true == y_pred).mean())

def nan(y_true, y_pred):
    return float("nan")

def broken(y_true, y_pred):
    raise RuntimeError("no such luck")

def other(truth, guess):
    return 0
"""
EXPERIMENT = privnets.experiment("membership")


@pytest.fixture(autouse=True)
def folder(tmp_path):
    random = np.random.default_rng(0)
    y = np.where(random.random(400) < 0.08, "yes", "no")
    frame = pd.DataFrame({"a": random.normal(size=400) + (y == "yes"), "y": y})
    frame["price"] = 1000 + 50 * frame["a"]
    frame.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "mycosts.py").write_text(CODE)
    set_folder(tmp_path)


def config(metrics, target="y", **fields):
    model = "sklearn.tree:DecisionTreeClassifier"
    model = model if target == "y" else "sklearn.tree:DecisionTreeRegressor"
    ignore = ["price"] if target == "y" else ["y"]
    values = {
        "dataset": {"table": "t.csv", "target": target, "ignore": ignore},
        "model": {"sklearn": model, "params": {"max_depth": 2}},
        "train_size": 100, "draws": 32, "records": 20, "metrics": metrics, **fields,
    }  # fmt: skip
    return EXPERIMENT.Config.model_validate(values, strict=True)


def outputs(models=40, records=300):
    """Probabilities of models that agree in part."""
    random = np.random.default_rng(1)
    y = (random.random(records) < 0.3).astype(float)
    raw = random.normal(size=(models, records)) + random.normal(size=records) + 2 * y
    p = 1 / (1 + np.exp(-raw))
    counted = random.random((models, records)) < 0.7
    log_p = np.log(np.stack([1 - p, p], axis=-1))
    return TestOutputs(*map(torch.from_numpy, (y, counted, (p > 0.5).astype(float), log_p)))


SCORERS = {
    "roc_auc": lambda y, predicted, p: oracle.roc_auc_score(y, p),
    "neg_log_loss": lambda y, predicted, p: -oracle.log_loss(y, p),
    "matthews_corrcoef": lambda y, predicted, p: oracle.matthews_corrcoef(y, predicted),
    "mycosts:hits": lambda y, predicted, p: oracle.accuracy_score(y, predicted),
    "mycosts:f2": lambda y, predicted, p: oracle.fbeta_score(y, predicted, beta=2),
    "mycosts:cost": lambda y, predicted, p: np.where(y, 10 * (p <= 1 / 11), p > 1 / 11).mean(),
}


@pytest.mark.parametrize("location", SCORERS)
def test_a_scorer_gets_the_outputs_of_each_model_at_its_test_records(location):
    test = outputs()
    found = own_utilities(config({"utility/own": location}), test, 1.0).values["utility/own"]
    expected = [
        SCORERS[location](test.y.numpy()[own], predicted.numpy()[own], p.numpy()[own])
        for own, predicted, p in zip(
            test.counted.numpy(), test.predicted, test.log_p[..., 1].exp(), strict=True
        )
    ]
    assert found.value == pytest.approx(np.mean(expected))


def test_the_jackknife_has_about_the_error_of_the_influence_function():
    test = outputs()
    own = own_utilities(config({"utility/own": "roc_auc"}), test, 1.0).values["utility/own"]
    influence = means(test, 1.0)[0]["utility/test_auc"]
    assert own.value == pytest.approx(influence.value)
    assert own.error == pytest.approx(influence.error, rel=0.3)
    none = own_utilities(config({"utility/own": "roc_auc"}), test, 0.0).values["utility/own"]
    assert none.error < own.error / 3


def test_intervals_of_scores_have_their_coverage():
    random, repeats, origins = np.random.default_rng(0), 1000, np.arange(400)
    covered = 0
    for _ in range(repeats):
        right = random.random(len(origins)) < 0.8
        answers = Answers(np.ones(len(origins)), right.astype(float))
        values, _ = score_models({"own": "mycosts:same"}, [(answers, origins)], answers.y)
        value, error = values["own"]
        covered += abs(value - 0.8) < 1.96 * error
    assert 0.93 < covered / repeats < 0.97


def test_few_records_and_absent_classes_leave_a_score_without_breaking_it():
    y = np.array(["no"] * 11 + ["yes"])
    p = np.linspace(0, 1, 12)
    answers = Answers(y, y, np.array(["no", "yes"]), np.stack([1 - p, p], axis=1))
    for scorer, value, is_known in (("roc_auc", 1.0, False), ("accuracy", 1.0, True)):
        values, _ = score_models({"own": scorer}, [(answers, np.arange(12))], y)
        assert values["own"][0] == value
        assert math.isfinite(values["own"][1]) == is_known


def test_numbers_of_a_regressor_for_two_classes_are_not_rounded():
    own = config({"utility/own": "neg_mean_squared_error"}).model_dump()
    own["model"] = {"sklearn": "sklearn.tree:DecisionTreeRegressor", "params": {"max_depth": 2}}
    point = EXPERIMENT.run([EXPERIMENT.Config.model_validate(own)])[0].replicates[0]
    assert point.metrics["utility/own"] == pytest.approx(-point.metrics["utility/test_mse"])
    # The latter is measured on the test records of a few models.
    floor = -point.metrics["floor/utility_test_mse"]
    assert point.metrics["floor/utility_own"] == pytest.approx(floor, rel=0.02)


def test_points_report_own_utilities_with_their_floors():
    own = config({"utility/cost": "mycosts:cost", "utility/hits": "mycosts:hits"})
    metrics = EXPERIMENT.run([own])[0].replicates[0].metrics
    assert metrics["utility/hits"] == pytest.approx(metrics["utility/test_accuracy"])
    # The latter is measured on the test records of a few models.
    floor = metrics["floor/utility_test_accuracy"]
    assert metrics["floor/utility_hits"] == pytest.approx(floor, abs=0.005)
    assert metrics["utility/cost"] < metrics["floor/utility_cost"] < 1
    assert set(metrics) == set(EXPERIMENT.metric_keys(own))


def test_numbers_are_in_their_own_units():
    own = config({"utility/euros": "mycosts:euros"}, target="price")
    metrics = EXPERIMENT.run([own])[0].replicates[0].metrics
    deviation = pd.read_csv(absolute_path("t.csv"))["price"].std(ddof=0)
    assert metrics["utility/euros"] == pytest.approx(deviation * metrics["utility/test_mae"])
    assert metrics["floor/utility_test_r2"] == pytest.approx(0, abs=0.01)


def test_a_nan_fails_the_point_and_names_the_scorer():
    replicate = EXPERIMENT.run([config({"utility/own": "mycosts:nan"})])[0].replicates[0]
    assert replicate.failure == "utility/own: mycosts:nan returned nan for a model"
    assert all(map(math.isnan, replicate.metrics.values()))


@pytest.mark.parametrize(
    ("location", "given", "expected"),
    [
        ("mycosts:broken", "no such luck (", "returns a number"),
        ("mycosts:other", "takes other arguments", "(y_true, y_pred)"),
        ("mycosts:absent", "cannot be imported", "a name in it"),
        ("rocauc", "'rocauc'", "did you mean roc_auc?"),
        ("f1", "pos_label=1 is not a valid label", "for these targets"),
    ],
)
def test_mistakes_show_before_training(location, given, expected):
    with pytest.raises(UserFormError) as error:
        EXPERIMENT.fingerprint(config({"utility/own": location}))
    assert error.value.field == "metrics.utility/own"
    assert given in error.value.given
    assert expected in error.value.expected


def test_an_error_of_the_users_code_names_its_line():
    with pytest.raises(UserFormError, match=r"mycosts\.py, line 25"):
        EXPERIMENT.fingerprint(config({"utility/own": "mycosts:broken"}))


def test_changed_code_is_another_point_and_metrics_do_not_change_training(tmp_path):
    own, plain = config({"utility/own": "mycosts:hits"}), config(None)
    before = EXPERIMENT.point_id(own)
    assert before != EXPERIMENT.point_id(plain)
    advantages = [
        EXPERIMENT.run([each])[0].replicates[0].metrics["privacy/membership_advantage"]
        for each in (own, plain)
    ]
    assert advantages[0] == advantages[1]
    (tmp_path / "mycosts.py").write_text(CODE.replace("y_true == y_pred", "y_true != y_pred"))
    assert EXPERIMENT.point_id(own) != before


@pytest.mark.parametrize("key", ["utility/test_auc", "utility/generalization_gap"])
def test_names_of_other_metrics_are_refused(key):
    fields = [each.field for each in EXPERIMENT.invalid_fields(config({key: "roc_auc"}))]
    assert fields == [f"metrics.{key}"]


def test_linear_models_have_no_own_utilities():
    own = config({"utility/own": "r2"}).model_copy(update={"model": "linear"})
    assert "metrics" in [each.field for each in EXPERIMENT.invalid_fields(own)]
