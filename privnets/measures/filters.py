"""Best linear filter that hides a secret bit in the release of a useful bit.

Data, leakage A, censored utility B and loss are those of `privnets.measures.best_release`, which
has the optimum over all releases.

A *shape* is a whitened filter diag(gains) rotation(angle): an angle and two gains. A filter
releases one number if the second gain is 0, else two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache, partial, reduce

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.measures.arrays import batch_shape, in_range
from privnets.measures.mixture import DATA_STD, conditional_entropies, joint_us

LARGEST_GAIN = 1e3 / DATA_STD
"""Largest spectral norm of the search, in units of the noise."""

# Largest gain of a whitened filter: without noise, and at `LARGEST_GAIN`.
_NOISELESS_GAIN = 1 / DATA_STD
_MAX_GAIN = LARGEST_GAIN / math.hypot(1, DATA_STD * LARGEST_GAIN)

_DISTANCES = (0, 0.3, 0.7, 1.2, 1.8, 2.5, 3.5, 5, 7, 10, 14, 19.9)
_LINE_GAINS = (*_DISTANCES, _MAX_GAIN)
_ANGLES = 256
_STARTS = 4  # starting points of filters that release two numbers
_PATTERN_STEPS = 12
_WIDTHS = (math.pi / _ANGLES, 3.0, 3.0)  # initial widths of pattern search
_REFINED, _REFINE_RATIO = 2, 1.1
_NEWTON_STEPS = 30
_STEP_LENGTHS = torch.tensor([4.0, 1.0, 0.5, 0.25, 0.1, 0.01, 0.001, 0.0001], dtype=torch.float64)
_DIFFERENCE = 1e-5  # of finite differences
_CHUNK = 64
_ROUNDING = 1e-12
# Tolerance of a rough search in nats squared: five times the largest error observed.
_MARGIN = 5e-4

_Values = NDArray[np.float64] | float
_Range = tuple[float, float]
# Shapes [..., 3], with the leakage and the censored utility of each.
_Evaluated = tuple[Tensor, Tensor, Tensor]


def best_linear_loss(
    dependence: _Values, tradeoff: _Values, sigma: _Values = 1.0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Minimises the loss of a linear filter Q = theta X + z, z ~ N(0, sigma^2 I).

    Local searches start from the best points of grids over all distributions of a release. These
    are the same for any positive sigma, since theta can grow with it. The search is limited to a
    spectral norm of `LARGEST_GAIN` sigma, where the distance of whitened cells is within one part
    in a million of its supremum. Without noise a filter releases X, nothing, or a projection.

    The loss is that of the returned filter, up to rounding; its optimality is not proved. Filters
    that release two numbers are refined only if a rough search finds a loss within 5e-4 of the
    best that releases one. Many problems take little longer than one. Solving problems together
    changes a result by rounding only.

    Args:
        dependence: Dependence k, in [0, 2].
        tradeoff: Weight a of leakage, in [0, 1].
        sigma: Standard deviation of the noise, in [0, inf); all shapes are broadcast.

    Returns:
        The loss, shape [...], and a theta that attains it, shape [..., 2, 2].
    """
    k = in_range(dependence, "dependence", 0, 2)
    a = in_range(tradeoff, "tradeoff", 0, 1)
    noise = in_range(sigma, "sigma", 0, math.inf, open_high=True)
    shape = batch_shape(dependence=k.shape, tradeoff=a.shape, sigma=noise.shape)
    k, a, noise = (value.double().expand(shape).flatten() for value in (k, a, noise))
    # Replicates share a problem, and all positive noise levels are equivalent.
    problems, index = torch.unique(
        torch.stack([k, a, (noise > 0).double()]), dim=1, return_inverse=True
    )
    k, a, noisy = problems
    loss, best = torch.empty_like(k), torch.empty(len(k), 3, dtype=torch.float64)
    for mask, search in ((noisy > 0, _best_noisy), (noisy == 0, _best_noiseless)):
        if mask.any():
            filters = search(k[mask], a[mask])
            loss[mask], best[mask] = filters.loss, filters.shapes
    loss, best = loss[index], best[index]
    # Singular values of theta for these gains; without noise, 1 for any positive gain.
    gains, width = best[:, 1:], noise[:, None]
    noisy = width * gains / torch.sqrt(1 - (DATA_STD * gains.clamp(max=_MAX_GAIN)) ** 2)
    values = torch.where(width > 0, noisy, (gains > 0).double())
    theta = values[..., None] * _rotation(best[:, 0])
    return loss.view(shape).numpy()[()], theta.view(*shape, 2, 2).numpy()


