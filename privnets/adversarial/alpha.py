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
# The best guess of infinite order is a step function of the posterior and has no gradient; the
# alpha-loss bounds the entropy for any guess, so one that is almost a step serves.
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
                they are conditionally independent, eq. 7), `sum` adds the steps' entropies.

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
            secret: Shape [S, n] or [S, n, T]; steps where it is `MISSING` count for nothing.

        Returns:
            Shape [S].
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
            return math.log(log_p.shape[-1]) * known.to(log_p.dtype).sum((1, 2)) / known.shape[1]
        if order == 1:
            scores = _shannon(log_p) if self._form == "posterior" else -_own(log_p, secret)
            return self._mean_score(scores, known)
        scores = (
            _log_norm(order, log_p) if self._form == "posterior" else _gain(order, log_p, secret)
        )
        return self._mean_exponential(order, torch.where(known, scores, 0.0), known)

    def _mean_score(self, scores: Tensor, known: Tensor) -> Tensor:
        """Additive at order 1, where `joint` and `sum` agree up to what is missing."""
        scores = torch.where(known, scores, 0.0)
        if self._combination == "joint":
            return scores.sum(2).mean(1)
        return (scores.sum(1) / known.sum(1).clamp_min(1)).sum(1)

    def _mean_exponential(self, order: float, scores: Tensor, known: Tensor) -> Tensor:
        factor = -1.0 if math.isinf(order) else order / (1 - order)
        near = abs(order - 1) < _NEAR_ONE
        if self._combination == "joint":
            everybody = torch.ones_like(known[:, :, 0])
            return factor * _log_mean_exp(scores.sum(2), everybody, near)
        return factor * _log_mean_exp(scores, known, near).sum(1)


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
        return (log_p.exp() * ((order - 1) * log_p).expm1()).sum(-1).log1p() / order
    return (order * log_p).logsumexp(-1) / order


def _gain(order: float, log_p: Tensor, secret: Tensor) -> Tensor:
    """The logarithm of the best guess's gain at the true secret: q^((alpha - 1) / alpha)."""
    tilt = min(order, _STEEPEST) if math.isinf(order) else order
    guess = (tilt * log_p).log_softmax(-1)
    exponent = 1.0 if math.isinf(order) else (order - 1) / order
    return exponent * _own(guess, secret)


def _log_mean_exp(scores: Tensor, counted: Tensor, near_zero: bool) -> Tensor:
    """Over records (dimension 1), of those that are counted; 0 where none is."""
    number = counted.sum(1).clamp_min(1).to(scores.dtype)
    if near_zero:
        mean = torch.where(counted, scores.expm1(), 0.0).sum(1) / number
        return mean.log1p()
    some = counted.any(1)
    lowest = torch.finfo(scores.dtype).min
    total = torch.where(counted, scores, lowest).logsumexp(1) - number.log()
    return torch.where(some, total, 0.0)
