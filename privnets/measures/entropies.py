"""Entropies and mutual informations of every order in [0, inf].

arXiv 2310.18241, eq. 1-3. The measures of Arimoto, Sibson and Rényi are one functional of a joint
table and a density d (see `_power_mean`). It is accurate at every order: computed by logarithms
away from 1, by expm1 and log1p near 1, and as the limit at 0, 1 and inf. 0 log 0 is 0.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from privnets.measures.arrays import Array, as_given, batch_shape, distribution, order

# Nearer to order 1, the factor 1/(1 - alpha) would amplify the rounding of a logarithm.
_NEAR_ONE = 0.25


def renyi_entropy(p: Array, alpha: float) -> Array:
    """Rényi entropy H_alpha: Hartley entropy at 0, Shannon entropy at 1, min-entropy at inf.

    arXiv 2310.18241, eq. 1.

    Args:
        p: Probabilities, shape [..., n].
        alpha: Order, in [0, inf].

    Returns:
        Nats, shape [...], from 0 to log n.
    """
    return as_given(_renyi(distribution(p, "p", ("n",)), order(alpha)), p)


def arimoto_conditional_entropy(joint: Array, alpha: float) -> Array:
    """Arimoto conditional entropy H_alpha(S | Z); at inf, exp(-H) is the best guess's accuracy.

    arXiv 2310.18241, eq. 2.

    Args:
        joint: Probabilities of (S, Z), shape [..., S, Z].
        alpha: Order, in [0, inf].

    Returns:
        Nats, shape [...], from 0 to H_alpha(S).
    """
    return as_given(_arimoto(distribution(joint, "joint", ("S", "Z")), order(alpha)), joint)


def arimoto_mutual_information(joint: Array, alpha: float) -> Array:
    """Arimoto mutual information I_alpha(S; Z): the reduction of the Rényi entropy of S by Z.

    arXiv 2310.18241, eq. 3. Shannon mutual information at 1, min-entropy leakage at inf. It does
    not increase under processing of Z, and increases with the order if S is uniform.

    Args:
        joint: Probabilities of (S, Z), shape [..., S, Z].
        alpha: Order, in [0, inf].

    Returns:
        Nats, shape [...], from 0 to H_alpha(S).
    """
    table, alpha = distribution(joint, "joint", ("S", "Z")), order(alpha)
    gain = _renyi(table.sum(-1), alpha) - _arimoto(table, alpha)
    return as_given(gain.clamp(min=0), joint)


def sibson_mutual_information(joint: Array, alpha: float) -> Array:
    """Sibson mutual information I_alpha(S; Z), of order alpha.

    alpha/(alpha-1) log sum_z (sum_s p(s) P(z|s)^alpha)^(1/alpha). Shannon mutual information at 1,
    maximal leakage log sum_z max_s P(z|s) at inf, and min_z -log p(s: P(z|s) > 0) at 0. It does
    not decrease with the order. For p(s) ~ q(s)^alpha it is the Arimoto mutual information at q
    (arXiv 2310.18241, after eq. 3).

    Args:
        joint: Probabilities of (S, Z), shape [..., S, Z].
        alpha: Order, in [0, inf].

    Returns:
        Nats, shape [...].
    """
    table, alpha = distribution(joint, "joint", ("S", "Z")), order(alpha)
    secret, seen = table.sum(-1, keepdim=True), table.sum(-2, keepdim=True)
    log_ratio = _log(table) - _log(secret) - _log(seen)
    return as_given(_power_mean(table, log_ratio, _log(secret), alpha).clamp(min=0), joint)


def mutual_information(joint: Array) -> Array:
    """Shannon mutual information I(S; Z).

    Args:
        joint: Probabilities of (S, Z), shape [..., S, Z].

    Returns:
        Nats, shape [...], from 0 to the smaller entropy.
    """
    table = distribution(joint, "joint", ("S", "Z"))
    apart = table.sum(-1, keepdim=True) * table.sum(-2, keepdim=True)
    return as_given(divergence(table, apart, (-2, -1)), joint)


def kl_divergence(p: Array, q: Array) -> Array:
    """Kullback-Leibler divergence D(p || q); inf if q is 0 where p is positive.

    Args:
        p: Probabilities, shape [..., n].
        q: Probabilities, shape [..., n]; leading dimensions are broadcast against those of `p`.

    Returns:
        Nats, shape [...], from 0 to inf.
    """
    first, second = distribution(p, "p", ("n",)), distribution(q, "q", ("n",))
    if first.shape[-1] != second.shape[-1]:
        shapes = f"{list(first.shape)} and {list(second.shape)}"
        raise ValueError(f"p and q must have as many outcomes as each other; got shapes {shapes}.")
    batch_shape(p=first.shape[:-1], q=second.shape[:-1])
    return as_given(divergence(first, second, (-1,)), p, q)


def divergence(p: Tensor, q: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Computes D(p || q) of validated tensors over `dims`; accurate also for p near q.

    Each term p log(p/q) - (p - q) is non-negative, and the differences sum to 0.
    """
    near = (p - q).abs() < q / 2
    by_difference = torch.log1p(torch.where(near, (p - q) / torch.where(near, q, 1), 0))
    by_logarithms = _log(p) - torch.log(torch.where(p > 0, q, 1))
    terms = p * torch.where(near, by_difference, by_logarithms) - (p - q)
    return terms.sum(dims).clamp(min=0)


