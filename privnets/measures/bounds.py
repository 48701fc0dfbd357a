"""Bounds on leakage: of a release, of membership, and under Gaussian noise.

arXiv 2001.10648, section 4 (theorem 1 and the noise corollary corrected); lemma 3.1 of "Learning
data-derived privacy preserving representations"; Balle and Wang, arXiv 1805.06530. An advantage is
a true-positive rate minus a false-positive rate. Neighbouring data sets differ in one replaced
record, as training sets with and without a record do if they have equal sizes.
"""

from __future__ import annotations

import math

import torch
from numpy.polynomial.legendre import leggauss
from torch import Tensor

from privnets.measures.arrays import (
    Array,
    Number,
    as_given,
    batch_shape,
    distribution,
    in_range,
)
from privnets.measures.entropies import divergence

_NEWTON_STEPS = 10
_HALVINGS = 80
_NODES, _WEIGHTS = leggauss(12)


def release_bound(joint_usx: Array) -> Array:
    """Lower bound K = I(U; S) - I(U; S | X) on I(S; Q) + I(U; X | Q) for any release Q of X.

    Lemma 3.1. The bound is empty if it is negative.

    Args:
        joint_usx: Probabilities of utility U, secret S and data X, shape [..., U, S, X].

    Returns:
        Nats, shape [...], possibly negative.
    """
    table = distribution(joint_usx, "joint_usx", ("U", "S", "X"))
    pair = table.sum(-1)
    independent = pair.sum(-1, keepdim=True) * pair.sum(-2, keepdim=True)
    data = table.sum((-3, -2), keepdim=True)
    utility, secret = table.sum(-2, keepdim=True), table.sum(-3, keepdim=True)
    conditional = utility * (secret / torch.where(data > 0, data, 1))
    bound = divergence(pair, independent, (-2, -1)) - divergence(table, conditional, (-3, -2, -1))
    return as_given(bound, joint_usx)


def membership_advantage_bound(rho_kl: Number) -> Number:
    """Largest advantage A of any membership attack: 4 A atanh(A) = rho_KL.

    Sharp form of theorem 1 of arXiv 2001.10648, whose printed form is wrong at rho_KL = 0. The
    Jeffreys divergence of two distributions with total variation V is at least 4 V atanh(V), with
    equality for ((1 + V)/2, (1 - V)/2) and its mirror image. This function is convex, so the mean
    divergence also bounds the mean advantage over records. Looser bounds are sqrt(rho_KL)/2, the
    limit for small rho_KL, and sqrt(1 - exp(-rho_KL/2)). With prior 1/2, a guess is correct with
    probability at most (1 + A)/2.

    Args:
        rho_kl: Mean Jeffreys divergence between the distributions with and without the record, in
            nats, in [0, inf].

    Returns:
        In [0, 1].
    """
    divergences = in_range(rho_kl, "rho_kl", 0, math.inf)
    # With A = tanh(t) the equation is sqrt(t tanh(t)) = sqrt(rho)/2, nearly linear for small rho;
    # A rounds to 1 for t >= 20.
    root = (divergences.sqrt() / 2).clamp(max=math.sqrt(20))
    with torch.no_grad():
        t = torch.maximum(root, root.square())
        for _ in range(_NEWTON_STEPS):
            t = _newton(t, root)
    # Another step, from a constant t, has the derivative of the inverse function.
    return as_given(torch.tanh(_newton(t, root)), rho_kl)


def privacy_advantage_bound(epsilon: Number | float, delta: Number | float) -> Number:
    """Largest advantage of an attack on an (epsilon, delta)-private mechanism.

    (e^epsilon - 1 + 2 delta) / (e^epsilon + 1), which is attained by a mechanism.

    Args:
        epsilon: In [0, inf].
        delta: In [0, 1]; broadcast against `epsilon`.

    Returns:
        In [0, 1].
    """
    budget = in_range(epsilon, "epsilon", 0, math.inf)
    failure = in_range(delta, "delta", 0, 1)
    batch_shape(epsilon=budget.shape, delta=failure.shape)
    bound = torch.tanh(budget / 2) + 2 * failure * torch.sigmoid(-budget)
    return as_given(bound, epsilon, delta)


def gaussian_noise_advantage_bound(sensitivity: Number | float, sigma: Number | float) -> Number:
    """Largest advantage with added noise N(0, sigma^2 I): 2 Phi(sensitivity / 2 sigma) - 1.

    Args:
        sensitivity: Largest L2 change of the parameters by replacing one record, in [0, inf].
        sigma: Standard deviation of the noise, in [0, inf); broadcast against `sensitivity`.

    Returns:
        In [0, 1]; without noise 1, or 0 if the sensitivity is 0.
    """
    shift = in_range(sensitivity, "sensitivity", 0, math.inf)
    noise = in_range(sigma, "sigma", 0, math.inf, open_high=True)
    batch_shape(sensitivity=shift.shape, sigma=noise.shape)
    distance = torch.where(shift > 0, shift / torch.where(shift > 0, noise, 1), 0)
    return as_given(torch.erf(distance / math.sqrt(8)), sensitivity, sigma)