@dataclass(frozen=True)
class _Filters:
    """Candidate filters, each for one of several problems."""

    problem: Tensor
    k: Tensor
    a: Tensor
    shapes: Tensor
    loss: Tensor

    def select(self, index: Tensor) -> _Filters:
        """Selects filters by index or mask."""
        return _Filters(*(part[index] for part in astuple(self)))

    def concatenate(self, other: _Filters) -> _Filters:
        """Concatenates two sets of filters."""
        return _Filters(*map(torch.cat, zip(astuple(self), astuple(other), strict=True)))

    def rank(self) -> tuple[_Filters, Tensor]:
        """Sorts by problem and loss; returns also the rank within the problem, from 0."""
        order = self.loss.argsort(stable=True)
        order = order[self.problem[order].argsort(stable=True)]
        counts = self.problem.bincount()
        before = (counts.cumsum(0) - counts)[self.problem[order]]
        return self.select(order), torch.arange(len(order)) - before

    def best(self) -> _Filters:
        """Selects the best filter of each problem, in order."""
        ranked, rank = self.rank()
        return ranked.select(rank == 0)


def _best_noisy(k: Tensor, a: Tensor) -> _Filters:
    """Returns the best filters with noise, which release one number unless two are better.

    No case is known in which two are better, but there is no proof. Integrals over the plane cost
    forty times as much as over a line. So filters that release two numbers are searched roughly,
    and refined only if they are within `_MARGIN` of the best that releases one.
    """
    line = _refine(
        _pattern_search(_starts(k, a, partial(_line_starts, _LINE_GAINS))), (0.0, _MAX_GAIN)
    ).best()
    rough = _pattern_search(_starts(k, a, _plane_starts), rough=True)
    plane = replace(rough, loss=_loss(rough.k, rough.a, rough.shapes))
    margin = torch.where(plane.shapes[:, 2] > 0, _MARGIN, -_ROUNDING)
    promising = plane.select(plane.loss < line.loss[plane.problem] + margin)
    return line.concatenate(_newton_search(promising, (0.0, _MAX_GAIN))).best()


def _best_noiseless(k: Tensor, a: Tensor) -> _Filters:
    """Returns the best filters without noise: constant, identity, or a projection."""
    secret, problem = math.log(2), torch.arange(len(k))
    constant = torch.zeros(len(k), 3, dtype=torch.float64)
    identity = constant + torch.tensor([0, _NOISELESS_GAIN, _NOISELESS_GAIN], dtype=torch.float64)
    projected = _refine(
        _starts(k, a, partial(_line_starts, (_NOISELESS_GAIN,))), (_NOISELESS_GAIN, _NOISELESS_GAIN)
    )
    without_release = _Filters(problem, k, a, constant, (1 - a) * secret**2)
    full = replace(without_release, shapes=identity, loss=a * secret**2)
    return projected.concatenate(without_release).concatenate(full).best()


def _starts(k: Tensor, a: Tensor, grid: Callable[[float, float], Tensor]) -> _Filters:
    """Creates the starting points of each problem."""
    shapes = [grid(*problem) for problem in zip(k.tolist(), a.tolist(), strict=True)]
    problem = torch.arange(len(k)).repeat_interleave(torch.tensor([len(own) for own in shapes]))
    # The losses of starting points are not used.
    no_loss = torch.full((len(problem),), math.nan, dtype=torch.float64)
    return _Filters(problem, k[problem], a[problem], torch.cat(shapes), no_loss)


