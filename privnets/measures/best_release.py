"""The best release there is of a useful bit that hides a secret one: what no releaser beats.

The data are those of `privnets.measures.mixture`, fair bits with P(U=1, S=1) = k/4. A release Q
leaks A = I(S;Q) and censors B = I(U;X|Q); its loss is (1 - a) B^2 + a A^2 (eq. 8 of "Learning
data-derived privacy preserving representations", with squares of expectations). The best is a
channel that is named here by its probability of erasing U where U is not S.

Plain numbers, so that a curve can be drawn where nothing is trained.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


def release_boundary(
    dependence: float, points: int = 201
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least that any release censors at each leakage, from full utility to full privacy.

    Every release of X is a channel from the four cells of (U, S). On a support line it has the
    least lambda H(S) + E[(1 - lambda) H(U|q) - lambda H(S|q)], which is concave in P(U=1|q) and
    convex in P(S=1|q): so q says U = 0, U = 1, U = S or U = 1 - S, each at most once. For k < 1
    the optimum never says U = S, and by symmetry it is this: release U, but where U is not S
    release with a probability only that it is not (k > 1 is the same with S renamed). The
    boundary is convex and starts at (I(U;S), 0), where its slope is -1, and ends at
    (0, |1 - k| log 2); only k in {0, 2} follow A + B = I(U;S) all along.

    Args:
        dependence: k, in [0, 2].
        points: How many.

    Returns:
        Leakage I(S;Q) and censored I(U;X|Q) in nats, each of shape [points].

    Raises:
        ValueError: If `dependence` is out of its range.
    """
    k = _below_one(dependence)
    edge = [_erasing(k, erasure) for erasure in np.linspace(0, _largest_erasure(k), points)]
    leakage, censored = np.array(edge).T
    return leakage, censored


@lru_cache(maxsize=4096)
def best_loss(dependence: float, tradeoff: float) -> float:
    """Least loss of any release whatever.

    It is a(1 - a) I(U;S)^2 (Theorem 3.3 corrected) for k in {0, 1, 2}, and between them more
    unless a is 0 or 1.

    Args:
        dependence: k, in [0, 2].
        tradeoff: a, in [0, 1].

    Returns:
        A lower bound proved by duality, which a release attains to 1e-12.

    Raises:
        ValueError: If an argument is out of its range.
    """
    k, a = _below_one(dependence), _within(tradeoff, "tradeoff", 1)
    leakage, censored = _erasing(k, _best_erasure(k, a))
    slopes = 2 * a * leakage, 2 * (1 - a) * censored
    if sum(slopes) == 0:
        return 0.0
    # The loss is convex: above its tangent, which supports all that releases can reach.
    least = sum(slopes) * _support(k, slopes[0] / sum(slopes))
    here = slopes[0] * leakage + slopes[1] * censored
    loss = (1 - a) * censored**2 + a * leakage**2
    return max(loss + least - here, 0.0)


def _within(value: float, name: str, high: float) -> float:
    if not 0 <= value <= high:
        raise ValueError(f"{name} must be in [0, {high:g}]; got {value!r}.")
    return float(value)


def _below_one(dependence: float) -> float:
    k = _within(dependence, "dependence", 2)
    return min(k, 2 - k)


def _largest_erasure(k: float) -> float:
    """The erasure at which the release tells nothing of S."""
    return 1 - k / (2 - k)


def _erasing(k: float, erasure: float) -> tuple[float, float]:
    """I(S;Q) and I(U;X|Q) of a channel."""
    alike, unlike = k / 2, (1 - k / 2) * (1 - erasure)
    erased = (1 - k / 2) * erasure * math.log(2)
    secret = (alike + unlike) * _binary_entropy(_share(alike, unlike)) + erased
    return max(math.log(2) - secret, 0.0), erased


def _best_erasure(k: float, a: float) -> float:
    """Where the loss, convex along the family, is least."""
    from scipy.optimize import brentq

    def slope(erasure: float) -> float:
        leakage, censored = _erasing(k, erasure)
        unlike = max(0.5, 1 - _share(k / 2, (1 - k / 2) * (1 - erasure)))
        falling = -math.log(2) - math.log(unlike)
        return (1 - a) * censored * math.log(2) + a * leakage * falling

    top = _largest_erasure(k)
    if slope(0) >= 0:
        return 0.0
    return top if slope(top) <= 0 else float(brentq(slope, 0, top, xtol=1e-15, rtol=1e-15))


def _support(k: float, weight: float) -> float:
    """A lower bound, tight but for rounding, on weight I(S;Q) + (1 - weight) I(U;X|Q).

    Below 1/2 by Lemma 3.1, A + B >= I(U;S). Above, by Gibbs' inequality: whatever posteriors r
    are set against a release that says U, or whether U is S, its entropies are at most their
    cross-entropies, and these are linear in where each cell's mass goes.
    """
    if weight <= 0.5:
        return weight * _erasing(k, 0)[0]
    rest = 2 * weight - 1
    unlike = min(1 - k / 2, 2 ** (-rest / weight))
    bound = weight * math.log(2)
    for mass, posterior in ((k / 2, 1 - unlike), (1 - k / 2, unlike)):
        if mass > 0:
            bound += mass * min(weight * math.log(posterior), -rest * math.log(2))
    return bound


def _share(part: float, other: float) -> float:
    return part / (part + other) if part > 0 else 0.0


def _binary_entropy(p: float) -> float:
    return -sum(x * math.log(x) for x in (p, 1 - p) if x > 0)
