"""Exact information of a linear filter about two correlated bits.

Section 7.2 of "Learning data-derived privacy preserving representations" (ICLR 2019 submission),
with eq. 20 corrected. A useful bit U and a secret bit S give data X ~ N((U, S), 0.05^2 I) in the
plane. A filter releases Q = theta X + z with z ~ N(0, sigma^2 I). Given both bits (a *cell*), Q is
Gaussian with the same covariance for all cells. So a whitened Q is a mixture of at most four unit
Gaussians, and every mutual information is a smooth integral in two dimensions.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Generic, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.measures.arrays import (
    Array,
    Number,
    as_given,
    batch_shape,
    distribution,
    in_range,
    real,
)

DATA_STD = 0.05
"""Standard deviation of each coordinate of X around its bit."""

# Trapezoidal rule around each cell. Posteriors are analytic within pi / d of the line halfway to a
# cell at distance d, where the density is at most exp(-d^2 / 8). So the error, at most
# exp(-2 pi^2 / (d h) - d^2 / 8), is below 3e-8 at any distance.
_STEP, _RADIUS = 0.25, 7.0
_ROUGH_STEP, _ROUGH_RADIUS = 0.7, 5.0

_MAX_NODES = 2**17  # nodes of all filters in one chunk, so that it fits a cache

# Steps from cells (0, 0), (0, 1), (1, 0) and (1, 1) to the other value of U, and of S.
_STEPS = torch.tensor([[1, 1], [1, -1], [-1, 1], [-1, -1]])
_CELLS = torch.arange(4)


class FilterInformation(NamedTuple, Generic[Array]):
    """Mutual informations of a release Q, in nats.

    Attributes:
        leakage: I(S;Q).
        utility: I(U;Q).
        censored: I(U;X|Q) = I(U;X) - I(U;Q), the utility that the release loses.
    """

    leakage: Array
    utility: Array
    censored: Array


def joint_us(dependence: Number) -> Any:
    """Joint distribution of the useful and the secret bit, fair ones with P(U=1, S=1) = k / 4.

    Eq. 20, whose last case must be (0, 0).

    Args:
        dependence: Dependence k, in [0, 2], shape [...]; the bits are independent for k = 1.

    Returns:
        Probabilities of (U, S), shape [..., 2, 2]: a tensor for a tensor, else an array.
    """
    k = in_range(dependence, "dependence", 0, 2)
    cells = [k / 4, 0.5 - k / 4, 0.5 - k / 4, k / 4]
    joint = torch.stack(cells, dim=-1).view(*k.shape, 2, 2)
    return joint if isinstance(dependence, Tensor) else joint.numpy()


def filter_information(
    theta: Array, sigma: Tensor | NDArray[Any] | float, joint: Tensor | NDArray[Any]
) -> FilterInformation[Array]:
    """Computes the information of Q = theta X + z about both bits, accurate to 1e-7 nats.

    The identity with sigma = 0 releases X, so its leakage is I(S;X) and its utility I(U;X).
    Differentiable where sigma is positive.

    Args:
        theta: Finite, shape [..., 2, 2]; acts on columns (U's coordinate, S's coordinate).
        sigma: Standard deviation of z, in [0, inf), shape [...].
        joint: Probabilities of (U, S), shape [..., 2, 2]; neither bit may be constant.

    Returns:
        Three values of shape [...]; leading dimensions are broadcast.
    """
    matrix, noise = real(theta, "theta"), in_range(sigma, "sigma", 0, math.inf, open_high=True)
    if matrix.isinf().any():
        raise ValueError("theta must be finite; got inf.")
    if matrix.shape[-2:] != (2, 2):
        raise ValueError(f"theta must have shape [..., 2, 2]; got {list(matrix.shape)}.")
    cells = distribution(joint, "joint", ("U", "S"))
    if cells.shape[-2:] != (2, 2):
        raise ValueError(f"joint must have shape [..., 2, 2]; got {list(cells.shape)}.")
    if (cells.sum(-1) <= 0).any() or (cells.sum(-2) <= 0).any():
        raise ValueError("joint must have two values of positive probability for each bit.")
    batch_shape(theta=matrix.shape[:-2], sigma=noise.shape, joint=cells.shape[:-2])
    utility_left, secret_left = conditional_entropies(whiten(matrix, noise), cells)
    utility, secret = _entropy(cells.sum(-1)), _entropy(cells.sum(-2))
    # X determines both bits up to 1e-20 nats, so I(U;X|Q) is H(U|Q).
    values = (secret - secret_left).clamp(min=0), (utility - utility_left).clamp(min=0)
    leakage, useful = (as_given(value, theta) for value in values)
    return FilterInformation(leakage, useful, as_given(utility_left, theta))


def whiten(theta: Tensor, sigma: Tensor) -> Tensor:
    """Computes the filter M with standard noise: M'M = theta' C^-1 theta.

    C = DATA_STD^2 theta theta' + sigma^2 I is the covariance of Q within a cell. M is the inverse
    Cholesky factor of C times theta; differences that would cancel for large theta are written as
    determinants. If C is singular, M acts on its range.

    Args:
        theta: Shape [..., 2, 2].
        sigma: Shape [...], broadcast.

    Returns:
        Shape [..., 2, 2]; its singular values are at most 1 / DATA_STD.
    """
    # The order of rows matters only for sigma = 0, where the second may be 0.
    swap = (theta[..., 0, :].norm(dim=-1) < theta[..., 1, :].norm(dim=-1))[..., None]
    first = torch.where(swap, theta[..., 1, :], theta[..., 0, :])
    second = torch.where(swap, theta[..., 0, :], theta[..., 1, :])
    spread, noise = DATA_STD**2, sigma.square()[..., None]
    turned = torch.stack([-first[..., 1], first[..., 0]], dim=-1)
    volume = (turned * second).sum(-1, keepdim=True)
    variance = spread * first.square().sum(-1, keepdim=True) + noise
    squares = theta.square().sum((-2, -1))[..., None]
    determinant = (spread * volume).square() + spread * noise * squares + noise.square()
    rest = noise * second + spread * volume * turned
    upper, lower = _divide_by_root(first, variance), _divide_by_root(rest, variance * determinant)
    return torch.stack([upper, lower], dim=-2)


def conditional_entropies(
    means: Tensor, joint: Tensor, *, rough: bool = False
) -> tuple[Tensor, Tensor]:
    """Computes H(U|Q) and H(S|Q) for Q ~ N(means (U, S)', I).

    Args:
        means: Shape [..., d, 2] for a release in d dimensions, 1 or 2.
        joint: Probabilities of (U, S), shape [..., 2, 2].
        rough: Whether to use fewer nodes: twenty times as fast, and accurate enough to compare
            filters that differ by more than 1e-3 nats.

    Returns:
        Nats, each of shape [...].
    """
    batch, shape = batch_shape(means=means.shape[:-2], joint=joint.shape[:-2]), means.shape[-2:]
    flat_means = means.expand(*batch, *shape).reshape(-1, *shape)
    cells = joint.expand(*batch, 2, 2).reshape(-1, 2, 2)
    rule = _rule(means.device, rough, shape[0])
    count = max(1, _MAX_NODES // len(rule[0]))
    chunks = [slice(i, i + count) for i in range(0, max(len(flat_means), 1), count)]
    parts = [_integrate(flat_means[chunk], cells[chunk], *rule) for chunk in chunks]
    utility, secret = torch.cat(parts, dim=1).view(2, *batch)
    return utility, secret


def _integrate(means: Tensor, joint: Tensor, nodes: Tensor, weights: Tensor) -> Tensor:
    """Integrates H(U|Q) and H(S|Q), shape [2, b], for means [b, d, 2] and joint [b, 2, 2].

    Relative to the density of one cell, that of the cell at offset d is exp(-d'n - d'd / 2) at
    node n. That of the cell at offset d + e is the product of those at d and e, times exp(-d'e).
    All values are in the range of float64, since M amplifies by at most 1 / DATA_STD.
    """
    # Flipping both bits leaves a symmetric distribution unchanged: two cells suffice.
    mirrored = bool((joint == joint.flip(-2, -1)).all())
    count = 2 if mirrored else 4
    steps, numbers = _STEPS[:count].to(means), _CELLS[:count].to(means.device)
    mass = joint.flatten(-2)
    to_utility, to_secret = (means[:, None, :, bit] * steps[:, bit, None] for bit in (0, 1))
    cross = torch.exp(-(to_utility * to_secret).sum(-1))[..., None]
    utility, secret = (  # density at offset `to`, relative to that at 0, at nodes [b, cells, n]
        torch.exp(-(to @ nodes.mT) - to.square().sum(-1, keepdim=True) / 2)
        for to in (to_utility, to_secret)
    )
    both = utility * secret * (mass[:, numbers ^ 3][..., None] * cross)
    utility = utility * mass[:, numbers ^ 2][..., None]
    secret = secret * mass[:, numbers ^ 1][..., None]
    own = mass[:, numbers]
    safe = torch.where(own > 0, own, 1)[..., None]  # an empty cell has weight 0
    utility_left = (torch.log1p((utility + both) / (safe + secret)) @ weights * own).sum(-1)
    secret_left = (torch.log1p((secret + both) / (safe + utility)) @ weights * own).sum(-1)
    return torch.stack([utility_left, secret_left]) * (2 if mirrored else 1)


@cache
def _rule(device: torch.device, rough: bool, dimensions: int) -> tuple[Tensor, Tensor]:
    """Nodes [n, d] and weights [n] of the mean over a standard Gaussian in d dimensions."""
    step, radius = (_ROUGH_STEP, _ROUGH_RADIUS) if rough else (_STEP, _RADIUS)
    line = torch.arange(-radius, radius + step / 2, step, dtype=torch.float64)
    nodes = torch.cartesian_prod(*[line] * dimensions).view(-1, dimensions)
    squares = nodes.square().sum(-1)
    inside = squares <= radius**2
    weights = torch.exp(-squares[inside] / 2)
    return nodes[inside].to(device), (weights / weights.sum()).to(device)


def _entropy(p: Tensor) -> Tensor:
    entropy: Tensor = torch.special.entr(p).sum(-1)
    return entropy


def _divide_by_root(row: Tensor, square: Tensor) -> Tensor:
    """Divides a row by the root of `square`; 0 where that is 0, since the row is 0 there."""
    positive = square > 0
    return torch.where(positive, row / torch.where(positive, square, 1).sqrt(), 0)
