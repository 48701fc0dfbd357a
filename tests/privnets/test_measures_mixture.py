"""Two correlated bits, linear filters of them, and the best that any release can do."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog, minimize
from scipy.special import xlogy

from privnets import measures
from privnets.measures.mixture import DATA_STD
from privnets.randomness import generator

IDENTITY = np.eye(2)
LN2 = math.log(2)

dependences = st.sampled_from([0.0, 0.1, 0.4, 0.8, 1.0, 1.3, 2.0])
tradeoffs = st.floats(0, 1)
filters = st.lists(st.floats(-30, 30), min_size=4, max_size=4).map(
    lambda entries: np.array(entries).reshape(2, 2)
)


def information(joint: NDArray[np.float64]) -> float:
    outer = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    return float((xlogy(joint, joint) - xlogy(joint, outer)).sum())


def log_densities(
    q: NDArray[np.float64], theta: NDArray[np.float64], sigma: float
) -> NDArray[np.float64]:
    """Log density of Q = q given each cell (u, s), shape [..., 2, 2], straight from its law."""
    covariance = DATA_STD**2 * theta @ theta.T + sigma**2 * np.eye(2)
    corners = np.array([[[0.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 1.0]]])
    apart = q[..., None, None, :] - corners @ theta.T
    squares = np.einsum("...i,ij,...j->...", apart, np.linalg.inv(covariance), apart)
    determinant = float(np.linalg.det(2 * math.pi * covariance))
    return np.asarray(-squares / 2 - math.log(determinant) / 2)


def posterior_entropies(cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """Entropies of u and s given q, shape [..., 2], of P(u, s | q) [..., 2, 2]."""
    marginals = np.stack([cells.sum(-1), cells.sum(-2)], axis=-2)
    return np.asarray(-xlogy(marginals, marginals).sum(-1))


@pytest.mark.parametrize("k", [0.4, 1.0])
def test_the_joint_has_its_margins_and_dependence(k: float) -> None:
    joint = measures.joint_us(k)
    assert joint.sum(0).tolist() == joint.sum(1).tolist() == [0.5, 0.5]
    assert joint[1, 1] == pytest.approx(k / 4)


@pytest.mark.parametrize(("k", "expected"), [(0.0, LN2), (2.0, LN2), (1.0, 0.0), (0.4, 0.192745)])
def test_dependence_of_fair_bits(k: float, expected: float) -> None:
    assert measures.mutual_information(measures.joint_us(k)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("k", [-0.1, 2.1])
def test_an_impossible_dependence_is_refused(k: float) -> None:
    with pytest.raises(ValueError, match="must be in"):
        measures.joint_us(k)


@pytest.mark.parametrize("k", [0.0, 0.4, 1.0, 1.7])
def test_the_bound_of_the_data_is_the_dependence_of_the_bits(k: float) -> None:
    """X determines both bits, so that K = I(U;S) - I(U;S|X) = I(U;S)."""
    joint = measures.joint_us(k)
    table = np.zeros((2, 2, 4))
    for u, s in np.ndindex(2, 2):
        table[u, s, 2 * u + s] = joint[u, s]
    assert measures.release_bound(table) == pytest.approx(information(joint), abs=1e-12)
    raw = measures.filter_information(IDENTITY, 0.0, joint)
    assert raw.leakage == pytest.approx(LN2, abs=1e-12)
    assert raw.utility == pytest.approx(LN2, abs=1e-12)
    assert raw.censored == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("theta", "sigma", "joint"),
    [
        ([[3.0, -1.0], [0.5, 2.0]], 1.0, np.array([[0.248, 0.152], [0.552, 0.048]])),
        ([[6.0, 2.0], [-5.0, 7.0]], 0.7, measures.joint_us(1.3)),
        ([[2.0, 1.5], [0.0, 0.0]], 0.5, measures.joint_us(0.0)),
    ],
)
def test_information_is_the_integral_over_releases(
    theta: list[list[float]], sigma: float, joint: np.ndarray
) -> None:
    """A sum over a grid of releases q, exact for smooth functions that vanish at its ends."""
    matrix = np.array(theta)
    ends = np.array([[0, 0], [0, 1], [1, 0], [1, 1]]) @ matrix.T
    spread = 6.5 * np.sqrt(sigma**2 + DATA_STD**2 * (matrix**2).sum(1))
    axes = np.linspace(ends.min(0) - spread, ends.max(0) + spread, 500)
    grid = np.stack(np.meshgrid(*axes.T, indexing="ij"), axis=-1)
    cells = joint * np.exp(log_densities(grid, matrix, sigma))
    total = np.maximum(cells.sum((-2, -1)), 1e-300)
    entropies = total[..., None] * posterior_entropies(cells / total[..., None, None])
    left = entropies.sum((0, 1)) * np.prod(axes[1] - axes[0])
    found = measures.filter_information(matrix, sigma, joint)
    utility, secret = posterior_entropies(joint)
    assert found.censored == pytest.approx(left[0], abs=1e-6)
    assert found.utility == pytest.approx(utility - left[0], abs=1e-6)
    assert found.leakage == pytest.approx(secret - left[1], abs=1e-6)


@pytest.mark.parametrize("scale", [0.3, 2.0, 8.0, 60.0, 1e4])
def test_information_is_the_mean_over_draws(scale: float) -> None:
    """Monte Carlo within four standard errors, for cells that touch and cells far apart."""
    random, count, k = generator(3, "draws"), 40_000, 0.7
    theta, joint = scale * np.array([[1.0, 0.3], [-0.4, 0.8]]), measures.joint_us(k)
    cells = random.choice(4, count, p=joint.ravel())
    x = np.stack([cells // 2, cells % 2], 1) + DATA_STD * random.standard_normal((count, 2))
    q = x @ theta.T + random.standard_normal((count, 2))
    log_cells = log_densities(q, theta, 1.0)
    weights = joint * np.exp(log_cells - log_cells.max((-2, -1), keepdims=True))
    drawn = posterior_entropies(weights / weights.sum((-2, -1), keepdims=True))
    mean, error = drawn.mean(0), drawn.std(0) / math.sqrt(count)
    found = measures.filter_information(theta, 1.0, joint)
    assert found.censored == pytest.approx(mean[0], abs=4 * error[0] + 1e-9)
    assert LN2 - found.leakage == pytest.approx(mean[1], abs=4 * error[1] + 1e-9)


@given(entries=filters, k=dependences)
@settings(max_examples=30)
def test_lemma_3_1(entries: NDArray[np.float64], k: float) -> None:
    """I(S;Q) + I(U;X|Q) >= I(U;S), with equality if the bits determine each other."""
    joint = measures.joint_us(k)
    found = measures.filter_information(entries, 1.0, joint)
    total = found.leakage + found.censored
    assert total >= information(joint) - 1e-7
    if k in (0.0, 2.0):
        assert total == pytest.approx(LN2, abs=1e-7)


@given(entries=filters, k=dependences, noise=st.floats(0.01, 5))
@settings(max_examples=30)
def test_noise_destroys_information(entries: NDArray[np.float64], k: float, noise: float) -> None:
    """Data processing, and the scale of theta counts against that of the noise alone."""
    joint = measures.joint_us(k)
    quiet, loud, scaled = (
        measures.filter_information(entries * gain, sigma, joint)
        for gain, sigma in ((1, 1.0), (1, 1 + noise), (2, 2.0))
    )
    assert loud.leakage <= quiet.leakage + 1e-7
    assert loud.utility <= quiet.utility + 1e-7
    np.testing.assert_allclose(scaled, quiet, atol=1e-12)


def test_a_release_without_noise_on_one_direction() -> None:
    """U - S takes three values far apart: of four equally likely cells two stay unresolved."""
    theta = np.array([[0.0, 0.0], [1e-3, -1e-3]])
    found = measures.filter_information(theta, 0.0, measures.joint_us(1.0))
    np.testing.assert_allclose(found, (LN2 / 2, LN2 / 2, LN2 / 2), atol=1e-9)


def test_gradients_are_those_of_differences() -> None:
    theta = torch.tensor([[2.0, -0.7], [0.4, 1.1]], dtype=torch.float64, requires_grad=True)
    sigma = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
    joint = torch.as_tensor(measures.joint_us(0.4))
    torch.autograd.gradcheck(
        lambda t, s: tuple(measures.filter_information(t, s, joint)), (theta, sigma)
    )


def test_a_batch_is_its_members() -> None:
    random = generator(0, "batch")
    theta, k = 4 * random.standard_normal((300, 2, 2)), random.uniform(0, 2, 300)
    sigma, joint = random.uniform(0.1, 2, 300), measures.joint_us(k)
    together = measures.filter_information(theta, sigma, joint)
    for i in (0, 127, 128, 299):
        alone = measures.filter_information(theta[i], float(sigma[i]), joint[i])
        np.testing.assert_allclose([part[i] for part in together], alone, atol=1e-12)


@pytest.mark.parametrize(
    ("theta", "sigma", "joint", "complaint"),
    [
        (np.eye(3), 1.0, measures.joint_us(1.0), r"theta must have shape \[..., 2, 2\]"),
        (np.full((2, 2), np.inf), 1.0, measures.joint_us(1.0), "theta must be finite"),
        (IDENTITY, -1.0, measures.joint_us(1.0), "sigma must be in"),
        (IDENTITY, 1.0, np.array([[0.5, 0.5], [0.0, 0.0]]), "two values of positive probability"),
        (IDENTITY, 1.0, np.full((2, 2), 0.3), "joint must sum to 1"),
    ],
)
def test_arguments_out_of_range_are_refused(
    theta: NDArray[np.float64], sigma: float, joint: NDArray[np.float64], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        measures.filter_information(theta, sigma, joint)


@pytest.mark.parametrize("k", [0.0, 0.15, 0.4, 1.0, 1.5])
@pytest.mark.parametrize("weight", [0.3, 0.6, 0.75, 0.95])
def test_the_boundary_is_that_of_all_channels(k: float, weight: float) -> None:
    """A linear programme over posteriors on a grid of the simplex finds no lower support line."""
    joint, steps = measures.joint_us(k), 12
    parts = [
        (a, b, c, steps - a - b - c)
        for a in range(steps + 1)
        for b in range(steps + 1 - a)
        for c in range(steps + 1 - a - b)
    ]
    fine = np.linspace(0, 1, 401)
    edges = [np.outer(fine, i) + np.outer(1 - fine, j) for i in np.eye(4) for j in np.eye(4)]
    posteriors = np.concatenate([np.array(parts) / steps, *edges])
    utility, secret = posterior_entropies(posteriors.reshape(-1, 2, 2)).T
    cost = (1 - weight) * utility - weight * secret
    found = linprog(cost, A_eq=posteriors.T, b_eq=joint.ravel())
    leakage, censored = measures.release_boundary(k, 2001)
    least = float((weight * leakage + (1 - weight) * censored).min())
    assert least == pytest.approx(weight * LN2 + found.fun, abs=2e-5)
    assert least <= weight * LN2 + found.fun + 1e-6


@pytest.mark.parametrize("k", [0.0, 0.4, 0.9, 1.0, 1.8])
def test_the_boundary_runs_from_full_utility_to_full_privacy(k: float) -> None:
    leakage, censored = measures.release_boundary(k)
    dependence = information(measures.joint_us(k))
    np.testing.assert_allclose((leakage[0], censored[0]), (dependence, 0), atol=1e-12)
    np.testing.assert_allclose((leakage[-1], censored[-1]), (0, abs(1 - k) * LN2), atol=1e-12)
    assert np.all(leakage + censored >= dependence - 1e-12)


@given(k=st.floats(0, 2), a=tradeoffs)
def test_theorem_3_3_as_corrected(k: float, a: float) -> None:
    """No loss is below a(1 - a) K^2; where the bits determine each other it is attained."""
    bound = a * (1 - a) * information(measures.joint_us(k)) ** 2
    assert measures.best_loss(k, a) >= bound - 1e-12
    for certain in (0.0, 2.0):
        assert measures.best_loss(certain, a) == pytest.approx(a * (1 - a) * LN2**2, abs=1e-12)


@given(k=st.floats(0, 2), a=tradeoffs)
def test_the_best_loss_is_attained(k: float, a: float) -> None:
    """The proved bound meets the least loss along the boundary, which channels attain."""
    leakage, censored = measures.release_boundary(k, 4001)
    losses = (1 - a) * censored**2 + a * leakage**2
    best = measures.best_loss(k, a)
    assert best <= losses.min() + 1e-12
    assert best == pytest.approx(losses.min(), abs=1e-6)


@given(entries=filters, k=dependences, a=st.sampled_from([0.05, 0.5, 0.9]))
@settings(max_examples=20)
def test_no_filter_beats_the_best_linear_loss(
    entries: NDArray[np.float64], k: float, a: float
) -> None:
    """Whether it releases one number or two."""
    joint = measures.joint_us(k)
    for theta in (entries, entries * [[1], [0]]):
        found = measures.filter_information(theta, 1.0, joint)
        loss = (1 - a) * found.censored**2 + a * found.leakage**2
        assert loss >= measures.best_linear_loss(k, a)[0] - 1e-7


@pytest.mark.parametrize(("k", "a"), [(0.4, 0.1), (0.4, 0.8), (1.7, 0.3)])
def test_no_search_over_theta_finds_a_better_linear_filter(k: float, a: float) -> None:
    """Nelder and Mead's, without gradients or the parameters of the answer."""
    random, joint = generator(5, "starts"), measures.joint_us(k)

    def loss(entries: NDArray[np.float64]) -> float:
        found = measures.filter_information(entries.reshape(2, 2), 1.0, joint)
        return float((1 - a) * found.censored**2 + a * found.leakage**2)

    starts = 3 * random.standard_normal((2, 4))
    best = min(float(minimize(loss, start, method="Nelder-Mead").fun) for start in starts)
    assert measures.best_linear_loss(k, a)[0] <= best + 1e-9
    assert measures.best_linear_loss(k, a)[0] == pytest.approx(best, rel=0.02)


