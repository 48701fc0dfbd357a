"""Target models against independent solvers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, Ridge

from privnets.membership.models.linear import Moments, solve, squared_errors
from privnets.membership.models.logistic import fit_logistic
from privnets.membership.training_sets import distinct_subsets
from privnets.randomness import generator


def _regression(records: int, features: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.standard_normal((records, features)) * random.uniform(0.5, 2, features)
    return x, x @ random.standard_normal(features) + random.standard_normal(records)


@pytest.mark.parametrize("decay", [1e-6, 1e-2, 1.0, 100.0])
@pytest.mark.parametrize(("size", "features"), [(10, 5), (40, 5), (30, 14), (6, 9)])
def test_ridge_equals_scikit_learn_with_alpha_n_lambda(decay, size, features):
    x, y = _regression(200, features)
    moments = Moments.of(torch.from_numpy(x), torch.from_numpy(y))
    rows = distinct_subsets(generator(0, "test"), 200, size, 8)
    found = solve(moments.sums(rows), size, decay * torch.eye(features).double())[0].numpy()
    for theta, row in zip(found, rows, strict=True):
        model = Ridge(alpha=size * decay, fit_intercept=False, solver="svd", tol=1e-12)
        np.testing.assert_allclose(theta, model.fit(x[row], y[row]).coef_, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("size", "features"), [(3, 5), (5, 9), (20, 5)])
def test_without_decay_the_solution_is_of_least_norm(size, features):
    x, y = _regression(100, features)
    moments = Moments.of(torch.from_numpy(x), torch.from_numpy(y))
    rows = distinct_subsets(generator(1, "test"), 100, size, 8)
    parameters, deficient = solve(
        moments.sums(rows), size, torch.zeros(features, features).double()
    )
    for theta, row in zip(parameters.numpy(), rows, strict=True):
        expected = np.linalg.lstsq(x[row], y[row], rcond=1e-9)[0]
        np.testing.assert_allclose(theta, expected, rtol=1e-6, atol=1e-8)
    assert bool(deficient.all()) == (size < features)


def test_a_constant_zero_feature_makes_a_set_deficient_and_gets_no_weight():
    x, y = _regression(20, 3)
    x[:10, 1] = 0
    moments = Moments.of(torch.from_numpy(x), torch.from_numpy(y))
    parameters, deficient = solve(
        moments.sums(np.arange(10, dtype=np.int32)[None]), 10, torch.zeros(3, 3).double()
    )
    assert deficient.tolist() == [True]
    assert abs(float(parameters[0, 1])) < 1e-12


@given(size=st.integers(2, 30), seed=st.integers(0, 50))
def test_squared_error_from_sums_is_that_of_the_records(size, seed):
    x, y = _regression(60, 4, seed)
    rows = distinct_subsets(generator(seed, "test"), 60, size, 3)
    theta = np.random.default_rng(seed).standard_normal((3, 4))
    moments = Moments.of(torch.from_numpy(x), torch.from_numpy(y))
    found = squared_errors(moments.sums(rows), moments.products.sum(0), torch.from_numpy(theta))
    for values, chosen in zip(found, (rows, np.tile(np.arange(60), (3, 1))), strict=True):
        expected = [((y[r] - x[r] @ t) ** 2).sum() for r, t in zip(chosen, theta, strict=True)]
        np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("features", "classes"), [(3, 2), (3, 4), (20, 8), (130, 2)])
@pytest.mark.parametrize("decay", [1e-3, 1e-1])
def test_logistic_equals_scikit_learn(features, classes, decay):
    """By Newton's method (up to 128 unknowns) and by descent."""
    random = np.random.default_rng(classes)
    x = random.standard_normal((6, 50, features))
    y = random.integers(0, classes, (6, 50))
    weights, converged = fit_logistic(
        torch.from_numpy(x), torch.from_numpy(y), classes, torch.full((6,), decay).double()
    )
    assert converged.all()
    for k in range(6):
        model = LogisticRegression(
            C=1 / (2 * 50 * decay), fit_intercept=False, tol=1e-12, max_iter=10_000
        ).fit(x[k], y[k])
        np.testing.assert_allclose(weights[k].numpy().T, model.coef_, atol=1e-4)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("least_decay", [1e-6, 1e-1])  # Hessians in float64 and in float32
def test_the_gradient_vanishes_at_a_logistic_model(classes, least_decay):
    random = generator(classes, "test")
    x = torch.from_numpy(random.standard_normal((4, 60, 5)))
    y = torch.from_numpy(random.integers(0, classes, (4, 60)))
    decay = least_decay * torch.tensor([1.0, 2.0, 10.0, 100.0]).double()
    weights, converged = fit_logistic(x, y, classes, decay)
    weights.requires_grad_()
    logits = x @ weights
    if classes == 2:
        logits = torch.cat([torch.zeros_like(logits), logits], dim=-1)
    losses = torch.nn.functional.cross_entropy(logits.mT, y, reduction="none").mean(1)
    objectives = losses + decay * weights.square().sum((1, 2))
    (gradient,) = torch.autograd.grad(objectives.sum(), weights)
    assert converged.all()
    assert float(gradient.abs().max()) <= 1.01e-7


def test_records_without_features_disturb_no_other_model():
    random = generator(0, "test")
    x = torch.from_numpy(random.standard_normal((2, 40, 3)))
    x[0] = 0
    y = torch.from_numpy(random.integers(0, 2, (2, 40)))
    for decay in (torch.zeros(2).double(), torch.tensor([0.0, 0.1]).double()):
        weights, converged = fit_logistic(x, y, 2, decay)
        alone, _ = fit_logistic(x[1:], y[1:], 2, decay[1:])
        assert converged.all()
        assert not weights[0].any()
        torch.testing.assert_close(weights[1:], alone, rtol=0, atol=1e-7)


def test_separable_data_without_decay_are_reported_as_unconverged():
    x = torch.tensor([[[-1.0], [1.0], [2.0]]]).double()
    _, converged = fit_logistic(x, torch.tensor([[0, 1, 1]]), 2, torch.zeros(1).double())
    assert converged.tolist() == [False]
