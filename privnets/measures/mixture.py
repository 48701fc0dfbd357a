"""Exact information of a linear filter about two correlated bits.

Section 7.2 of "Learning data-derived privacy preserving representations" (ICLR 2019 submission),
its eq. 20 corrected. A useful bit U and a secret bit S give data X ~ N((U, S), 0.05^2 I) in the
plane; a filter releases Q = theta X + z with z ~ N(0, sigma^2 I). Given the bits Q is Gaussian
with one covariance for all four cells, so that a whitened Q is a mixture of at most four unit
Gaussians, and every information is a smooth integral in two dimensions.
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

# The trapezoidal rule around each cell: posteriors are analytic within pi / d of the line halfway
# to a cell at distance d, and that line carries exp(-d^2 / 8) of the mass, so that the error, at
# most exp(-2 pi^2 / (d h) - d^2 / 8), is below 3e-8 at any distance.
_STEP, _RADIUS = 0.25, 7.0
_ROUGH_STEP, _ROUGH_RADIUS = 0.7, 5.0

_AT_ONCE = 2**17  # nodes of all filters together; what they take stays in a cache

# Of cells (0, 0), (0, 1), (1, 0) and (1, 1): the way to the other value of U, and of S.
_STEPS = torch.tensor([[1, 1], [1, -1], [-1, 1], [-1, -1]])
_CELLS = torch.arange(4)


class FilterInformation(NamedTuple, Generic[Array]):
    """What a release Q tells, in nats.

    Attributes:
        leakage: I(S;Q).
        utility: I(U;Q).
        censored: I(U;X|Q) = I(U;X) - I(U;Q), what the data tell of U and the release does not.
    """

    leakage: Array
    utility: Array
    censored: Array


def joint_us(dependence: Number, utility_rate: float = 0.5, secret_rate: float = 0.5) -> Any:
    """Joint law of the useful and the secret bit, P(U=1, S=1) = k P(U=1) P(S=1).

    Eq. 20, whose last case is (0, 0).

    Args:
        dependence: k, shape [...]; 1 makes the bits independent.
        utility_rate: P(U=1), in (0, 1).
        secret_rate: P(S=1), in (0, 1).

    Returns:
        Probabilities of (U, S), shape [..., 2, 2]: a tensor for a tensor, else an array.

    Raises:
        ValueError: If a rate is out of its range, or no law has this k.
    """
    utility = float(in_range(utility_rate, "utility_rate", 0, 1, open_low=True, open_high=True))
    secret = float(in_range(secret_rate, "secret_rate", 0, 1, open_low=True, open_high=True))
    low = max(0.0, (utility + secret - 1) / (utility * secret))
    k = in_range(dependence, "dependence", low, min(1 / utility, 1 / secret))
    both = k * (utility * secret)
    cells = [1 - utility - secret + both, secret - both, utility - both, both]
    joint = torch.stack(cells, dim=-1).clamp(min=0).view(*k.shape, 2, 2)
    return joint if isinstance(dependence, Tensor) else joint.numpy()


def filter_information(
    theta: Array, sigma: Tensor | NDArray[Any] | float, joint: Tensor | NDArray[Any]
) -> FilterInformation[Array]:
    """Information of Q = theta X + z about both bits, exact to 1e-7 nats.

    The identity at sigma 0 releases X: its leakage is I(S;X), its utility I(U;X). Differentiable
    where sigma is positive.

    Args:
        theta: Finite, shape [..., 2, 2]; acts on columns (U's coordinate, S's coordinate).
        sigma: Standard deviation of z, in [0, inf), shape [...].
        joint: Probabilities of (U, S), shape [..., 2, 2], both bits random.

    Returns:
        Three values of shape [...], leading dimensions broadcast.

    Raises:
        ValueError: If a shape or value is out of its range.
    """
    matrix, noise = _matrix(theta), in_range(sigma, "sigma", 0, math.inf, open_high=True)
    cells = _cells(joint)
    batch_shape(theta=matrix.shape[:-2], sigma=noise.shape, joint=cells.shape[:-2])
    utility_left, secret_left = conditional_entropies(whitened(matrix, noise), cells)
    utility, secret = _entropy(cells.sum(-1)), _entropy(cells.sum(-2))
    # X tells the bits apart but for 1e-20 nats, so that I(U;X|Q) is H(U|Q).
    values = (secret - secret_left).clamp(min=0), (utility - utility_left).clamp(min=0)
    leakage, kept = (as_given(value, theta) for value in values)
    return FilterInformation(leakage, kept, as_given(utility_left, theta))


def whitened(theta: Tensor, sigma: Tensor) -> Tensor:
    """The filter after which noise is standard: M with M'M = theta' C^-1 theta.

    C = DATA_STD^2 theta theta' + sigma^2 I is the covariance of Q within a cell. M is C's inverse
    Cholesky factor times theta, with the differences that would cancel for large theta put as
    determinants; where C is singular it acts on its range.

    Args:
        theta: Shape [..., 2, 2].
        sigma: Shape [...], broadcast.

    Returns:
        Shape [..., 2, 2]; its singular values are at most 1 / DATA_STD.
    """
    # Which row comes first matters to sigma = 0 alone, where the second may be 0.
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
    upper, lower = _divided(first, variance), _divided(rest, variance * determinant)
    return torch.stack([upper, lower], dim=-2)


def conditional_entropies(
    means: Tensor, joint: Tensor, *, rough: bool = False
) -> tuple[Tensor, Tensor]:
    """H(U|Q) and H(S|Q) where Q is standard Gaussian around means (U, S)'.

    Args:
        means: Shape [..., d, 2] for a release in d dimensions, 1 or 2.
        joint: Probabilities of (U, S), shape [..., 2, 2].
        rough: Whether to be twenty times as quick, which is good enough to compare filters by
            differences above 1e-3 nats.

    Returns:
        Nats, each of shape [...].
    """
    batch, shape = batch_shape(means=means.shape[:-2], joint=joint.shape[:-2]), means.shape[-2:]
    places = means.expand(*batch, *shape).reshape(-1, *shape)
    cells = joint.expand(*batch, 2, 2).reshape(-1, 2, 2)
    rule = _rule(means.device, rough, shape[0])
    count = max(1, _AT_ONCE // len(rule[0]))
    chunks = [slice(i, i + count) for i in range(0, max(len(places), 1), count)]
    parts = [_integrated(places[chunk], cells[chunk], *rule) for chunk in chunks]
    utility, secret = torch.cat(parts, dim=1).view(2, *batch)
    return utility, secret


def _integrated(means: Tensor, joint: Tensor, nodes: Tensor, weights: Tensor) -> Tensor:
    """H(U|Q) and H(S|Q), shape [2, b], of means [b, d, 2] and joint [b, 2, 2].

    Relative to the density of the cell at hand, that of the cell d away is exp(-d'n - d'd / 2) at
    node n, and that of the cell d + e away the product of those for d and e, times exp(-d'e). All
    this lies within float64, as M gains at most 1 / DATA_STD.
    """
    # Turning both bits over mirrors a law of fair bits: two cells stand for four.
    mirrored = bool((joint == joint.flip(-2, -1)).all())
    count = 2 if mirrored else 4
    steps, numbers = _STEPS[:count].to(means), _CELLS[:count].to(means.device)
    mass = joint.flatten(-2)
    to_utility, to_secret = (means[:, None, :, bit] * steps[:, bit, None] for bit in (0, 1))
    cross = torch.exp(-(to_utility * to_secret).sum(-1))[..., None]
    utility, secret = (_relative_density(to, nodes) for to in (to_utility, to_secret))
    both = utility * secret * (mass[:, numbers ^ 3][..., None] * cross)
    utility = utility * mass[:, numbers ^ 2][..., None]
    secret = secret * mass[:, numbers ^ 1][..., None]
    own = mass[:, numbers]
    here = torch.where(own > 0, own, 1)[..., None]  # nothing is weighed around an empty cell
    lost = (torch.log1p((utility + both) / (here + secret)) @ weights * own).sum(-1)
    told = (torch.log1p((secret + both) / (here + utility)) @ weights * own).sum(-1)
    return torch.stack([lost, told]) * (2 if mirrored else 1)


def _relative_density(apart: Tensor, nodes: Tensor) -> Tensor:
    """Of unit Gaussians at distances [..., d] over that at 0, at nodes around 0: [..., n]."""
    return torch.exp(-(apart @ nodes.mT) - apart.square().sum(-1, keepdim=True) / 2)


@cache
def _rule(device: torch.device, rough: bool, dimensions: int) -> tuple[Tensor, Tensor]:
    """Nodes [n, d] and weights [n] for the mean over a standard Gaussian in d dimensions."""
    step, radius = (_ROUGH_STEP, _ROUGH_RADIUS) if rough else (_STEP, _RADIUS)
    line = torch.arange(-radius, radius + step / 2, step, dtype=torch.float64)
    nodes = torch.cartesian_prod(*[line] * dimensions).view(-1, dimensions)
    squares = nodes.square().sum(-1)
    inside = squares <= radius**2
    weights = torch.exp(-squares[inside] / 2)
    return nodes[inside].to(device), (weights / weights.sum()).to(device)


def _matrix(theta: Tensor | NDArray[Any]) -> Tensor:
    matrix = real(theta, "theta")
    if matrix.shape[-2:] != (2, 2):
        raise ValueError(f"theta must have shape [..., 2, 2]; got {list(matrix.shape)}.")
    if matrix.isinf().any():
        raise ValueError("theta must be finite; got inf.")
    return matrix


def _cells(joint: Tensor | NDArray[Any]) -> Tensor:
    table = distribution(joint, "joint", ("U", "S"))
    if table.shape[-2:] != (2, 2):
        raise ValueError(f"joint must have shape [..., 2, 2]; got {list(table.shape)}.")
    if (table.sum(-1) <= 0).any() or (table.sum(-2) <= 0).any():
        raise ValueError("joint must leave both bits random; got a value of probability 0.")
    return table


def _entropy(p: Tensor) -> Tensor:
    entropy: Tensor = torch.special.entr(p).sum(-1)
    return entropy


def _divided(row: Tensor, square: Tensor) -> Tensor:
    """Row over the root of `square`; 0 where that is 0, as there the row is."""
    positive = square > 0
    return torch.where(positive, row / torch.where(positive, square, 1).sqrt(), 0)
