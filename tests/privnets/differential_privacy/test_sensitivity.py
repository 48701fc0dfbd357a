"""Sensitivities against the largest change among trained neighbours."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from privnets.differential_privacy.sensitivity import logistic_sensitivity, ridge_sensitivity
from privnets.membership.models.logistic import fit_logistic

_NORM, _FEATURES = 1.5, 2
decays = st.floats(-3, 1).map(lambda power: 10.0**power)
neighbour_kinds = st.sampled_from(["replace_one", "add_or_remove_one"])


def _rows(random: np.random.Generator, count: int) -> np.ndarray:
    x = random.standard_normal((count, _FEATURES)) * 3
    return x * np.minimum(1, _NORM / np.linalg.norm(x, axis=1, keepdims=True))


def _ridge(x: np.ndarray, y: np.ndarray, size: int, decay: float) -> np.ndarray:
    return np.linalg.solve(x.T @ x / size + decay * np.eye(_FEATURES), x.T @ y / size)


@given(st.integers(0, 10**6), st.integers(1, 20), decays, neighbour_kinds)
def test_ridge_moves_at_most_by_its_sensitivity(seed, size, decay, neighbours):
    random = np.random.default_rng(seed)
    x, y = _rows(random, size + 1), random.integers(0, 2, size + 1).astype(float)
    first = _ridge(x[:size], y[:size], size, decay)
    kept = slice(1, size + 1) if neighbours == "replace_one" else slice(1, size)
    second = _ridge(x[kept], y[kept], size, decay)
    bound = ridge_sensitivity(_NORM, 1.0, size, decay, neighbours)
    assert np.linalg.norm(first - second) <= bound


@given(st.integers(0, 10**6), st.integers(2, 12), decays, st.sampled_from([2, 3]))
def test_logistic_moves_at_most_by_its_sensitivity(seed, size, decay, classes):
    random = np.random.default_rng(seed)
    x, y = _rows(random, size + 1), random.integers(0, classes, size + 1)
    pair = np.stack([x[:size], x[1:]]), np.stack([y[:size], y[1:]])
    weights, converged = fit_logistic(
        *map(torch.from_numpy, pair), classes, torch.full((2,), decay)
    )
    assert bool(converged.all())
    bound = logistic_sensitivity(_NORM, classes, size, decay, "replace_one", 1e-6)
    assert float((weights[0] - weights[1]).norm()) <= bound


def test_ridge_sensitivity_is_attained_with_much_weight_decay():
    x = np.array([[_NORM, 0.0]])
    for decay, share in ((1e2, 0.95), (1e4, 0.999)):
        moved = _ridge(x, np.ones(1), 1, decay) - _ridge(-x, np.ones(1), 1, decay)
        bound = ridge_sensitivity(_NORM, 1.0, 1, decay, "replace_one")
        assert share * bound <= np.linalg.norm(moved) <= bound


def test_logistic_sensitivity_is_within_a_factor_of_two():
    x, y = torch.tensor([[[_NORM]], [[-_NORM]]]).double(), torch.ones(2, 1, dtype=torch.int64)
    weights, _ = fit_logistic(x, y, 2, torch.full((2,), 1e3))
    bound = logistic_sensitivity(_NORM, 2, 1, 1e3, "replace_one")
    assert 0.499 * bound <= float((weights[0] - weights[1]).abs()) <= bound


@pytest.mark.parametrize("neighbours", ["replace_one", "add_or_remove_one"])
def test_an_inexact_minimiser_adds_its_distance(neighbours):
    exact = logistic_sensitivity(1.0, 2, 100, 0.1, neighbours)
    assert logistic_sensitivity(1.0, 2, 100, 0.1, neighbours, 0.01) == pytest.approx(exact + 0.1)
