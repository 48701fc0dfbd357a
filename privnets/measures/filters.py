"""How well a linear filter can hide a secret bit in the release of a useful one.

The data are those of `privnets.measures.mixture`, fair bits with P(U=1, S=1) = k/4. A release Q
leaks A = I(S;Q) and censors B = I(U;X|Q); its loss is (1 - a) B^2 + a A^2 (eq. 8 of "Learning
data-derived privacy preserving representations", with squares of expectations). What any release
attains is in `privnets.measures.best_release`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import cache, lru_cache, reduce

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.measures.arrays import batch_shape, in_range
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
_STEPS = 30  # of Newton's, each as long as one of these shares of it
_STRIDES = torch.tensor([4.0, 1.0, 0.5, 0.25, 0.1, 0.01, 0.001, 0.0001], dtype=torch.float64)
_APART = 1e-5
_AT_ONCE = 64
_ROUNDING = 1e-12
# How far above its least a rough search may end: five times what was seen, in nats squared.
_MARGIN = 5e-4

_Values = NDArray[np.float64] | float
_Reach = tuple[float, float]
# Shapes [n, 3], and what each leaks and censors.
_Told = tuple[Tensor, Tensor, Tensor]


def best_linear_loss(
    dependence: _Values, tradeoff: _Values, sigma: _Values = 1.0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Least loss of a linear filter Q = theta X + z, z ~ N(0, sigma^2 I).

    Local searches from the best of grids over all laws that a linear filter can give a release.
    These are the same at any positive sigma, as theta may grow with it: up to a spectral norm of
    `LARGEST_GAIN` sigma, at which whitened cells lie as far apart as they can but for one part in
    a million. Without noise a filter tells all, nothing, or a projection on one direction.

    The loss is that of the filter returned, to rounding; that no filter has less is not proved.
    Those that release two numbers are searched exactly only where a rough search brings them to
    within 5e-4 of the best that releases one. Many problems take little longer than one; which are
    solved together changes an answer by rounding alone.

    Args:
        dependence: k, in [0, 2].
        tradeoff: a, in [0, 1].
        sigma: Standard deviation of the noise, in [0, inf); shapes are broadcast.

    Returns:
        The loss, shape [...], and a theta of shape [..., 2, 2] that has it.

    Raises:
        ValueError: If an argument is out of its range, or shapes cannot be broadcast.
    """
    k = in_range(dependence, "dependence", 0, 2)
    a = in_range(tradeoff, "tradeoff", 0, 1)
    noise = in_range(sigma, "sigma", 0, math.inf, open_high=True)
    shape = batch_shape(dependence=k.shape, tradeoff=a.shape, sigma=noise.shape)
    k, a, noise = (value.double().expand(shape).flatten() for value in (k, a, noise))
    # Replicates share a problem, and any noise is as good as any other.
    problems, place = torch.unique(
        torch.stack([k, a, (noise > 0).double()]), dim=1, return_inverse=True
    )
    loss, best = _solved(*problems)
    loss, best = loss[place], best[place]
    theta = _unwhitened(best[:, 1:], noise[:, None])[..., None] * _turn(best[:, 0])
    return loss.view(shape).numpy()[()], theta.view(*shape, 2, 2).numpy()


def _solved(k: Tensor, a: Tensor, noisy: Tensor) -> tuple[Tensor, Tensor]:
    """Losses [n] and shapes [n, 3] of the best."""
    loss, best = torch.empty_like(k), torch.empty(len(k), 3, dtype=torch.float64)
    for some, search in ((noisy > 0, _best_noisy), (noisy == 0, _best_noiseless)):
        if some.any():
            found = search(k[some], a[some])
            loss[some], best[some] = found.loss, found.shapes
    return loss, best


