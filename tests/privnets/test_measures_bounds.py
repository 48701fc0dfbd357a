"""Bounds on releases, on membership and under noise."""

from __future__ import annotations

import math
import warnings
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import erfinv
from scipy.stats import norm

from privnets import measures

briefly = settings(deadline=None, max_examples=30)

weights = st.one_of(st.floats(1e-6, 1.0), st.integers(1, 9).map(lambda n: n * 1e-9))


def laws(size: int) -> st.SearchStrategy[np.ndarray]:
    listed = st.lists(weights, min_size=size, max_size=size)
    return listed.map(np.array).map(lambda law: law / law.sum())


def jeffreys(p: np.ndarray, q: np.ndarray) -> float:
    return float(((p - q) * np.log(p / q)).sum())


def total_variation(p: np.ndarray, q: np.ndarray) -> float:
    return float(np.abs(p - q).sum() / 2)


class TestMembershipAdvantage:
    @pytest.mark.parametrize("rho", [5e-324, 1e-300, 1e-16, 1e-6, 0.01, 1.0, 7.3, 40.0, 75.0, 80.0])
    def test_solves_its_equation(self, rho: float) -> None:
        """4 A atanh(A) crosses rho within one part in 1e12 of A, in 400 digits."""
        bound = measures.membership_advantage_bound(rho)
        with localcontext(prec=400):
            for factor, side in (("0.999999999999", -1), ("1.000000000001", 1)):
                a = Decimal(bound) * Decimal(factor)
                reached = 2 * a * ((1 + a) / (1 - a)).ln() if a < 1 else Decimal("inf")
                assert (reached - Decimal(rho)) * side > 0

    def test_ends_are_0_and_1(self) -> None:
        assert measures.membership_advantage_bound(0.0) == 0
        assert measures.membership_advantage_bound(math.inf) == 1
        assert measures.membership_advantage_bound(1e300) == 1

    @briefly
    @given(st.integers(2, 6).flatmap(lambda n: st.tuples(laws(n), laws(n))))
    def test_no_pair_of_distributions_exceeds_it(self, pair: tuple[np.ndarray, np.ndarray]) -> None:
        bound = measures.membership_advantage_bound(jeffreys(*pair))
        assert total_variation(*pair) <= bound + 1e-14

    @briefly
    @given(st.floats(1e-6, 1 - 1e-9))
    def test_mirrored_coins_attain_it(self, advantage: float) -> None:
        p = np.array([1 + advantage, 1 - advantage]) / 2
        bound = measures.membership_advantage_bound(jeffreys(p, p[::-1]))
        assert bound == pytest.approx(advantage, rel=1e-9)

    @briefly
    @given(st.lists(st.tuples(laws(3), laws(3)), min_size=1, max_size=5))
    def test_holds_for_means_over_records(self, pairs: list[tuple[np.ndarray, np.ndarray]]) -> None:
        rho = float(np.mean([jeffreys(*pair) for pair in pairs]))
        advantage = np.mean([total_variation(*pair) for pair in pairs])
        assert advantage <= measures.membership_advantage_bound(rho) + 1e-14

    def test_gradient_is_that_of_finite_differences(self) -> None:
        rho = torch.tensor([0.01, 1.0, 30.0], dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(measures.membership_advantage_bound, rho)


class TestReleaseBound:
    def test_a_common_bit_absent_from_the_data_gives_ln2(self) -> None:
        """X = U = S: U determines S, and X leaves nothing of it: K = ln 2."""
        joint = np.zeros((2, 2, 2))
        joint[0, 0, 0] = joint[1, 1, 1] = 0.5
        assert measures.release_bound(joint) == pytest.approx(math.log(2), rel=1e-14)

    def test_exclusive_or_makes_it_negative(self) -> None:
        """U and S are independent fair bits, but X = U xor S binds them: K = -ln 2."""
        joint = np.zeros((2, 2, 2))
        for u in range(2):
            for s in range(2):
                joint[u, s, u ^ s] = 0.25
        assert measures.release_bound(joint) == pytest.approx(-math.log(2), rel=1e-14)

    @briefly
    @given(laws(12), st.lists(laws(3), min_size=3, max_size=3))
    def test_every_release_satisfies_it(self, joint: np.ndarray, channel: list[np.ndarray]) -> None:
        """Lemma 3.1: I(S; Q) + I(U; X) - I(U; Q) >= K for every channel from X to Q."""
        usx = joint.reshape(2, 2, 3)
        usq = usx @ np.array(channel)
        leaked = measures.mutual_information(usq.sum(0))
        kept = measures.mutual_information(usq.sum(1))
        censored = measures.mutual_information(usx.sum(1)) - kept
        assert leaked + censored >= measures.release_bound(usx) - 1e-13

    def test_batches(self) -> None:
        joints = np.random.default_rng(2).dirichlet(np.ones(12), size=4).reshape(4, 2, 2, 3)
        alone = [measures.release_bound(joint) for joint in joints]
        np.testing.assert_allclose(measures.release_bound(joints), alone, atol=1e-15)


class TestPrivacyAndNoise:
    @briefly
    @given(st.floats(0, 50), st.floats(0, 1))
    def test_advantage_under_differential_privacy_is_attained(
        self, epsilon: float, delta: float
    ) -> None:
        """The mechanism reveals all with probability delta, or else a biased coin."""
        heads = 1 / (1 + math.exp(-epsilon))
        coin = (1 - delta) * np.array([heads, 1 - heads])
        laws = np.array([[delta, *coin, 0], [0, *coin[::-1], delta]])
        bound = measures.privacy_advantage_bound(epsilon, delta)
        assert bound == pytest.approx(total_variation(*laws), abs=1e-14)

    @briefly
    @given(st.floats(0, 20), st.floats(0.05, 50), st.floats(0.01, 100))
    def test_noise_bound_is_below_every_privacy_bound_of_the_noise(
        self, epsilon: float, sigma: float, sensitivity: float
    ) -> None:
        delta = measures.gaussian_mechanism_delta(epsilon, sigma, sensitivity)
        advantage = measures.gaussian_noise_advantage_bound(sensitivity, sigma)
        assert advantage <= measures.privacy_advantage_bound(epsilon, delta) + 1e-12

    @briefly
    @given(st.floats(0, 10), st.floats(0.1, 10))
    def test_the_noise_bound_is_that_of_two_shifted_gaussians(
        self, sensitivity: float, sigma: float
    ) -> None:
        advantage = measures.gaussian_noise_advantage_bound(sensitivity, sigma)
        assert advantage == pytest.approx(2 * norm.cdf(sensitivity / sigma / 2) - 1, abs=1e-14)

    def test_bounds_without_noise_and_without_sensitivity(self) -> None:
        assert measures.gaussian_noise_advantage_bound(1.0, 0.0) == 1
        assert measures.gaussian_noise_advantage_bound(math.inf, 3.0) == 1
        assert measures.gaussian_noise_advantage_bound(0.0, 0.0) == 0


class TestGaussianMechanism:
    @briefly
    @given(st.floats(0.01, 20), st.floats(1e-12, 0.5))
    def test_agrees_with_dp_accounting(self, epsilon: float, delta: float) -> None:
        from dp_accounting import get_sigma_gaussian

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            expected = get_sigma_gaussian(epsilon, delta, 1e-14)
        found = measures.gaussian_mechanism_sigma(epsilon, delta, 1.0)
        assert found == pytest.approx(expected, rel=1e-10)

    @pytest.mark.parametrize("delta", [1e-300, 1e-12, 0.3, 0.999])
    def test_epsilon_0_has_a_closed_form(self, delta: float) -> None:
        """2 Phi(1/(2 sigma)) - 1 = delta."""
        expected = 1 / (math.sqrt(8) * erfinv(delta))
        found = measures.gaussian_mechanism_sigma(0.0, delta, 1.0)
        assert found == pytest.approx(expected, rel=1e-12)

    @briefly
    @given(st.floats(-15, 6), st.floats(0, 36))
    def test_delta_is_the_expected_excess_of_the_privacy_loss(
        self, log_epsilon: float, start: float
    ) -> None:
        """E[(1 - e^(epsilon - L))+] for L ~ N(1/2s^2, 1/s^2), by adaptive quadrature."""
        epsilon = 10**log_epsilon
        sigma = (start + math.sqrt(start**2 + 2 * epsilon)) / (2 * epsilon)
        x = epsilon * sigma - 1 / (2 * sigma)
        end = 40 / max(x, 4.0)
        integral, _ = quad(
            lambda v: math.exp(-x * v - v * v / 2) * -math.expm1(-v / sigma) * sigma,
            *(0, end),
            epsabs=0,
            epsrel=1e-12,
        )
        expected = norm.logpdf(x) + math.log(integral / sigma)
        found = measures.gaussian_mechanism_delta(epsilon, sigma, 1.0)
        assert math.log(found) == pytest.approx(expected, abs=1e-7)

    @briefly
    @given(st.floats(-12, 12), st.floats(-300, -0.01), st.floats(-6, 6))
    def test_sigma_is_sufficient_and_minimal(
        self, log_epsilon: float, log_delta: float, log_sensitivity: float
    ) -> None:
        epsilon, delta, sensitivity = 10**log_epsilon, 10**log_delta, 10**log_sensitivity
        sigma = measures.gaussian_mechanism_sigma(epsilon, delta, sensitivity)
        assert measures.gaussian_mechanism_delta(epsilon, sigma, sensitivity) <= delta * (1 + 1e-6)
        less = measures.gaussian_mechanism_delta(epsilon, sigma * (1 - 1e-9), sensitivity)
        assert less > delta

    def test_batches_broadcast(self) -> None:
        epsilons, deltas = np.array([[0.1], [1.0], [30.0]]), np.array([1e-9, 1e-3])
        found = measures.gaussian_mechanism_sigma(epsilons, deltas, 2.0)
        alone = [[measures.gaussian_mechanism_sigma(e, d, 2.0) for d in deltas] for [e] in epsilons]
        np.testing.assert_allclose(found, alone, rtol=1e-14)
