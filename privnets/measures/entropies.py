"""Entropies and mutual informations of every order in [0, inf].

arXiv 2310.18241, eq. 1-3. Arimoto's, Sibson's and Rényi's measures are one functional of a joint
table and a density d (see `_tilted`), computed so that no order loses digits: in logarithms away
from 1, by expm1 and log1p near it, and as their limits at 0, 1 and inf. 0 log 0 is 0.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from privnets.measures.arrays import Array, as_given, batch_shape, distribution, order

# Within this of order 1, 1/(1 - alpha) would magnify the rounding of a logarithm.
_NEAR_ONE = 0.25


def renyi_entropy(p: Array, alpha: float) -> Array:
    """Rényi's H_alpha: Hartley's at 0, Shannon's at 1, min-entropy at inf.

    arXiv 2310.18241, eq. 1.

    Args:
        p: Probabilities, shape [..., n].
        alpha: Order, in [0, inf].

    Returns:
        Nats, shape [...], from 0 to log n.

    Raises:
        ValueError: If `p` is no distribution, or `alpha` is negative or NaN.
    """
    answer: Array = as_given(_renyi(distribution(p, "p", ("n",)), order(alpha)), p)
    return answer


def arimoto_conditional_entropy(joint: Array, alpha: float) -> Array:
    """Arimoto's H_alpha(S | Z); at inf, exp(-H) is the accuracy of the best guess of S from Z.

    arXiv 2310.18241, eq. 2.

    Args:
        joint: Probabilities of (S, Z), shape [..., S, Z].
        alpha: Order, in [0, inf].

    Returns:
        Nats, shape [...], from 0 to H_alpha(S).

    Raises:
        ValueError: If `joint` is no distribution, or `alpha` is negative or NaN.
    """
    answer: Array = as_given(
        _arimoto(distribution(joint, "joint", ("S", "Z")), order(alpha)), joint
    )
    return answer


def arimoto_mutual_information(joint: Array, alpha: float) -> Array:
    """Arimoto's I_alpha(S; Z): how far Z lowers the Rényi entropy of S.

    arXiv 2310.18241, eq. 3. Shannon's at 1, the log gain of the best guess at inf; it falls under
    processing of Z, and rises with the order if S is uniform.

    Args:
        joint: Probabilities of (S, Z), shape [..., S, Z].
        alpha: Order, in [0, inf].

    Returns:
        Nats, shape [...], from 0 to H_alpha(S).

    Raises:
        ValueError: If `joint` is no distribution, or `alpha` is negative or NaN.
    """
    table, alpha = distribution(joint, "joint", ("S", "Z")), order(alpha)
    gain = _renyi(table.sum(-1), alpha) - _arimoto(table, alpha)
    answer: Array = as_given(gain.clamp(min=0), joint)
    return answer


def sibson_mutual_information(joint: Array, alpha: float) -> Array:
    """Sibson's I_alpha(S; Z) = alpha/(alpha-1) log sum_z (sum_s p(s) P(z|s)^alpha)^(1/alpha).

    Shannon's at 1; at inf the maximal leakage, log sum_z max_s P(z|s); at 0
    min_z -log p(s: P(z|s) > 0). It never falls as the order rises. With p(s) ~ q(s)^alpha it is
    Arimoto's at q (arXiv 2310.18241, after eq. 3).

    Args:
        joint: Probabilities of (S, Z), shape [..., S, Z].
        alpha: Order, in [0, inf].

    Returns:
        Nats, shape [...].

    Raises:
        ValueError: If `joint` is no distribution, or `alpha` is negative or NaN.
    """
    table, alpha = distribution(joint, "joint", ("S", "Z")), order(alpha)
    secret, seen = table.sum(-1, keepdim=True), table.sum(-2, keepdim=True)
    log_ratio = _log(table) - _log(secret) - _log(seen)
    answer: Array = as_given(_tilted(table, log_ratio, _log(secret), alpha).clamp(min=0), joint)
    return answer


def mutual_information(joint: Array) -> Array:
    """Shannon's I(S; Z).

    Args:
        joint: Probabilities of (S, Z), shape [..., S, Z].

    Returns:
        Nats, shape [...], from 0 to the smaller entropy.

    Raises:
        ValueError: If `joint` is no distribution.
    """
    table = distribution(joint, "joint", ("S", "Z"))
    apart = table.sum(-1, keepdim=True) * table.sum(-2, keepdim=True)
    answer: Array = as_given(divergence(table, apart, (-2, -1)), joint)
    return answer


def kl_divergence(p: Array, q: Array) -> Array:
    """Kullback and Leibler's D(p || q); inf where q misses a part of p.

    Args:
        p: Probabilities, shape [..., n].
        q: Probabilities, shape [..., n]; leading dimensions are broadcast against those of `p`.

    Returns:
        Nats, shape [...], from 0 to inf.

    Raises:
        ValueError: If either is no distribution, or the shapes do not fit.
    """
    first, second = distribution(p, "p", ("n",)), distribution(q, "q", ("n",))
    if first.shape[-1] != second.shape[-1]:
        shapes = f"{list(first.shape)} and {list(second.shape)}"
        raise ValueError(f"p and q must have as many outcomes as each other; got shapes {shapes}.")
    batch_shape(p=first.shape[:-1], q=second.shape[:-1])
    answer: Array = as_given(divergence(first, second, (-1,)), p, q)
    return answer


def divergence(p: Tensor, q: Tensor, dims: tuple[int, ...]) -> Tensor:
    """D(p || q) of tensors that need no checking, over `dims`; keeps its digits when p is near q.

    Each term p log(p/q) - (p - q) is non-negative, and the second parts sum to 0.
    """
    near = (p - q).abs() < q / 2
    by_difference = torch.log1p(torch.where(near, (p - q) / torch.where(near, q, 1), 0))
    by_logarithms = _log(p) - torch.log(torch.where(p > 0, q, 1))
    terms = p * torch.where(near, by_difference, by_logarithms) - (p - q)
    return terms.sum(dims).clamp(min=0)


def _renyi(p: Tensor, alpha: float) -> Tensor:
    table = p.unsqueeze(-1)
    return (-_tilted(table, _log(table), torch.zeros_like(table), alpha)).clamp(min=0)


def _arimoto(joint: Tensor, alpha: float) -> Tensor:
    log_posterior = _log(_posterior(joint))
    return (-_tilted(joint, log_posterior, torch.zeros_like(joint), alpha)).clamp(min=0)


def _tilted(joint: Tensor, log_density: Tensor, log_weight: Tensor, alpha: float) -> Tensor:
    """alpha/(alpha-1) log sum_z p(z) (sum_s w(s,z) d(s,z)^alpha)^(1/alpha), p(s|z) = w d.

    With d = p(s|z) it is minus Arimoto's conditional entropy (Rényi's, for a single z); with
    d = p(s|z) / p(s) it is Sibson's information.

    Args:
        joint: Probabilities, shape [..., S, Z].
        log_density: log d, finite, shape [..., S, Z]; read where `joint` is positive.
        log_weight: log w, likewise, broadcast.
        alpha: Order.
    """
    if alpha == 1:
        return (joint * log_density).sum((-2, -1))
    if abs(alpha - 1) < _NEAR_ONE:
        return _tilted_near_one(joint, log_density, alpha)
    if alpha > 1:
        return _tilted_above_one(joint, log_density, log_weight, alpha)
    return _tilted_below_one(joint, log_density, log_weight, alpha)


def _tilted_near_one(joint: Tensor, log_density: Tensor, alpha: float) -> Tensor:
    powers = torch.expm1((alpha - 1) * log_density)
    inner = torch.log1p((_posterior(joint) * powers).sum(-2)) / alpha
    outer = torch.log1p((joint.sum(-2) * torch.expm1(inner)).sum(-1))
    return alpha / (alpha - 1) * outer


def _tilted_above_one(
    joint: Tensor, log_density: Tensor, log_weight: Tensor, alpha: float
) -> Tensor:
    support, seen = joint > 0, joint.sum(-2)
    inner = _largest(log_density, support, -2)
    if not math.isinf(alpha):
        below = alpha * (log_density - inner.unsqueeze(-2))
        inner = inner + _log_sum(log_weight + below, support, -2) / alpha
    return _log_sum(_log(seen) + inner, seen > 0, -1) / (1 - 1 / alpha)


def _tilted_below_one(
    joint: Tensor, log_density: Tensor, log_weight: Tensor, alpha: float
) -> Tensor:
    # Inner logarithms stay multiplied by alpha, or they would overflow as it falls to 0.
    support, seen = joint > 0, joint.sum(-2)
    inner = alpha * _log(seen) + _log_sum(log_weight + alpha * log_density, support, -2)
    top = _largest(inner, seen > 0, -1)
    if alpha == 0:
        return -top
    rest = _log_sum((inner - top.unsqueeze(-1)) / alpha, seen > 0, -1)
    return -(top + alpha * rest) / (1 - alpha)


def _posterior(joint: Tensor) -> Tensor:
    """p(s | z), zero where z has no mass."""
    seen = joint.sum(-2, keepdim=True)
    return joint / torch.where(seen > 0, seen, 1)


def _log(values: Tensor) -> Tensor:
    """Logarithm, 0 at 0: for factors that are 0 or masked there."""
    return torch.log(torch.where(values > 0, values, 1))


def _largest(values: Tensor, mask: Tensor, dim: int) -> Tensor:
    """Maximum where `mask` holds; 0 where it holds nowhere."""
    top = torch.where(mask, values, -math.inf).amax(dim)
    return torch.where(mask.any(dim), top, 0)


def _log_sum(exponents: Tensor, mask: Tensor, dim: int) -> Tensor:
    """Log of the sum of exponentials where `mask` holds; 0 where it holds nowhere."""
    top = _largest(exponents, mask, dim).detach()
    masked = torch.where(mask, exponents, -math.inf)
    return _log(torch.exp(masked - top.unsqueeze(dim)).sum(dim)) + top