@dataclass(frozen=True)
class _Filters:
    """Filters, each a try at one of several problems.

    Attributes:
        problem: The place of each one's problem, shape [n].
        k: Of its problem, shape [n].
        a: Of its problem, shape [n].
        shapes: An angle and two gains of each, the whitened filter diag(gains) turn(angle): [n, 3].
        loss: Of each, shape [n].
    """

    problem: Tensor
    k: Tensor
    a: Tensor
    shapes: Tensor
    loss: Tensor

    def at(self, shapes: Tensor, loss: Tensor) -> _Filters:
        """Others for the same problems."""
        return _Filters(self.problem, self.k, self.a, shapes, loss)

    def pick(self, index: Tensor) -> _Filters:
        """Some of them."""
        return _Filters(*(part[index] for part in astuple(self)))

    def beside(self, other: _Filters) -> _Filters:
        """These and others."""
        return _Filters(*map(torch.cat, zip(astuple(self), astuple(other), strict=True)))

    def ranked(self) -> tuple[_Filters, Tensor]:
        """By problem, the best first, and the rank of each in its own, from 0."""
        order = self.loss.argsort(stable=True)
        order = order[self.problem[order].argsort(stable=True)]
        counts = self.problem.bincount()
        before = (counts.cumsum(0) - counts)[self.problem[order]]
        return self.pick(order), torch.arange(len(order)) - before

    def best(self) -> _Filters:
        """The best of each problem, in order."""
        ranked, rank = self.ranked()
        return ranked.pick(rank == 0)


def _best_noisy(k: Tensor, a: Tensor) -> _Filters:
    """The best filters that release one number, unless one that releases two is better.

    None was seen to be, but nobody proved it. Integrals over the plane cost forty times those over
    a line: filters that release two numbers are found roughly, and searched on exactly only where
    they come within `_MARGIN` of the best that releases one.
    """
    line = _polished(_approached(_starts(k, a, _of_one_number)), (0.0, _REACH)).best()
    rough = _approached(_starts(k, a, _of_two_numbers), rough=True)
    plane = rough.at(rough.shapes, _loss(rough.k, rough.a, rough.shapes))
    margin = torch.where(plane.shapes[:, 2] > 0, _MARGIN, -_ROUNDING)
    might_win = plane.pick(plane.loss < line.loss[plane.problem] + margin)
    return line.beside(_searched(might_win, (0.0, _REACH))).best()


def _best_noiseless(k: Tensor, a: Tensor) -> _Filters:
    """The best of what tells nothing, what tells all, and projections on one direction."""
    secret, tried = math.log(2), torch.arange(len(k))
    nothing = torch.zeros(len(k), 3, dtype=torch.float64)
    everything = nothing + torch.tensor([0, _FULL_REACH, _FULL_REACH], dtype=torch.float64)
    projected = _polished(_starts(k, a, _projections), (_FULL_REACH, _FULL_REACH))
    silent = _Filters(tried, k, a, nothing, (1 - a) * secret**2)
    return projected.beside(silent).beside(silent.at(everything, a * secret**2)).best()


def _starts(k: Tensor, a: Tensor, grid: Callable[[float, float], Tensor]) -> _Filters:
    """Where to search from, for each problem."""
    shapes = [grid(*problem) for problem in zip(k.tolist(), a.tolist(), strict=True)]
    problem = torch.arange(len(k)).repeat_interleave(torch.tensor([len(own) for own in shapes]))
    # Their losses are not asked for before they have been searched on.
    unknown = torch.full((len(problem),), math.nan, dtype=torch.float64)
    return _Filters(problem, k[problem], a[problem], torch.cat(shapes), unknown)


def _of_one_number(k: float, a: float) -> Tensor:
    """Shapes [n, 3]: the best gains at angles that are better than those beside them."""
    return _lowest(_line(k, (*_DISTANCES, _REACH)), a)


def _projections(k: float, a: float) -> Tensor:
    """As `_of_one_number`, without noise."""
    return _lowest(_line(k, (_FULL_REACH,)), a)


