"""Conditional entropy of order alpha as an adversary's posterior shows it (arXiv 2310.18241).

Two forms, both of a stack whose members differ in order. `posterior` is the published one, in
which the adversary's output stands for the law of the secret (eq. 3 and 9). With the adversary
held fixed its gradient is not that of the information, and may have the wrong sign. `label` scores
the true secret by the alpha-loss, whose least value over all posteriors is the conditional
entropy; at the adversary's optimum its gradient is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from privnets.adversarial.records import MISSING

Form = Literal["posterior", "label"]
Combination = Literal["joint", "sum"]

# Near order 1 both the logarithm and its factor's denominator vanish; expm1 and log1p keep digits.
_NEAR_ONE = 0.25
# A power of a probability beyond exp(60) times the probability itself is nothing; it must not
# overflow before the product is taken.
_MOST_POWER = 60.0
# The best guess of a large order is almost a step function of the posterior, and has no gradient
# in float32; the alpha-loss bounds the entropy for any guess, so one that is less steep serves.
_STEEPEST = 32.0


class ConditionalEntropy:
    """The estimate for a stack, whose members' orders are sorted into numerical regimes once."""

    def __init__(
        self, orders: Sequence[float], form: Form, combination: Combination = "joint"
    ) -> None:
        """Sort the orders.

        Args:
            orders: One per member, in [0, inf].
            form: What stands for the law of the secret.
            combination: Of a sequence's steps: `joint` is the entropy of all of them (exact when
                they are conditionally independent, eq. 7), `sum` adds the steps' entropies. In
                `joint` a record's known steps stand for all of its steps: it enters by an
                exponential of a sum over them, and fewer of them would give it more weight than
                the others above order 1, and less below.

        Raises:
            ValueError: If an order is negative or NaN.
        """
        if not all(order >= 0 for order in orders):
            raise ValueError(f"orders must be in [0, inf]; got {list(orders)}.")
        self._form, self._combination = form, combination
        self._distinct = {
            order: [i for i, other in enumerate(orders) if other == order]
            for order in sorted(set(orders))
        }
        members = [i for group in self._distinct.values() for i in group]
        self._back = sorted(range(len(members)), key=members.__getitem__)

    def __call__(self, logits: Tensor, secret: Tensor) -> Tensor:
        """Nats per record (for a sequence: of all its steps).

        Args:
            logits: Shape [S, n, C], or [S, n, T, C] for sequences.
            secret: Shape [S, n] or [S, n, T]; steps where it is `MISSING` count for nothing, and
                neither do records without any other.

        Returns:
            Shape [S]; 0 where nothing is known. Above order 32 the form `label` tilts its guess
            as at order 32: no less than the entropy of the order, and differentiable.
        """
        log_p = logits.log_softmax(-1)
        if log_p.ndim == 3:
            log_p, secret = log_p[:, :, None], secret[:, :, None]
        parts = [
            self._of_order(order, log_p[members], secret[members])
            for order, members in self._distinct.items()
        ]
        return torch.cat(parts)[self._back]

    def _of_order(self, order: float, log_p: Tensor, secret: Tensor) -> Tensor:
        known = secret != MISSING
        if order == 0:
            counted = self._counted(known)
            steps = counted.any(1).sum(1) * (known.shape[2] // counted.shape[2])
            return math.log(log_p.shape[-1]) * steps.to(log_p.dtype)
        if order == 1:
            scores = _shannon(log_p) if self._form == "posterior" else -_own(log_p, secret)
            return self._mean_score(scores, known)
        scores = (
            _log_norm(order, log_p) if self._form == "posterior" else _gain(order, log_p, secret)
        )
        return self._mean_exponential(order, scores, known)

    def _mean_score(self, scores: Tensor, known: Tensor) -> Tensor:
        """Additive at order 1, where `joint` and `sum` agree up to what is missing."""
        scores, counted = self._combined(scores, known), self._counted(known)
        scores = torch.where(counted, scores, 0.0).sum(1) / counted.sum(1).clamp_min(1)
        return scores.sum(1)

    def _mean_exponential(self, order: float, scores: Tensor, known: Tensor) -> Tensor:
        factor = -1.0 if math.isinf(order) else order / (1 - order)
        scores = self._combined(scores, known)
        return factor * _log_mean_exp(scores, self._counted(known)).sum(1)

    def _combined(self, scores: Tensor, known: Tensor) -> Tensor:
        """Of each record's steps, as if all of them were known: [S, n, 1]; or of each step."""
        scores = torch.where(known, scores, 0.0)
        if self._combination == "sum":
            return scores
        seen = known.sum(2, keepdim=True).clamp_min(1).to(scores.dtype)
        return scores.sum(2, keepdim=True) * (known.shape[2] / seen)

    def _counted(self, known: Tensor) -> Tensor:
        """What `_combined` gives that rests on a known secret."""
        return known if self._combination == "sum" else known.any(2, keepdim=True)


def _shannon(log_p: Tensor) -> Tensor:
    return -(log_p.exp() * log_p).sum(-1)


def _own(log_p: Tensor, secret: Tensor) -> Tensor:
    """Log probability of the true secret; of class 0 where it is missing."""
    return log_p.gather(-1, secret.clamp_min(0)[..., None])[..., 0]


def _log_norm(order: float, log_p: Tensor) -> Tensor:
    """The logarithm of the norm of order alpha, stably near 1."""
    if math.isinf(order):
        return log_p.amax(-1)
    if abs(order - 1) < _NEAR_ONE:
        powered = ((order - 1) * log_p).clamp_max(_MOST_POWER)
        return (log_p.exp() * powered.expm1()).sum(-1).log1p() / order
    return (order * log_p).logsumexp(-1) / order


def _gain(order: float, log_p: Tensor, secret: Tensor) -> Tensor:
    """The logarithm of a guess's gain at the true secret: q^((alpha - 1) / alpha).

    The best guess is the posterior tilted by the order; see `_STEEPEST` for large ones.
    """
    guess = (min(order, _STEEPEST) * log_p).log_softmax(-1)
    exponent = 1.0 if math.isinf(order) else (order - 1) / order
    return exponent * _own(guess, secret)


def _log_mean_exp(scores: Tensor, counted: Tensor) -> Tensor:
    """Over records (dimension 1), of those that are counted; 0 where none is.

    Scores are taken from the largest, so that nothing overflows; where they differ little, as
    near order 1, expm1 and log1p keep the digits of what they differ by.
    """
    number = counted.sum(1).clamp_min(1).to(scores.dtype)
    lowest = torch.finfo(scores.dtype).min
    most = torch.where(counted, scores, lowest).amax(1, keepdim=True).detach()
    most = torch.where(counted.any(1, keepdim=True), most, 0.0)
    below = torch.where(counted, scores - most, 0.0)
    lost = torch.where(counted, below.expm1(), 0.0).sum(1) / number
    kept = torch.where(counted, below.exp(), 0.0).sum(1) / number
    # Each logarithm where it is exact; the other is finite too, so no gradient is lost.
    near = lost > -0.5
    small, large = torch.where(near, lost, 0.0), torch.where(near, 1.0, kept)
    return most[:, 0] + torch.where(near, small.log1p(), large.log())
