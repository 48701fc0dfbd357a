"""Utilities of models, against scikit-learn, and their errors, against simulations."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from sklearn import metrics as oracle
from sklearn.preprocessing import label_binarize

from privnets.membership.estimates import two_way_mean
from privnets.membership.utilities import TestOutputs, means


def _classes(classes, models=3, records=60, seed=0, ties=True):
    """Random predictions, which partly agree, with equal scores among them if `ties`."""
    random = np.random.default_rng(seed)
    y = random.integers(0, classes, records)
    raw = random.normal(size=(models, records, classes)) + 1.5 * np.eye(classes)[y]
    raw += random.normal(size=(records, classes))
    p = np.exp(raw) / np.exp(raw).sum(-1, keepdims=True)
    if ties:  # as the votes of a small forest
        p = (random.multinomial(8, p) + 1) / (8 + classes)
    log_p = np.log(p)
    counted = random.random((models, records)) < 0.7
    return TestOutputs(*map(torch.from_numpy, (y.astype(float), counted, p.argmax(-1), log_p)))


def _numbers(models=3, records=60, seed=0):
    random = np.random.default_rng(seed)
    y = random.normal(1, 2, records)
    predicted = y + random.normal(0, 1, records) + random.normal(0, 1, (models, records))
    counted = random.random((models, records)) < 0.7
    return TestOutputs(*map(torch.from_numpy, (y, counted, predicted)))


def _statistics(test):
    return {name: test.statistic(name) for name in test.utilities}


def _expected(test, j, weight):
    """Utilities of model j by scikit-learn, with weights of all records."""
    y, predicted = test.y.numpy(), test.predicted[j].numpy()
    if test.log_p is None:
        return {
            "mse": oracle.mean_squared_error(y, predicted, sample_weight=weight),
            "mae": oracle.mean_absolute_error(y, predicted, sample_weight=weight),
            "r2": oracle.r2_score(y, predicted, sample_weight=weight),
        }
    p = test.log_p[j].exp().numpy()
    classes = p.shape[1]
    is_binary = classes == 2
    score = p[:, 1] if is_binary else p
    binary = y if is_binary else label_binarize(y, classes=range(classes))
    average = "binary" if is_binary else "macro"
    given = {"sample_weight": weight}
    return {
        "accuracy": oracle.accuracy_score(y, predicted, **given),
        "balanced_accuracy": oracle.balanced_accuracy_score(y, predicted, **given),
        "auc": oracle.roc_auc_score(y, score, multi_class="ovr", **given),
        "average_precision": oracle.average_precision_score(binary, score, **given),
        "log_loss": oracle.log_loss(y, p, labels=range(classes), **given),
        "f1": oracle.f1_score(y, predicted, average=average, **given),
    }


CASES = {
    "two classes": _classes(2),
    "two classes without ties": _classes(2, ties=False),
    "four classes": _classes(4),
    "numbers": _numbers(),
}


@pytest.mark.parametrize("test", CASES.values(), ids=CASES)
def test_each_value_is_that_of_scikit_learn(test):
    for name, (value, _) in _statistics(test).items():
        for j in range(len(value)):
            weight = test.counted[j].double().numpy()
            assert float(value[j]) == pytest.approx(_expected(test, j, weight)[name], abs=1e-9)


@pytest.mark.parametrize("test", CASES.values(), ids=CASES)
def test_the_influence_is_the_derivative_by_a_records_weight(test):
    step = 1e-6
    statistics = _statistics(test)
    for k in range(12):
        weight = test.counted[0].double().numpy()
        if not weight[k]:
            assert all(float(influence[0, k]) == 0 for _, influence in statistics.values())
            continue
        heavy, light = weight.copy(), weight.copy()
        heavy[k], light[k] = 1 + step, 1 - step
        above, below = _expected(test, 0, heavy), _expected(test, 0, light)
        for name, (_, influence) in statistics.items():
            derivative = (above[name] - below[name]) / (2 * step)
            assert float(influence[0, k]) == pytest.approx(derivative, abs=1e-7), name


@pytest.mark.parametrize("draw", [partial(_classes, 2, ties=False), _numbers])
def test_the_standard_errors_are_the_spread_over_samples_of_records(draw):
    """Models are measured at the same records, and have errors in common."""
    samples = [means(draw(models=12, records=200, seed=seed), 1.0)[0] for seed in range(150)]
    for name in samples[0]:
        spread = np.std([sample[name].value for sample in samples], ddof=1)
        predicted = math.sqrt(np.mean([sample[name].error ** 2 for sample in samples]))
        assert predicted == pytest.approx(spread, rel=0.2), name


def test_models_that_differ_add_to_the_error_and_unseen_records_do_not_without_any():
    test = _classes(2, models=40, records=400)
    every, none = (means(test, share)[0]["utility/test_auc"] for share in (1.0, 0.0))
    value, _ = _statistics(test)["auc"]
    assert none.error == pytest.approx(float(value.std()) / math.sqrt(40), rel=0.02)
    assert every.error > none.error


def test_the_error_of_a_mean_is_that_of_clusters_of_models_and_records():
    values = torch.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]], dtype=torch.float64)
    counted = torch.ones(2, 3, dtype=torch.bool)
    by_model = values.mean(1)
    influence = (values - by_model[:, None]) / 3
    mean = two_way_mean(by_model, influence, counted, 1.0)
    residual = (values - values.mean()) / 6
    clusters = residual.sum(0).square().sum() - residual.square().sum()
    expected = residual.sum(1).square().sum() + clusters.clamp_min(0)
    assert mean.value == pytest.approx(2 / 3)
    assert mean.error == pytest.approx(float(expected.sqrt()))


def test_the_trivial_model_has_the_values_of_constants():
    test = _classes(2, records=400)
    y = torch.cat([torch.zeros(92), torch.ones(8)]).double()
    trivial, _ = means(test.of_trivial_model(y), 1.0)
    share = float((test.y.expand(3, -1) * test.counted).sum() / test.counted.sum())
    shares = [float(test.y[c].mean()) for c in test.counted]
    assert trivial["utility/test_accuracy"].value == pytest.approx(1 - np.mean(shares))
    assert trivial["utility/test_accuracy"].value == pytest.approx(1 - share, abs=0.02)
    assert (
        trivial["utility/test_balanced_accuracy"].value == trivial["utility/test_auc"].value == 0.5
    )
    assert trivial["utility/test_average_precision"].value == pytest.approx(np.mean(shares))
    entropy = [-s * math.log(0.08) - (1 - s) * math.log(0.92) for s in shares]
    assert trivial["utility/test_log_loss"].value == pytest.approx(np.mean(entropy))


def test_the_trivial_regression_predicts_the_mean():
    test = _numbers(records=4000)
    trivial, _ = means(test.of_trivial_model(test.y), 0.0)
    assert trivial["utility/test_mse"].value == pytest.approx(float(test.y.var()), rel=0.05)
    assert trivial["utility/test_r2"].value == pytest.approx(0, abs=0.001)


def test_a_class_without_test_records_leaves_the_rates_undefined():
    test = _classes(3)
    counted = test.counted & (test.y != 2)
    lacking = TestOutputs(test.y, counted, test.predicted, test.log_p)
    values, reasons = means(lacking, 1.0)
    assert set(values) == {"utility/test_accuracy", "utility/test_log_loss"}
    assert (
        reasons["utility/test_auc"]
        == "3 of 3 models have no test record of class 2, counted from 0"
    )


def test_a_true_class_of_probability_0_leaves_the_log_loss_undefined():
    y, counted = torch.tensor([0.0, 1.0]).double(), torch.ones(1, 2, dtype=torch.bool)
    log_p = torch.tensor([[[0.0, -math.inf], [0.0, -math.inf]]]).double()
    values, reasons = means(TestOutputs(y, counted, torch.zeros(1, 2), log_p), 1.0)
    assert "utility/test_log_loss" not in values
    assert "probability 0" in reasons["utility/test_log_loss"]
    assert values["utility/test_accuracy"].value == values["utility/test_auc"].value == 0.5