def _of_two_numbers(k: float, a: float) -> Tensor:
    """Shapes [n, 3] that put the cells at a grid of distances in the plane: the best."""
    shapes, leakage, censored = _plane(k)
    return shapes[_weighed(leakage, censored, a).argsort()[:_STARTS]]


def _lowest(told: _Told, a: float) -> Tensor:
    shapes, leakage, censored = told
    least, place = _weighed(leakage, censored, a).min(1)
    low = (least < least.roll(1)) & (least <= least.roll(-1))
    low[least.argmin()] = True
    return shapes[low, place[low]]


@lru_cache(maxsize=64)
def _line(k: float, gains: Sequence[float]) -> _Told:
    """Shapes [angles, gains, 3] of filters that release one number."""
    angles = torch.arange(_ANGLES, dtype=torch.float64) * (math.pi / _ANGLES)
    none = torch.zeros(1, dtype=torch.float64)
    shapes = torch.cartesian_prod(angles, torch.tensor(gains, dtype=torch.float64), none)
    shapes = shapes.view(_ANGLES, -1, 3)
    return shapes, *_information(_law(k), shapes)


@lru_cache(maxsize=64)
def _plane(k: float) -> _Told:
    return _in_the_plane(), *_information(_law(k), _in_the_plane(), rough=True)


@cache
def _in_the_plane() -> Tensor:
    along = torch.tensor(_DISTANCES, dtype=torch.float64)
    across = torch.cat([-along[1:], along])
    first, shear, second = torch.cartesian_prod(along, across, along[1:]).unbind(-1)
    rows = [torch.stack([first, shear], dim=-1), torch.stack([0 * first, second], dim=-1)]
    _, gains, turn = torch.linalg.svd(torch.stack(rows, dim=-2))
    angles = torch.atan2(turn[:, 0, 1], turn[:, 0, 0])
    return torch.cat([angles[:, None], gains], dim=1)[gains[:, 0] <= _REACH]


def _approached(starts: _Filters, *, rough: bool = False) -> _Filters:
    """Pattern search (Hooke and Jeeves, 1961) from all of them at once.

    Each goes on to the best of its neighbours, or looks closer where none is better.
    """
    shapes, law, weight = starts.shapes, _law(starts.k)[:, None], starts.a[:, None]
    knobs = _knobs(shapes)
    around = torch.cat([0 * knobs[:1], knobs, -knobs])
    width = torch.tensor(_WIDTHS, dtype=torch.float64).repeat(len(shapes), 1)
    loss = starts.loss
    for _ in range(_MOVES):
        near = shapes[:, None] + width[:, None] * around
        near[..., 1:].clamp_(0, _REACH)
        loss, place = _weighed(*_information(law, near, rough=rough), weight).min(1)
        shapes = near[torch.arange(len(near)), place]
        width = torch.where(place[:, None] == 0, width / 2, width)
    return starts.at(shapes, loss)


def _polished(starts: _Filters, reach: _Reach) -> _Filters:
    """The least near the first of each problem, if these are about as good as each other."""
    known = starts.at(starts.shapes, _loss(starts.k, starts.a, starts.shapes))
    ranked, rank = known.ranked()
    least = ranked.loss[rank == 0][ranked.problem]
    return _searched(
        ranked.pick((rank < _POLISHED) & (ranked.loss <= _CLOSE * least + _ROUNDING)), reach
    )


def _searched(starts: _Filters, reach: _Reach) -> _Filters:
    """The least near each, by Newton's method, downhill alone."""
    # Slopes keep every integral in memory.
    parts = [starts.pick(some) for some in torch.split(torch.arange(len(starts.loss)), _AT_ONCE)]
    return reduce(_Filters.beside, (_descended(part, reach) for part in parts))


