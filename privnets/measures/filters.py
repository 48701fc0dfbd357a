"""How well a linear filter can hide a secret bit in the release of a useful one.

The data are those of `privnets.measures.mixture`, fair bits with P(U=1, S=1) = k/4. A release Q
leaks A = I(S;Q) and censors B = I(U;X|Q); its loss is (1 - a) B^2 + a A^2 (eq. 8 of "Learning
data-derived privacy preserving representations", with squares of expectations). What any release
attains is in `privnets.best_release`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from privnets.measures.arrays import in_range
from privnets.measures.mixture import DATA_STD, conditional_entropies, joint_us

LARGEST_GAIN = 1e3 / DATA_STD
"""Spectral norm, in units of the noise, up to which linear filters are searched."""

# Means of cells in units of their spread: the largest distance, and that at `LARGEST_GAIN`.
_FULL_REACH = 1 / DATA_STD
_REACH = LARGEST_GAIN / math.hypot(1, DATA_STD * LARGEST_GAIN)

_DISTANCES = (0, 0.3, 0.7, 1.2, 1.8, 2.5, 3.5, 5, 7, 10, 14, 19.9)
_ANGLES = 256
_STARTS = 4  # that release two numbers
_MOVES = 12
_WIDTHS = (math.pi / _ANGLES, 3.0, 3.0)  # of the first moves
_POLISHED, _CLOSE = 2, 1.1
_ROUNDING = 1e-12
# How far above its least a rough search may end: five times what was seen, in nats squared.
_MARGIN = 5e-4

_Shape = tuple[float, float, float]
_Reach = tuple[float, float]
_Bounds = list[tuple[float | None, float | None]]


def best_linear_loss(
    dependence: float, tradeoff: float, sigma: float = 1.0
) -> tuple[float, NDArray[np.float64]]:
    """Least loss of a linear filter Q = theta X + z, z ~ N(0, sigma^2 I).

    Local searches from the best of grids over all laws that a linear filter can give a release.
    These are the same at any positive sigma, as theta may grow with it: up to a spectral norm of
    `LARGEST_GAIN` sigma, at which whitened cells lie as far apart as they can but for one part in
    a million. Without noise a filter tells all, nothing, or a projection on one direction.

    The loss is that of the filter returned, to rounding; that no filter has less is not proved.
    Those that release two numbers are searched exactly only where a rough search brings them to
    within 5e-4 of the best that releases one.

    Args:
        dependence: k, in [0, 2].
        tradeoff: a, in [0, 1].
        sigma: Standard deviation of the noise, in [0, inf).

    Returns:
        The loss, and a theta of shape [2, 2] that has it.

    Raises:
        ValueError: If an argument is out of its range.
    """
    k = float(in_range(dependence, "dependence", 0, 2))
    a = float(in_range(tradeoff, "tradeoff", 0, 1))
    noise = float(in_range(sigma, "sigma", 0, math.inf, open_high=True))
    loss, shape = _best_noisy(k, a) if noise > 0 else _best_noiseless(k, a)
    gains = [_unwhitened(gain, noise) for gain in shape[1:]]
    return loss, np.diag(gains) @ _turn(torch.tensor(shape[0], dtype=torch.float64)).numpy()


# A shape is an angle and two gains, the whitened filter diag(gains) turn(angle).


@lru_cache(maxsize=4096)
def _best_noisy(k: float, a: float) -> tuple[float, _Shape]:
    """The best filter that releases one number, unless one that releases two is better.

    None was seen to be, but nobody proved it. Integrals over the plane cost forty times those over
    a line: filters that release two numbers are found roughly, and searched on exactly only where
    they come within `_MARGIN` of the best that releases one.
    """
    shapes, leakage, censored = _scalars(k)
    near = _approached(k, a, _lowest(shapes, _loss(leakage, censored, a)))
    loss, shape = _polished(k, a, near, (0.0, _REACH))
    shapes, leakage, censored = _planes(k)
    starts = shapes[_loss(leakage, censored, a).argsort()[:_STARTS]]
    plane = _approached(k, a, starts, rough=True)
    margin = torch.where(plane[:, 2] > 0, _MARGIN, -_ROUNDING)
    might_win = plane[_loss(*_information(k, plane), a) < loss + margin]
    others = [_searched(k, a, start, (0.0, _REACH)) for start in might_win]
    return min([(loss, shape), *others])


@lru_cache(maxsize=4096)
def _best_noiseless(k: float, a: float) -> tuple[float, _Shape]:
    secret = math.log(2)
    nothing, all_there_is = (0.0, 0.0, 0.0), (0.0, _FULL_REACH, _FULL_REACH)
    known = [((1 - a) * secret**2, nothing), (a * secret**2, all_there_is)]
    shapes = _projections([_FULL_REACH])
    starts = _lowest(shapes, _loss(*_information(k, shapes), a))
    return min([*known, _polished(k, a, starts, (_FULL_REACH, _FULL_REACH))])


@lru_cache(maxsize=16)
def _scalars(k: float) -> tuple[Tensor, Tensor, Tensor]:
    """Shapes [angles, gains, 3] of filters that release one number, and what they tell."""
    shapes = _projections([*_DISTANCES, _REACH])
    return shapes, *_information(k, shapes)


def _projections(gains: Sequence[float]) -> Tensor:
    """Shapes [angles, gains, 3] that release one number."""
    angles = torch.arange(_ANGLES, dtype=torch.float64) * (math.pi / _ANGLES)
    none = torch.zeros(1, dtype=torch.float64)
    shapes = torch.cartesian_prod(angles, torch.tensor(gains, dtype=torch.float64), none)
    return shapes.view(_ANGLES, -1, 3)


def _lowest(shapes: Tensor, loss: Tensor) -> Tensor:
    """The best gains [n, 3] at angles that are better than those beside them; the best first."""
    least, place = loss.min(1)
    low = (least < least.roll(1)) & (least <= least.roll(-1))
    low[least.argmin()] = True
    best = least[low].argsort()
    return shapes[low, place[low]][best]


@lru_cache(maxsize=16)
def _planes(k: float) -> tuple[Tensor, Tensor, Tensor]:
    """Shapes [n, 3] that put the cells at a grid of distances in the plane, and what they tell."""
    along = torch.tensor(_DISTANCES, dtype=torch.float64)
    across = torch.cat([-along[1:], along])
    first, shear, second = torch.cartesian_prod(along, across, along[1:]).unbind(-1)
    rows = [torch.stack([first, shear], dim=-1), torch.stack([0 * first, second], dim=-1)]
    _, gains, turn = torch.linalg.svd(torch.stack(rows, dim=-2))
    angles = torch.atan2(turn[:, 0, 1], turn[:, 0, 0])
    shapes = torch.cat([angles[:, None], gains], dim=1)[gains[:, 0] <= _REACH]
    return shapes, *_information(k, shapes, rough=True)


def _approached(k: float, a: float, shapes: Tensor, *, rough: bool = False) -> Tensor:
    """Pattern search (Hooke and Jeeves, 1961) from shapes [n, 3], all at once; the best first.

    Each goes on to the best of its neighbours, or looks closer where none is better.
    """
    axes = torch.eye(3, dtype=torch.float64)[: 3 if bool((shapes[:, 2] > 0).any()) else 2]
    around = torch.cat([0 * axes[:1], axes, -axes])
    width = torch.tensor(_WIDTHS, dtype=torch.float64).repeat(len(shapes), 1)
    for _ in range(_MOVES):
        near = shapes[:, None] + width[:, None] * around
        near[..., 1:].clamp_(0, _REACH)
        loss, place = _loss(*_information(k, near, rough=rough), a).min(1)
        shapes = near[torch.arange(len(near)), place]
        width = torch.where(place[:, None] == 0, width / 2, width)
    return shapes[loss.argsort()]


def _polished(k: float, a: float, shapes: Tensor, reach: _Reach) -> tuple[float, _Shape]:
    """The least that is near the first shapes, if these are about as good as each other."""
    loss = _loss(*_information(k, shapes), a)
    close = shapes[loss <= _CLOSE * loss[0] + _ROUNDING][:_POLISHED]
    return min(_searched(k, a, start, reach) for start in close)


def _searched(k: float, a: float, start: Tensor, reach: _Reach) -> tuple[float, _Shape]:
    """The least near a shape [3], by gradients."""
    scale = max(float(_loss(*_information(k, start[None]), a)), _ROUNDING)

    def value(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        shape = torch.tensor(point, requires_grad=True)
        loss = _loss(*_information(k, shape[None]), a) / scale
        (gradient,) = torch.autograd.grad(loss, shape)
        return loss.item(), gradient.numpy()

    bounds: _Bounds = [(None, None), reach, reach if start[2] > 0 else (0.0, 0.0)]
    options = {"ftol": 1e-12, "gtol": 1e-9}
    found = minimize(value, start.numpy(), jac=True, bounds=bounds, options=options)
    angle, first, second = found.x.tolist()
    return float(found.fun) * scale, (angle, first, second)


def _information(k: float, shapes: Tensor, *, rough: bool = False) -> tuple[Tensor, Tensor]:
    """I(S;Q) and I(U;X|Q) of shapes [..., 3], over a line if all release but one number."""
    rows = slice(None) if bool((shapes[..., 2] > 0).any()) else slice(1)
    means = (shapes[..., 1:, None] * _turn(shapes[..., 0]))[..., rows, :]
    utility_left, secret_left = conditional_entropies(means, _law(k), rough=rough)
    return math.log(2) - secret_left, utility_left


@lru_cache(maxsize=16)
def _law(k: float) -> Tensor:
    return torch.as_tensor(joint_us(k))


def _turn(angle: Tensor) -> Tensor:
    cosine, sine = angle.cos(), angle.sin()
    rows = torch.stack([cosine, sine], dim=-1), torch.stack([-sine, cosine], dim=-1)
    return torch.stack(rows, dim=-2)


def _unwhitened(gain: float, noise: float) -> float:
    """The singular value of theta behind a gain; without noise any positive one will do."""
    if noise == 0:
        return float(gain > 0)
    return noise * gain / math.sqrt(1 - (DATA_STD * gain) ** 2)


def _loss(leakage: Tensor, censored: Tensor, a: float) -> Tensor:
    return (1 - a) * censored**2 + a * leakage**2