def gaussian_mechanism_sigma(
    epsilon: Number | float, delta: Number | float, sensitivity: Number | float
) -> Number:
    """Smallest noise of an (epsilon, delta)-private release: analytic Gaussian mechanism.

    Balle and Wang, arXiv 1805.06530. Valid for every epsilon, while the classical
    sqrt(2 ln(1.25/delta)) sensitivity / epsilon is proved only for epsilon < 1. Not
    differentiable: the result comes from bisection.

    Args:
        epsilon: In [0, inf).
        delta: In (0, 1).
        sensitivity: L2 sensitivity of the released value, in [0, inf).

    Returns:
        Standard deviation in the units of `sensitivity`; arguments are broadcast.
    """
    budget = in_range(epsilon, "epsilon", 0, math.inf, open_high=True)
    failure = in_range(delta, "delta", 0, 1, open_low=True, open_high=True)
    scale = in_range(sensitivity, "sensitivity", 0, math.inf, open_high=True)
    batch_shape(epsilon=budget.shape, delta=failure.shape, sensitivity=scale.shape)
    with torch.no_grad():  # bisects at sensitivity 1, geometrically at first
        target = failure.log()
        low = torch.full_like(budget + failure, 1e-300)
        high = torch.full_like(low, 1e308)
        for _ in range(_HALVINGS):
            middle = torch.where(high > 2 * low, low.sqrt() * high.sqrt(), low + (high - low) / 2)
            is_private = _log_delta(budget, middle) <= target
            low = torch.where(is_private, low, middle)
            high = torch.where(is_private, middle, high)
    return as_given(scale * high, epsilon, delta, sensitivity)


def gaussian_mechanism_delta(
    epsilon: Number | float, sigma: Number | float, sensitivity: Number | float
) -> Number:
    """Smallest delta for which added noise N(0, sigma^2 I) is (epsilon, delta)-private.

    Phi(D/2s - epsilon s/D) - e^epsilon Phi(-D/2s - epsilon s/D), with D the sensitivity and s
    sigma (Balle and Wang, arXiv 1805.06530, theorem 8).

    Args:
        epsilon: In [0, inf).
        sigma: Standard deviation of the noise, in (0, inf).
        sensitivity: L2 sensitivity of the released value, in (0, inf).

    Returns:
        In [0, 1]; arguments are broadcast.
    """
    budget = in_range(epsilon, "epsilon", 0, math.inf, open_high=True)
    noise = in_range(sigma, "sigma", 0, math.inf, open_low=True, open_high=True)
    scale = in_range(sensitivity, "sensitivity", 0, math.inf, open_low=True, open_high=True)
    batch_shape(epsilon=budget.shape, sigma=noise.shape, sensitivity=scale.shape)
    return as_given(_log_delta(budget, noise / scale).exp(), epsilon, sigma, sensitivity)


def _newton(t: Tensor, root: Tensor) -> Tensor:
    """One Newton step for sqrt(t tanh(t)) = root; the left side is concave, so none overshoots."""
    tanh = torch.tanh(t)
    value = t.sqrt() * tanh.sqrt()
    slope = (tanh + t * (1 - tanh.square())) / (2 * torch.where(t > 0, value, 1))
    return t - (value - root) / torch.where(t > 0, slope, 1)


def _log_delta(epsilon: Tensor, sigma: Tensor) -> Tensor:
    """Logarithm of the smallest delta at sensitivity 1.

    With x = epsilon sigma - 1/(2 sigma), h = 1/sigma, normal density phi and Mills' ratio m:
    delta = Phi(-x) - phi(x) m(x + h), since e^epsilon phi(x + h) = phi(x). For small h the two
    terms cancel; then delta is phi(x) times the integral of -m' = 1 - t m(t) from x to x + h.
    """
    step = 1 / sigma
    start = epsilon * sigma - step / 2
    # Beyond 60, phi(x) alone makes delta 0 in float64.
    bounded = start.clamp(max=60)
    log_density = -start.square() / 2 - math.log(2 * math.pi) / 2
    # m(x) - m(x + h) by quadrature, for x >= -1/2 and h <= 1.
    width = step.clamp(max=1)
    nodes, weights = bounded.new_tensor((_NODES + 1) / 2), bounded.new_tensor(_WEIGHTS / 2)
    t = bounded.clamp(min=-0.5).unsqueeze(-1) + width.unsqueeze(-1) * nodes
    decrease = width * ((1 - t * _mills(t)) * weights).sum(-1)
    by_integral = log_density + decrease.log()
    tail = torch.special.log_ndtr(-bounded)
    near = -bounded.square() / 2 - math.log(2 * math.pi) / 2 - tail
    ratio = torch.exp(near) * _mills(epsilon * sigma + step / 2)
    by_tails = torch.special.log_ndtr(-start) + torch.log1p(-ratio.clamp(max=1))
    return torch.where(step <= 1, by_integral, by_tails)


def _mills(x: Tensor) -> Tensor:
    """Mills' ratio of the standard Gaussian, Phi(-x) / phi(x)."""
    scaled: Tensor = torch.special.erfcx(x / math.sqrt(2))
    return math.sqrt(math.pi / 2) * scaled