def _plane_starts(k: float, a: float) -> Tensor:
    """Shapes [n, 3] of two numbers: the best of a grid of cell distances in the plane, roughly."""
    shapes, leakage, censored = _plane(k)
    return shapes[_weighted_loss(leakage, censored, a).argsort()[:_STARTS]]


def _line_starts(gains: tuple[float, ...], k: float, a: float) -> Tensor:
    """Shapes [n, 3] of one number: the best gains at angles that are local minima."""
    shapes, leakage, censored = _line(k, gains)
    least, index = _weighted_loss(leakage, censored, a).min(1)
    is_minimum = (least < least.roll(1)) & (least <= least.roll(-1))
    is_minimum[least.argmin()] = True
    return shapes[is_minimum, index[is_minimum]]


@lru_cache(maxsize=64)
def _line(k: float, gains: Sequence[float]) -> _Evaluated:
    """Evaluates shapes [angles, gains, 3] that release one number."""
    angles = torch.arange(_ANGLES, dtype=torch.float64) * (math.pi / _ANGLES)
    none = torch.zeros(1, dtype=torch.float64)
    shapes = torch.cartesian_prod(angles, torch.tensor(gains, dtype=torch.float64), none)
    shapes = shapes.view(_ANGLES, -1, 3)
    return shapes, *_information(_joint(k), shapes)


@lru_cache(maxsize=64)
def _plane(k: float) -> _Evaluated:
    """Evaluates shapes [n, 3] that release two numbers, roughly."""
    along = torch.tensor(_DISTANCES, dtype=torch.float64)
    across = torch.cat([-along[1:], along])
    first, shear, second = torch.cartesian_prod(along, across, along[1:]).unbind(-1)
    rows = [torch.stack([first, shear], dim=-1), torch.stack([0 * first, second], dim=-1)]
    _, gains, rotation = torch.linalg.svd(torch.stack(rows, dim=-2))
    angles = torch.atan2(rotation[:, 0, 1], rotation[:, 0, 0])
    shapes = torch.cat([angles[:, None], gains], dim=1)[gains[:, 0] <= _MAX_GAIN]
    return shapes, *_information(_joint(k), shapes, rough=True)


def _pattern_search(starts: _Filters, *, rough: bool = False) -> _Filters:
    """Pattern search (Hooke and Jeeves, 1961) from all starting points at once.

    Each moves to its best neighbour, or halves the width if no neighbour is better.
    """
    shapes, joint, weight = starts.shapes, _joint(starts.k)[:, None], starts.a[:, None]
    directions = _directions(shapes)
    around = torch.cat([0 * directions[:1], directions, -directions])
    width = torch.tensor(_WIDTHS, dtype=torch.float64).repeat(len(shapes), 1)
    loss = starts.loss
    for _ in range(_PATTERN_STEPS):
        near = shapes[:, None] + width[:, None] * around
        near[..., 1:].clamp_(0, _MAX_GAIN)
        loss, index = _weighted_loss(*_information(joint, near, rough=rough), weight).min(1)
        shapes = near[torch.arange(len(near)), index]
        width = torch.where(index[:, None] == 0, width / 2, width)
    return replace(starts, shapes=shapes, loss=loss)


def _refine(starts: _Filters, gain_range: _Range) -> _Filters:
    """Newton searches from the best two of each problem, if their losses are similar."""
    evaluated = replace(starts, loss=_loss(starts.k, starts.a, starts.shapes))
    ranked, rank = evaluated.rank()
    least = ranked.loss[rank == 0][ranked.problem]
    is_close = ranked.loss <= _REFINE_RATIO * least + _ROUNDING
    return _newton_search(ranked.select((rank < _REFINED) & is_close), gain_range)


