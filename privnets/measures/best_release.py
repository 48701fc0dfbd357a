"""Optimal release of a useful bit that hides a secret bit, over all releasers.

The data are those of `privnets.measures.mixture`: fair bits with P(U=1, S=1) = k/4. A release Q
leaks A = I(S;Q) and censors B = I(U;X|Q); its loss is (1 - a) B^2 + a A^2 (eq. 8 of "Learning
data-derived privacy preserving representations", with squares of expectations). The optimum is a
channel with one parameter, the probability of erasing U if U differs from S.

This module does not import torch, so figures can use it.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq


def release_boundary(
    dependence: float, points: int = 201
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Computes the least censored utility at each leakage, from full utility to full privacy.

    Every release of X is a channel from the four cells of (U, S). A support line minimises
    lambda H(S) + E[(1 - lambda) H(U|q) - lambda H(S|q)], concave in P(U=1|q) and convex in
    P(S=1|q). So q means U = 0, U = 1, U = S or U = 1 - S, each at most once. For k < 1 the
    optimum never means U = S. By symmetry it releases U, but if U differs from S, it releases
    only this difference with some probability (k > 1 is the same with S renamed). The boundary is
    convex, from (I(U;S), 0) with slope -1 to (0, |1 - k| log 2). It equals A + B = I(U;S) only
    for k in {0, 2}.

    Args:
        dependence: Dependence k, in [0, 2].

    Returns:
        Leakage I(S;Q) and censored I(U;X|Q) in nats, each of shape [points].
    """
    k = _below_one(dependence)
    boundary = [
        _erasure_channel(k, erasure) for erasure in np.linspace(0, _largest_erasure(k), points)
    ]
    leakage, censored = np.array(boundary).T
    return leakage, censored


@lru_cache(maxsize=4096)
def best_loss(dependence: float, tradeoff: float) -> float:
    """Computes the least loss of any release.

    It is a(1 - a) I(U;S)^2 (theorem 3.3, corrected) for k in {0, 1, 2}, and otherwise larger
    unless a is 0 or 1.

    Args:
        dependence: Dependence k, in [0, 2].
        tradeoff: Weight a of leakage, in [0, 1].

    Returns:
        A lower bound by duality, which a release attains up to 1e-12.
    """
    k, a = _below_one(dependence), _within(tradeoff, "tradeoff", 1)

    def slope(erasure: float) -> float:
        """Slope of the loss, which is convex along the family."""
        leakage, censored = _erasure_channel(k, erasure)
        unlike = max(0.5, 1 - _share(k / 2, (1 - k / 2) * (1 - erasure)))
        leakage_slope = -math.log(2) - math.log(unlike)
        return (1 - a) * censored * math.log(2) + a * leakage * leakage_slope

    best, top = 0.0, _largest_erasure(k)
    if slope(0) < 0:
        is_top = slope(top) <= 0
        best = top if is_top else float(brentq(slope, 0, top, xtol=1e-15, rtol=1e-15))
    leakage, censored = _erasure_channel(k, best)
    slopes = 2 * a * leakage, 2 * (1 - a) * censored
    if sum(slopes) == 0:
        return 0.0
    # The loss is convex, so it is above its tangent, which supports the reachable set.
    least = sum(slopes) * _support(k, slopes[0] / sum(slopes))
    tangent = slopes[0] * leakage + slopes[1] * censored
    loss = (1 - a) * censored**2 + a * leakage**2
    return max(loss + least - tangent, 0.0)


def _within(value: float, name: str, high: float) -> float:
    if not 0 <= value <= high:
        raise ValueError(f"{name} must be in [0, {high:g}]; got {value!r}.")
    return float(value)


def _below_one(dependence: float) -> float:
    k = _within(dependence, "dependence", 2)
    return min(k, 2 - k)


def _largest_erasure(k: float) -> float:
    """Erasure probability at which the release is independent of S."""
    return 1 - k / (2 - k)


def _erasure_channel(k: float, erasure: float) -> tuple[float, float]:
    """Computes I(S;Q) and I(U;X|Q) of a channel."""
    alike, unlike = k / 2, (1 - k / 2) * (1 - erasure)
    erased = (1 - k / 2) * erasure * math.log(2)
    share = _share(alike, unlike)
    entropy = -sum(x * math.log(x) for x in (share, 1 - share) if x > 0)
    secret = (alike + unlike) * entropy + erased
    return max(math.log(2) - secret, 0.0), erased


def _support(k: float, weight: float) -> float:
    """Lower bound, tight up to rounding, on weight I(S;Q) + (1 - weight) I(U;X|Q).

    For weights up to 1/2 by lemma 3.1, A + B >= I(U;S). Above 1/2 by Gibbs' inequality: entropies
    are at most cross-entropies with any posteriors, and these are linear in the channel.
    """
    if weight <= 0.5:
        return weight * _erasure_channel(k, 0)[0]
    rest = 2 * weight - 1
    unlike = min(1 - k / 2, 2 ** (-rest / weight))
    bound = weight * math.log(2)
    for mass, posterior in ((k / 2, 1 - unlike), (1 - k / 2, unlike)):
        if mass > 0:
            bound += mass * min(weight * math.log(posterior), -rest * math.log(2))
    return bound


def _share(part: float, other: float) -> float:
    """Share of a part in the sum of two, or 0."""
    return part / (part + other) if part > 0 else 0.0