def _descended(starts: _Filters, reach: _Reach) -> _Filters:
    shapes, loss, k, a = starts.shapes, starts.loss, starts.k[:, None], starts.a[:, None]
    for _ in range(_STEPS if len(loss) else 0):
        step = _newton_step(starts, shapes, reach)
        tries = shapes[:, None] + _STRIDES[:, None] * step[:, None]
        tries[..., 1:].clamp_(*reach)
        tries[..., 2] *= shapes[:, None, 2] > 0
        found, place = _loss(k, a, tries).min(1)
        better = found < loss - _ROUNDING * loss
        if not better.any():
            break
        shapes = torch.where(better[:, None], tries[torch.arange(len(tries)), place], shapes)
        loss = torch.where(better, found, loss)
    return starts.at(shapes, loss)


def _newton_step(starts: _Filters, shapes: Tensor, reach: _Reach) -> Tensor:
    """Where the loss's quadratic at each shape is least; slopes count by their size where concave.

    A second gain of 0 stays, and so does a gain at an end of its reach that would go beyond it.
    """
    knobs = _knobs(shapes)
    around = torch.cat([0 * knobs[:1], _APART * knobs])
    points = (shapes[:, None] + around).requires_grad_()
    loss = _loss(starts.k[:, None], starts.a[:, None], points)
    (slopes,) = torch.autograd.grad(loss.sum(), points)
    slope, bent = slopes[:, 0], (slopes[:, 1:] - slopes[:, :1]) / _APART
    low, high = shapes <= reach[0], shapes >= reach[1]
    held = low & (slope >= 0) | high & (slope <= 0)
    held[:, 0], held[:, 2] = False, held[:, 2] | (shapes[:, 2] == 0)
    free = (~held[:, : len(knobs)]).double()
    bent = bent[..., : len(knobs)] * free[:, :, None] * free[:, None]
    bend, axes = torch.linalg.eigh((bent + bent.mT) / 2 + torch.diag_embed(1 - free))
    along = axes.mT @ (slope[:, : len(knobs)] * free)[..., None]
    step: Tensor = axes @ (along / bend.abs().clamp(min=_ROUNDING)[..., None])
    return -step[..., 0] @ knobs


def _knobs(shapes: Tensor) -> Tensor:
    """Unit steps along what can be turned: a second gain only where any filter has one."""
    return torch.eye(3, dtype=torch.float64)[: 3 if bool((shapes[:, 2] > 0).any()) else 2]


def _loss(k: Tensor, a: Tensor, shapes: Tensor) -> Tensor:
    """Of shapes [n, 3]."""
    return _weighed(*_information(_law(k), shapes), a)


def _weighed(leakage: Tensor, censored: Tensor, a: Tensor | float) -> Tensor:
    return (1 - a) * censored**2 + a * leakage**2


def _information(law: Tensor, shapes: Tensor, *, rough: bool = False) -> tuple[Tensor, Tensor]:
    """I(S;Q) and I(U;X|Q) of shapes [..., 3], over a line if all release but one number."""
    rows = slice(None) if bool((shapes[..., 2] > 0).any()) else slice(1)
    means = (shapes[..., 1:, None] * _turn(shapes[..., 0]))[..., rows, :]
    utility_left, secret_left = conditional_entropies(means, law, rough=rough)
    return math.log(2) - secret_left, utility_left


def _law(k: Tensor | float) -> Tensor:
    """Probabilities of (U, S), shape [..., 2, 2]."""
    law: Tensor = joint_us(torch.as_tensor(k, dtype=torch.float64))
    return law


def _turn(angle: Tensor) -> Tensor:
    cosine, sine = angle.cos(), angle.sin()
    rows = torch.stack([cosine, sine], dim=-1), torch.stack([-sine, cosine], dim=-1)
    return torch.stack(rows, dim=-2)


def _unwhitened(gain: Tensor, noise: Tensor) -> Tensor:
    """The singular values of theta behind gains; without noise any positive one will do."""
    noisy = noise * gain / torch.sqrt(1 - (DATA_STD * gain.clamp(max=_REACH)) ** 2)
    return torch.where(noise > 0, noisy, (gain > 0).double())
