"""Parts of the frontier search against independent computations."""

import math
from itertools import combinations

import moocore
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from scipy.optimize import approx_fprime
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from sweeps.planning.frontier import gaussian_process
from sweeps.planning.frontier.front_model import FrontModel
from sweeps.planning.frontier.gaussian_process import fit_gaussian_process
from sweeps.planning.frontier.unit_cube import UnitCube
from sweeps.planning.frontier.volume import (
    FrontBox,
    select_points,
    spread_rays,
)

SPACE = {
    "float": FloatDistribution(-3.0, 5.0),
    "log": FloatDistribution(1e-5, 10.0, log=True),
    "step": FloatDistribution(0.0, 1.0, step=0.1),
    "int": IntDistribution(2, 20, step=3),
    "log_int": IntDistribution(1, 1000, log=True),
    "choice": CategoricalDistribution(["a", "b", None]),
}


def data(seed: int, size: int = 40) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    inputs = random.random((size, 3))
    values = np.sin(5 * inputs[:, 0]) + inputs[:, 1] + 0.1 * random.standard_normal(size)
    return inputs, values


def test_the_posterior_equals_that_of_scikit_learn():
    inputs, values = data(0)
    model = fit_gaussian_process(inputs, values, np.arange(3))
    kernel = ConstantKernel(model.variance) * Matern(model.scales, nu=2.5) + WhiteKernel(
        model.noise
    )
    oracle = GaussianProcessRegressor(kernel, optimizer=None).fit(
        inputs, (values - values.mean()) / values.std()
    )
    at = np.random.default_rng(1).random((7, 3))
    mean, spread = model.predict(at)
    expected, expected_spread = oracle.predict(at, return_std=True)
    expected_latent = np.sqrt(expected_spread**2 - model.noise)
    np.testing.assert_allclose(mean, values.mean() + values.std() * expected, rtol=1e-4)
    np.testing.assert_allclose(spread, values.std() * expected_latent, rtol=1e-3)


def test_the_gradient_of_the_fit_is_that_of_finite_differences():
    inputs, values = data(2)
    groups, priors = np.array([0, 1, 1]), np.array([[-0.7, 1.0]] * 2 + [[0, 1], [-4, 2.0]])
    logs = np.array([-0.3, 0.4, 0.2, -2.0])
    loss = gaussian_process._loss
    expected = approx_fprime(logs, lambda x: loss(x, inputs, values, groups, priors)[0], 1e-6)
    np.testing.assert_allclose(loss(logs, inputs, values, groups, priors)[1], expected, rtol=1e-3)


def test_the_noise_is_estimated_and_an_irrelevant_parameter_has_a_long_scale():
    inputs, values = data(3, 160)
    model = fit_gaussian_process(inputs, values, np.arange(3))
    assert model.noise_std == pytest.approx(0.1, rel=0.25)
    assert model.scales[2] > 3 * model.scales[0]


def test_joint_samples_have_the_mean_and_covariance_of_the_posterior():
    inputs, values = data(4, 8)
    model = fit_gaussian_process(inputs, values, np.arange(3))
    at = np.random.default_rng(5).random((3, 3))
    count = 20_000
    samples = model.sample(at, np.random.default_rng(6).standard_normal((count, 3)))
    mean, spread = model.predict(at)
    assert np.all(np.abs(samples.mean(axis=0) - mean) < 5 * spread / math.sqrt(count))
    np.testing.assert_allclose(samples.std(axis=0), spread, rtol=5 / math.sqrt(2 * count))
    first = model.sample(at[:2], np.random.default_rng(6).standard_normal((count, 3))[:, :2])
    np.testing.assert_allclose(first, samples[:, :2])


@pytest.mark.parametrize("objectives", [1, 2, 3])
def test_volumes_over_rays_equal_those_of_moocore(objectives):
    random = np.random.default_rng(7)
    values = random.random((12, objectives))
    box = FrontBox(np.zeros(objectives), np.ones(objectives))
    exact = moocore.hypervolume(values, ref=box.reference)

    def average_reach(chosen: np.ndarray) -> float:
        rays = spread_rays(objectives, 1 if objectives == 1 else 4096)
        return float(box.reach(chosen, rays).max(axis=0).mean())

    # The unit corner's volume gives the factor between the average and the volume.
    factor = moocore.hypervolume(np.zeros((1, objectives)), ref=box.reference)
    factor /= average_reach(np.zeros((1, objectives)))
    assert factor * average_reach(values) == pytest.approx(exact, rel=0.02)


def test_the_front_of_a_model_keeps_equal_points_and_no_dominated_one():
    """A model cannot tell an absent number from the middle of its range."""
    cube = UnitCube({"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)})
    x = np.linspace(0, 1, 7).repeat(2)
    trials = [{"x": float(v), "y": 0.5} if i % 2 else {"x": float(v)} for i, v in enumerate(x)]
    objectives = np.column_stack([x**2, (x - 0.5) ** 2])
    model = FrontModel(cube, trials, objectives, np.empty((14, 0)), seed=0)
    assert model._front.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]


def test_selected_points_have_nearly_the_largest_volume():
    angles = np.sort(np.random.default_rng(8).uniform(0, math.pi / 2, 10))
    values = 1 - np.column_stack([np.cos(angles), np.sin(angles)])
    box = FrontBox(np.zeros(2), np.ones(2))
    reach = box.reach(values, spread_rays(2, 512))
    chosen = select_points(reach, 3)

    best = max(reach[[*c]].max(axis=0).sum() for c in combinations(range(10), 3))
    assert reach[chosen].max(axis=0).sum() > 0.97 * best


@given(st.lists(st.floats(0, 1), min_size=6, max_size=6))
def test_parameters_survive_encoding(coordinates):
    cube = UnitCube(SPACE)
    params = cube.decode(np.array(coordinates))
    for name, distribution in SPACE.items():
        assert distribution._contains(distribution.to_internal_repr(params[name]))
    again = cube.decode(cube.encode([params])[0])
    assert {**again, "choice": None} == pytest.approx({**params, "choice": None})
    assert again["choice"] == params["choice"]


def test_ordered_values_are_ordered_and_choices_are_equally_far():
    cube = UnitCube(SPACE)
    trials = [{"int": n, "choice": c} for n in (2, 11, 20) for c in ("a", "b", None)]
    inputs = cube.inputs(cube.encode(trials))
    distances = np.linalg.norm(inputs[:3, None] - inputs[:3], axis=2)
    np.testing.assert_allclose(distances, 1 - np.eye(3), atol=1e-12)
    assert np.all(np.diff(inputs[::3, 3]) > 0.3)
