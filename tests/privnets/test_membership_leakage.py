"""Leakage estimates against closed forms; tolerances are standard errors of the averages."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch.distributions import MultivariateNormal, kl_divergence

from privnets.membership import leakage
from privnets.membership.leakage import Sides, shared_sides


def _normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def paired_sides(with_record: torch.Tensor, without: torch.Tensor, noise: float) -> Sides:
    return leakage.paired_sides(torch.stack([without, with_record], dim=1), noise)


def _jeffreys(mean: torch.Tensor, cov0: torch.Tensor, cov1: torch.Tensor) -> float:
    one, other = MultivariateNormal(mean, cov1), MultivariateNormal(torch.zeros_like(mean), cov0)
    return float(kl_divergence(one, other) + kl_divergence(other, one))


def _standard_errors(values: torch.Tensor, truth: float) -> float:
    return abs(float(values.mean()) - truth) / float(values.std() / math.sqrt(len(values)))


COV0 = torch.tensor([[1.0, 0.3], [0.3, 0.8]]).double()
COV1 = torch.tensor([[1.3, -0.2], [-0.2, 0.7]]).double()
SHIFT = torch.tensor([0.4, -0.2]).double()


@pytest.mark.parametrize("correlation", [0.0, 0.95])
def test_the_estimate_is_unbiased_whether_or_not_sides_share_draws(correlation):
    """24 draws a side, where the plug-in is off by tens of standard errors."""
    common, own = _normal(20_000, 24, 2, seed=1), _normal(20_000, 24, 2, seed=2)
    mixed = correlation * common + math.sqrt(1 - correlation**2) * own
    without = common @ torch.linalg.cholesky(COV0).T
    with_record = mixed @ torch.linalg.cholesky(COV1).T + SHIFT
    sides = paired_sides(with_record, without, 0.0)
    truth = _jeffreys(SHIFT, COV0, COV1)
    assert _standard_errors(leakage.jeffreys(sides), truth) < 3.5
    assert _standard_errors(leakage.jeffreys_plugin(sides), truth) > 20


def test_sides_that_do_not_differ_leak_nothing_on_average():
    draws = [_normal(20_000, 20, 3, seed=s) for s in (3, 4)]
    sides = paired_sides(draws[0], draws[1], 0.0)
    assert _standard_errors(leakage.jeffreys(sides), 0.0) < 3.5


def test_the_plugin_bias_is_p_times_p_plus_3_over_m_without_leakage():
    p, draws = 3, 400
    sides = paired_sides(_normal(3000, draws, p, seed=5), _normal(3000, draws, p, seed=6), 0.0)
    # To first order in 1/M; the next order is some p/M of it.
    assert float(leakage.jeffreys_plugin(sides).mean()) == pytest.approx(
        p * (p + 3) / draws, rel=0.05
    )


@pytest.mark.parametrize("noise", [0.3, 3.0])
def test_added_noise_enters_exactly(noise):
    common = _normal(6000, 200, 2, seed=7)
    without = common @ torch.linalg.cholesky(COV0).T
    with_record = common @ torch.linalg.cholesky(COV1).T + SHIFT
    extra = noise**2 * torch.eye(2).double()
    truth = _jeffreys(SHIFT, COV0 + extra, COV1 + extra)
    estimate = leakage.jeffreys(paired_sides(with_record, without, noise))
    assert _standard_errors(estimate, truth) < 3.5


def test_models_shared_by_records_give_the_same_estimand():
    member = torch.zeros(4000, 80, dtype=torch.bool)
    member[:, ::3] = True
    values = _normal(4000, 80, 2, seed=8)
    inside = values @ torch.linalg.cholesky(COV1).T + SHIFT
    values = torch.where(member[..., None], inside, values @ torch.linalg.cholesky(COV0).T)
    estimate = leakage.jeffreys(shared_sides(values, member))
    assert _standard_errors(estimate, _jeffreys(SHIFT, COV0, COV1)) < 3.5


def test_moments_of_shared_models_are_numpys():
    values, member = _normal(12, 3, seed=9), torch.zeros(2, 12, dtype=torch.bool)
    member[0, [0, 2, 7, 9, 11]] = True
    member[1, [1, 3, 4, 6, 8, 10]] = True
    sides = shared_sides(values, member)
    for record in range(2):
        for side in (0, 1):
            chosen = (member[record] == bool(side)).numpy()
            for fold, part in ((0, slice(0, 6)), (1, slice(6, 12))):
                own = values.numpy()[part][chosen[part]]
                np.testing.assert_allclose(sides.means[record, side, fold], own.mean(0))
                np.testing.assert_allclose(
                    sides.covariances[record, side, fold], np.cov(own.T), atol=1e-12
                )
            own = values.numpy()[chosen]
            np.testing.assert_allclose(sides.pooled_covariances[record, side], np.cov(own.T))


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("size", [5, 30])
def test_the_mean_of_n_draws_leaks_its_closed_form(size, noise):
    """rho_KL = sum_j v_j / ((n-1) v_j + n^2 t^2) for a mean of n draws with noise t."""
    variances = np.array([0.5, 2.0])
    n, t = size, noise
    truth = float((variances / ((n - 1) * variances + n**2 * t**2)).sum())
    # Exactly, by integrating the divergence of the two Gaussians over the record.
    inside = torch.from_numpy(np.diag((n - 1) / n**2 * variances + t**2))
    outside = torch.from_numpy(np.diag(variances / n + t**2))
    spread = sum(
        _jeffreys(torch.from_numpy(sign * np.sqrt(variances) * np.sqrt(1) / n), outside, inside)
        for sign in (1, -1)
    )
    assert spread / 2 == pytest.approx(truth, abs=1e-9)
    # And by the estimator, from training sets of standard normal records.
    random = np.random.default_rng(10)
    scale = np.sqrt(variances)
    record = random.standard_normal((2000, 1, 2)) * scale
    others = random.standard_normal((2000, 200, 2)) * scale * math.sqrt(n - 1)
    replaced = random.standard_normal((2000, 200, 2)) * scale
    sides = paired_sides(
        torch.from_numpy((others + record) / n), torch.from_numpy((others + replaced) / n), t
    )
    assert _standard_errors(leakage.jeffreys(sides), truth) < 3.5


@pytest.mark.parametrize("prior", [0.5, 0.01])
@pytest.mark.parametrize("shift", [0.3, 2.0])
def test_mutual_information_is_the_integral_over_two_gaussians(prior, shift):
    def integrand(v: float) -> float:
        p0, p1 = stats.norm.pdf(v), stats.norm.pdf(v, shift)
        m = (1 - prior) * p0 + prior * p1
        return float((1 - prior) * p0 * math.log(p0 / m) + prior * p1 * math.log(p1 / m))

    truth = integrate.quad(integrand, -10, 12)[0]
    without = _normal(3000, 400, 1, seed=11)
    sides = paired_sides(without + shift, without, 0.0)
    found = leakage.mutual_information(sides, prior, _normal(3000, 64, 1, seed=12))
    assert float(found.mean()) == pytest.approx(truth, rel=0.02, abs=2e-5)


def test_mutual_information_of_far_sides_is_the_entropy_of_membership():
    without = _normal(10, 100, 2, seed=13)
    sides = paired_sides(without + 1000.0, without, 0.0)
    found = leakage.mutual_information(sides, 0.5, _normal(10, 64, 2, seed=14))
    torch.testing.assert_close(found, torch.full((10,), math.log(2)).double())


def test_extrapolation_removes_the_bias_of_inverse_covariances():
    """Skewed parameters with 40 draws a side, where the estimate for Gaussian ones is biased."""
    random = np.random.default_rng(15)

    def draw(records: int, draws: int) -> torch.Tensor:
        """Draws [records, 2 sides, draws, 1]: unit variance without the record, 1.5 with it."""
        common = random.standard_gamma(1.0, (records, draws, 1)) - 1
        other = random.standard_gamma(1.0, (records, draws, 1)) - 1
        with_record = common + math.sqrt(0.5) * other + 0.3
        return torch.from_numpy(np.stack([common, with_record], axis=1))

    truth = _jeffreys(
        torch.tensor([0.3]).double(), torch.eye(1).double(), 1.5 * torch.eye(1).double()
    )
    values = draw(40_000, 80)
    sides, halves = leakage.paired_sides(values, 0.0), (
        leakage.paired_sides(values[:, :, :40], 0.0), leakage.paired_sides(values[:, :, 40:], 0.0),
    )  # fmt: skip
    plain, extrapolated = leakage.jeffreys(sides), leakage.extrapolated_jeffreys(sides, halves)
    assert _standard_errors(plain, truth) > 8
    assert abs(float(extrapolated.mean()) - truth) < abs(float(plain.mean()) - truth) / 3


@pytest.mark.parametrize(
    ("draws", "noise", "reason"),
    [
        (_normal(3, 12, 3, seed=18), 0.0, "needs more than 7 draws"),
        (_normal(3, 40, 1, seed=19).expand(3, 40, 2), 0.0, "is singular"),
        (torch.zeros(3, 40, 2).double(), 0.0, "is singular"),
        (_normal(3, 40, 1, seed=20).expand(3, 40, 2), 1.0, None),
    ],
)
def test_singular_covariances_are_recognised(draws, noise, reason):
    found = leakage.why_undefined(paired_sides(draws, draws, noise))
    assert found is None if reason is None else reason in (found or "")