def test_the_best_linear_filters_of_many_problems_are_those_of_each() -> None:
    k, a = (part.ravel() for part in np.meshgrid([0.0, 0.4, 1.0, 1.9], [0.0, 0.1, 0.7, 1.0]))
    sigma = np.where(np.arange(16) % 3 == 0, 0.0, 0.7)
    losses, thetas = measures.best_linear_loss(k, a, sigma)
    for place, problem in enumerate(zip(k, a, sigma, strict=True)):
        loss, theta = measures.best_linear_loss(*problem)
        assert losses[place] == pytest.approx(loss, abs=1e-12)
        assert theta.shape == thetas[place].shape == (2, 2)
        found = measures.filter_information(
            thetas[place], sigma[place], measures.joint_us(k[place])
        )
        attained = (1 - a[place]) * found.censored**2 + a[place] * found.leakage**2
        assert attained == pytest.approx(losses[place], rel=1e-6, abs=1e-9)
        assert losses[place] >= measures.best_loss(k[place], a[place]) - 1e-9


def test_a_search_of_many_filters_works_in_chunks() -> None:
    """Near an end of a most problems have filters of two numbers to be searched exactly."""
    k = np.linspace(0.1, 1.9, 40)
    losses, _ = measures.best_linear_loss(k, 1e-4)
    some = [3, 21, 39]
    assert losses[some] == pytest.approx(measures.best_linear_loss(k[some], 1e-4)[0], abs=1e-12)


def test_known_optima_of_linear_filters() -> None:
    """Independent bits cost nothing, certain ones a(1 - a) ln^2 2; between, a filter falls short.

    Without noise the best of three kinds is worse than with as much as one likes.
    """
    assert measures.best_linear_loss(1.0, 0.8)[0] == pytest.approx(0, abs=1e-9)
    assert measures.best_linear_loss(0.0, 0.8)[0] == pytest.approx(0.16 * LN2**2, abs=1e-9)
    assert measures.best_linear_loss(0.4, 0.8)[0] > 1.7 * measures.best_loss(0.4, 0.8)
    assert measures.best_linear_loss(0.4, 0.8, 0.0)[0] > measures.best_linear_loss(0.4, 0.8)[0]
