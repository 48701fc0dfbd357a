"""Divergences between Gaussian laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal
from torch.distributions import kl_divergence as torch_kl

from privnets import measures

Moments = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


@pytest.fixture(params=[1, 3, 8])
def moments(request: pytest.FixtureRequest) -> Moments:
    """Seven random pairs of Gaussians in 1, 3 and 8 dimensions."""
    p, source = request.param, torch.Generator().manual_seed(request.param)
    means = torch.randn(2, 7, p, dtype=torch.float64, generator=source)
    roots = torch.randn(2, 7, p, p, dtype=torch.float64, generator=source)
    covs = roots @ roots.mT + 0.1 * torch.eye(p)
    return means[0], covs[0], means[1], covs[1]


def test_hand_values_in_one_dimension() -> None:
    """D(N(0,1) || N(1,4)) = ln 2 + (1 + 1)/8 - 1/2; the reverse is -ln 2 + (4 + 1)/2 - 1/2."""
    mean, wide = np.array([1.0]), np.array([[4.0]])
    forth = measures.gaussian_kl(np.zeros(1), np.eye(1), mean, wide)
    back = measures.gaussian_kl(mean, wide, np.zeros(1), np.eye(1))
    assert forth == pytest.approx(math.log(2) - 0.25, rel=1e-15)
    assert back == pytest.approx(2 - math.log(2), rel=1e-15)


def test_hand_value_of_correlation() -> None:
    """Against independent coordinates a correlation r costs -ln(1 - r^2)/2."""
    mean = np.zeros(2)
    cov = np.array([[1.0, 0.8], [0.8, 1.0]])
    found = measures.gaussian_kl(mean, cov, mean, np.eye(2))
    assert found == pytest.approx(-0.5 * math.log(1 - 0.64), rel=1e-14)


def test_agrees_with_torch_distributions(moments: Moments) -> None:
    mean0, cov0, mean1, cov1 = moments
    expected = torch_kl(MultivariateNormal(mean0, cov0), MultivariateNormal(mean1, cov1))
    torch.testing.assert_close(measures.gaussian_kl(*moments), expected, rtol=1e-11, atol=0)


def test_jeffreys_is_the_formula_with_inverses(moments: Moments) -> None:
    mean0, cov0, mean1, cov1 = moments
    first, second, apart = cov0.inverse(), cov1.inverse(), mean0 - mean1
    traces = (first * cov1).sum((-2, -1)) + (second * cov0).sum((-2, -1)) - 2 * apart.shape[-1]
    expected = (traces + torch.einsum("bi,bij,bj->b", apart, first + second, apart)) / 2
    torch.testing.assert_close(measures.gaussian_jeffreys(*moments), expected, rtol=1e-10, atol=0)


def test_is_unchanged_by_a_linear_map(moments: Moments) -> None:
    mean0, cov0, mean1, cov1 = moments
    p = mean0.shape[-1]
    map_ = torch.eye(p, dtype=torch.float64).flip(0) * 1e4 + torch.ones(p, p).triu(1)
    images = (mean0 @ map_.T, map_ @ cov0 @ map_.T, mean1 @ map_.T, map_ @ cov1 @ map_.T)
    for divergence in (measures.gaussian_kl, measures.gaussian_jeffreys):
        torch.testing.assert_close(divergence(*images), divergence(*moments), rtol=1e-9, atol=0)


def test_divergence_from_itself_is_zero(moments: Moments) -> None:
    mean, cov, _, _ = moments
    assert (measures.gaussian_kl(mean, cov, mean, cov) < 1e-28).all()


def test_small_divergences_are_accurate() -> None:
    """Standard deviations 1 and 1 + h are about 2 h^2 apart in Jeffreys' divergence times 2."""
    h = 2.0**-30
    zero, cov = np.zeros(1), np.array([[(1 + h) ** 2]])
    found = measures.gaussian_jeffreys(zero, np.eye(1), zero, cov)
    assert found == pytest.approx(4 * h**2, rel=1e-6)


def test_leading_dimensions_broadcast() -> None:
    means = np.arange(6.0).reshape(3, 2)
    found = measures.gaussian_kl(means, np.eye(2), np.zeros(2), 2 * np.eye(2)[None, None])
    assert found.shape == (1, 3)
    expected = 0.5 * (1 - 2 + (means**2).sum(1) / 2 + 2 * math.log(2))
    np.testing.assert_allclose(found[0], expected, rtol=1e-14)


def test_gradients_are_those_of_finite_differences() -> None:
    source = torch.Generator().manual_seed(1)
    root = torch.randn(3, 3, dtype=torch.float64, generator=source, requires_grad=True)
    mean = torch.randn(3, dtype=torch.float64, generator=source, requires_grad=True)
    eye, zero = torch.eye(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)

    def divergence(root: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        return measures.gaussian_jeffreys(mean, root @ root.mT + eye, zero, eye)

    assert torch.autograd.gradcheck(divergence, (root, mean))


def test_singular_covariances_are_refused_at_any_scale() -> None:
    root = np.random.default_rng(0).normal(size=(5, 4)) * 1e-5
    singular = root @ root.T
    with pytest.raises(ValueError, match="cov1 must be positive definite"):
        measures.gaussian_kl(np.zeros(5), np.eye(5), np.zeros(5), singular)


def test_badly_scaled_covariances_are_accepted() -> None:
    scales = np.array([1e-9, 1.0, 1e9])
    cov = np.outer(scales, scales) * (0.5 + 0.5 * np.eye(3))
    found = measures.gaussian_kl(scales, cov, np.zeros(3), cov)
    assert found == pytest.approx(0.5 * 3 / 2, rel=1e-12)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mean0": np.zeros(3)}, r"mean0 and mean1 must have shape \[\.\.\., 2\]"),
        ({"mean1": np.array(0.0)}, r"mean0 and mean1 must have shape \[\.\.\., 2\]"),
        ({"cov0": np.eye(2)[:1]}, r"cov0 must have shape \[\.\.\., p, p\]; got \[1, 2\]"),
        ({"cov1": np.eye(3)}, r"cov1 must have shape \[\.\.\., 2, 2\]"),
        ({"cov0": np.array([[1.0, 0.5], [0.0, 1.0]])}, "cov0 must be symmetric"),
        ({"cov0": np.diag([1.0, -1.0])}, "cov0 must be positive definite"),
        ({"cov0": np.full((2, 2), np.nan)}, "cov0 must hold numbers; got NaN"),
        ({"mean0": np.array([0.0, np.inf])}, "mean0 must be finite; got inf"),
        ({"mean0": np.zeros((3, 2)), "mean1": np.zeros((4, 2))}, "batch dimensions of mean0"),
    ],
)
def test_invalid_gaussians_are_refused(changed: dict[str, np.ndarray], message: str) -> None:
    right = {"mean0": np.zeros(2), "cov0": np.eye(2), "mean1": np.zeros(2), "cov1": np.eye(2)}
    with pytest.raises(ValueError, match=message):
        measures.gaussian_jeffreys(**(right | changed))