def _renyi(p: Tensor, alpha: float) -> Tensor:
    table = p.unsqueeze(-1)
    return (-_power_mean(table, _log(table), torch.zeros_like(table), alpha)).clamp(min=0)


def _arimoto(joint: Tensor, alpha: float) -> Tensor:
    log_posterior = _log(_posterior(joint))
    return (-_power_mean(joint, log_posterior, torch.zeros_like(joint), alpha)).clamp(min=0)


def _power_mean(joint: Tensor, log_density: Tensor, log_weight: Tensor, alpha: float) -> Tensor:
    """Computes alpha/(alpha-1) log sum_z p(z) (sum_s w(s,z) d(s,z)^alpha)^(1/alpha), p(s|z) = w d.

    With d = p(s|z) it is minus the Arimoto conditional entropy (for one z, the Rényi entropy);
    with d = p(s|z) / p(s) it is the Sibson mutual information.
    """
    if alpha == 1:
        return (joint * log_density).sum((-2, -1))
    support, seen = joint > 0, joint.sum(-2)
    if abs(alpha - 1) < _NEAR_ONE:
        powers = torch.expm1((alpha - 1) * log_density)
        inner = torch.log1p((_posterior(joint) * powers).sum(-2)) / alpha
        outer = torch.log1p((seen * torch.expm1(inner)).sum(-1))
        return alpha / (alpha - 1) * outer
    if alpha > 1:
        inner = _largest(log_density, support, -2)
        if not math.isinf(alpha):
            below = alpha * (log_density - inner.unsqueeze(-2))
            inner = inner + _log_sum(log_weight + below, support, -2) / alpha
        return _log_sum(_log(seen) + inner, seen > 0, -1) / (1 - 1 / alpha)
    # Inner logarithms keep the factor alpha, since they would overflow for alpha near 0.
    inner = alpha * _log(seen) + _log_sum(log_weight + alpha * log_density, support, -2)
    top = _largest(inner, seen > 0, -1)
    if alpha == 0:
        return -top
    rest = _log_sum((inner - top.unsqueeze(-1)) / alpha, seen > 0, -1)
    return -(top + alpha * rest) / (1 - alpha)


def _posterior(joint: Tensor) -> Tensor:
    """Posterior p(s | z); 0 where p(z) = 0."""
    seen = joint.sum(-2, keepdim=True)
    return joint / torch.where(seen > 0, seen, 1)


def _log(values: Tensor) -> Tensor:
    """Logarithm with value 0 at 0, for factors that are 0 or masked there."""
    return torch.log(torch.where(values > 0, values, 1))


def _largest(values: Tensor, mask: Tensor, dim: int) -> Tensor:
    """Maximum over masked entries; 0 if there are none."""
    top = torch.where(mask, values, -math.inf).amax(dim)
    return torch.where(mask.any(dim), top, 0)


def _log_sum(exponents: Tensor, mask: Tensor, dim: int) -> Tensor:
    """Logarithm of the sum of exponentials of masked entries; 0 if there are none."""
    top = _largest(exponents, mask, dim).detach()
    masked = torch.where(mask, exponents, -math.inf)
    return _log(torch.exp(masked - top.unsqueeze(dim)).sum(dim)) + top