def _newton_search(starts: _Filters, gain_range: _Range) -> _Filters:
    """Finds the local minimum near each start by damped Newton steps, in chunks."""
    # Gradients keep all integrals of a chunk in memory.
    parts = [starts.select(index) for index in torch.split(torch.arange(len(starts.loss)), _CHUNK)]
    return reduce(_Filters.concatenate, (_newton_descent(part, gain_range) for part in parts))


def _newton_descent(starts: _Filters, gain_range: _Range) -> _Filters:
    shapes, loss, k, a = starts.shapes, starts.loss, starts.k[:, None], starts.a[:, None]
    for _ in range(_NEWTON_STEPS if len(loss) else 0):
        # Absolute eigenvalues of the Hessian make the steps saddle-free.
        directions = _directions(shapes)
        around = torch.cat([0 * directions[:1], _DIFFERENCE * directions])
        points = (shapes[:, None] + around).requires_grad_()
        (slopes,) = torch.autograd.grad(_loss(k, a, points).sum(), points)
        slope, hessian = slopes[:, 0], (slopes[:, 1:] - slopes[:, :1]) / _DIFFERENCE
        low, high = shapes <= gain_range[0], shapes >= gain_range[1]
        fixed = low & (slope >= 0) | high & (slope <= 0)
        fixed[:, 0], fixed[:, 2] = False, fixed[:, 2] | (shapes[:, 2] == 0)
        free = (~fixed[:, : len(directions)]).double()
        hessian = hessian[..., : len(directions)] * free[:, :, None] * free[:, None]
        symmetric = (hessian + hessian.mT) / 2 + torch.diag_embed(1 - free)
        eigenvalues, axes = torch.linalg.eigh(symmetric)
        along = axes.mT @ (slope[:, : len(directions)] * free)[..., None]
        newton = axes @ (along / eigenvalues.abs().clamp(min=_ROUNDING)[..., None])
        step = -newton[..., 0] @ directions
        candidates = shapes[:, None] + _STEP_LENGTHS[:, None] * step[:, None]
        candidates[..., 1:].clamp_(*gain_range)
        candidates[..., 2] *= shapes[:, None, 2] > 0
        least, index = _loss(k, a, candidates).min(1)
        better = least < loss - _ROUNDING * loss
        if not better.any():
            break
        shapes = torch.where(
            better[:, None], candidates[torch.arange(len(candidates)), index], shapes
        )
        loss = torch.where(better, least, loss)
    return replace(starts, shapes=shapes, loss=loss)


def _directions(shapes: Tensor) -> Tensor:
    """Unit steps in angle and gains; in the second gain only if any filter has one."""
    return torch.eye(3, dtype=torch.float64)[: 3 if bool((shapes[:, 2] > 0).any()) else 2]


def _loss(k: Tensor, a: Tensor, shapes: Tensor) -> Tensor:
    """Computes the losses of shapes [n, 3]."""
    return _weighted_loss(*_information(_joint(k), shapes), a)


def _weighted_loss(leakage: Tensor, censored: Tensor, a: Tensor | float) -> Tensor:
    return (1 - a) * censored**2 + a * leakage**2


def _information(joint: Tensor, shapes: Tensor, *, rough: bool = False) -> tuple[Tensor, Tensor]:
    """Computes I(S;Q) and I(U;X|Q) of shapes [..., 3], on a line if all release one number."""
    rows = slice(None) if bool((shapes[..., 2] > 0).any()) else slice(1)
    means = (shapes[..., 1:, None] * _rotation(shapes[..., 0]))[..., rows, :]
    utility_left, secret_left = conditional_entropies(means, joint, rough=rough)
    return math.log(2) - secret_left, utility_left


def _joint(k: Tensor | float) -> Tensor:
    """Probabilities of (U, S), shape [..., 2, 2]."""
    joint: Tensor = joint_us(torch.as_tensor(k, dtype=torch.float64))
    return joint


def _rotation(angle: Tensor) -> Tensor:
    cosine, sine = angle.cos(), angle.sin()
    rows = torch.stack([cosine, sine], dim=-1), torch.stack([-sine, cosine], dim=-1)
    return torch.stack(rows, dim=-2)
