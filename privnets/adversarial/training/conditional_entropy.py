"""Conditional entropy of order alpha of the secret, from the adversary's logits.

Both forms of its gradient are described in `objectives` (arXiv 2310.18241, eq. 3, 7 and 9).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Generic, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from privnets.adversarial.records import MISSING
from privnets.adversarial.training.inference_networks import log_softmax_over_classes
from privnets.references.problems import SequenceForm

GradientForm = Literal["posterior", "label"]

# Near order 1 both the logarithm and its factor's denominator vanish; expm1 and log1p keep digits.
_NEAR_ONE = 0.25
# exp(60) times a probability is 0 in its product with it; clamping avoids overflow before that.
_MAX_EXPONENT = 60.0
# The best guess of a large order is almost a step function without gradient in float32. A flatter
# guess still bounds the entropy from above.
_MAX_GUESS_ORDER = 32.0


_Number = TypeVar("_Number")
_Formula = Literal["zero", "near one", "one", "infinite", "other"]


def _formula(order: float, form: GradientForm) -> _Formula:
    if order in (0, 1):
        return "one" if order else "zero"
    if form == "label":
        return "other"
    if math.isinf(order):
        return "infinite"
    return "near one" if abs(order - 1) < _NEAR_ONE else "other"


class _Coefficients(NamedTuple, Generic[_Number]):
    """Coefficients of an order, or of several, [m, 1, 1], as tensors.

    Attributes:
        guess: Order of the best guess.
        exponent: (order - 1) / order.
        factor: order / (1 - order).
    """

    order: _Number
    beyond_one: _Number
    guess: _Number
    exponent: _Number
    factor: _Number


def _coefficients(order: float) -> _Coefficients[float]:
    exponent, factor = 1.0, -1.0
    if 0 < order < math.inf and order != 1:
        exponent, factor = (order - 1) / order, order / (1 - order)
    return _Coefficients(order, order - 1, min(order, _MAX_GUESS_ORDER), exponent, factor)


class ConditionalEntropy:
    """Conditional entropy of the secret, for a stack whose members differ in order."""

    def __init__(
        self,
        orders: Sequence[float],
        form: GradientForm,
        sequence: SequenceForm = "joint",
        *,
        is_complete: bool = False,
    ) -> None:
        """Groups members by the formula that fits their order, in [0, inf].

        Of a sequence's steps, `joint` is the entropy of all, exact if they are conditionally
        independent (eq. 7); `sum` adds the steps' entropies. In `joint` a record's known steps
        stand for all of its steps. Otherwise records with fewer known steps would weigh more above
        order 1, and less below. `is_complete` says that no secret is missing, which saves to look.
        """
        self._form, self._sequence, self._is_complete = form, sequence, is_complete
        self._members: dict[_Formula, list[int]] = {}
        for i, order in enumerate(orders):
            self._members.setdefault(_formula(order, form), []).append(i)
        self._coefficients = [_coefficients(order) for order in orders]
        self._groups: list[tuple[_Formula, Tensor, _Coefficients[Tensor]]] = []

    def __call__(self, logits: Tensor, secret: Tensor) -> Tensor:
        """Entropy per record, or of all steps of a sequence, nats.

        Args:
            logits: Shape [S, n, C], or [S, n, T, C] for sequences.
            secret: Shape [S, n] or [S, n, T]. Steps with `MISSING` are not counted, nor are
                records without any known step.

        Returns:
            Shape [S]; 0 where no secret is known. Above order 32 the form `label` uses the guess
            of order 32: an upper bound of the entropy that has a gradient.
        """
        log_p = log_softmax_over_classes(logits)
        if log_p.ndim == 3:
            log_p, secret = log_p[:, :, None], secret[:, :, None]
        if not self._groups:  # on their device: host values would be copied there in every step
            for formula, members in self._members.items():
                rows = log_p.new_tensor([self._coefficients[i] for i in members])
                own = _Coefficients(*rows.T[..., None, None])
                self._groups.append((formula, torch.tensor(members, device=log_p.device), own))
            self._stack_order = torch.cat([members for _, members, _ in self._groups]).argsort()
        if len(self._groups) == 1:
            formula, _, own = self._groups[0]
            return self._entropy(formula, own, log_p, secret)
        parts = [
            self._entropy(formula, own, *(t.index_select(0, place) for t in (log_p, secret)))
            for formula, place, own in self._groups
        ]
        return torch.cat(parts).index_select(0, self._stack_order)

    def _entropy(
        self, formula: _Formula, own: _Coefficients[Tensor], log_p: Tensor, secret: Tensor
    ) -> Tensor:
        posterior = self._form == "posterior"
        if formula == "one" and self._is_complete:
            scores = _shannon(log_p) if posterior else -at_label(log_p, secret)
            return scores.mean(1).sum(1)
        is_known = secret != MISSING
        # Entries of the scores, of each record or step, that rest on a known secret.
        is_joint = self._sequence == "joint" and is_known.shape[2] > 1
        counted = is_known.any(2, keepdim=True) if is_joint else is_known
        if formula == "zero":
            steps = counted.any(1).sum(1) * (is_known.shape[2] // counted.shape[2])
            return math.log(log_p.shape[-1]) * steps.to(log_p.dtype)
        if formula == "one":  # scores add, and `joint` equals `sum` but for missing steps
            scores = _shannon(log_p) if posterior else -at_known(log_p, secret)
        elif posterior:
            scores = _log_norm(formula, own, log_p)
        else:  # logarithm of the best guess's gain at the true secret, q^((alpha - 1) / alpha)
            guess = (own.guess[..., None] * log_p).log_softmax(-1)
            scores = own.exponent * at_known(guess, secret)
        scores = torch.where(is_known, scores, 0.0)
        if is_joint:  # as if all of a record's steps were known
            known_steps = is_known.sum(2, keepdim=True).clamp_min(1).to(scores.dtype)
            scores = scores.sum(2, keepdim=True) * (is_known.shape[2] / known_steps)
        if formula == "one":
            means = torch.where(counted, scores, 0.0).sum(1) / counted.sum(1).clamp_min(1)
            return means.sum(1)
        return own.factor[:, 0, 0] * _log_mean_exp(scores, counted).sum(1)


def at_label(values: Tensor, label: Tensor) -> Tensor:
    """Values at each record's own class: [S, n, C] and [S, n] to [S, n]."""
    return values.gather(-1, label[..., None])[..., 0]


def at_known(values: Tensor, label: Tensor) -> Tensor:
    """Values at each record's own class, at class 0 where it is missing."""
    return at_label(values, label.clamp_min(0))


def _shannon(log_p: Tensor) -> Tensor:
    return -(log_p.exp() * log_p).sum(-1)


def _log_norm(formula: _Formula, own: _Coefficients[Tensor], log_p: Tensor) -> Tensor:
    """Logarithm of the norm of order alpha, stable near 1."""
    if formula == "infinite":
        return log_p.amax(-1)
    if formula == "near one":
        powers = (own.beyond_one[..., None] * log_p).clamp_max(_MAX_EXPONENT)
        return (log_p.exp() * powers.expm1()).sum(-1).log1p() / own.order
    return (own.order[..., None] * log_p).logsumexp(-1) / own.order


def _log_mean_exp(scores: Tensor, counted: Tensor) -> Tensor:
    """Log-mean-exp over the counted records (dimension 1); 0 where there are none.

    Scores are taken relative to the largest, so that nothing overflows. Where they differ little,
    as near order 1, expm1 and log1p keep the digits of the difference. The mean of n exponentials
    is at least 1 / n, so that the error of log1p is at most about n roundings.
    """
    number = counted.sum(1).clamp_min(1).to(scores.dtype)
    lowest = torch.finfo(scores.dtype).min
    largest = torch.where(counted, scores, lowest).amax(1, keepdim=True).detach()
    largest = torch.where(counted.any(1, keepdim=True), largest, 0.0)
    below = torch.where(counted, scores - largest, 0.0)
    return largest[:, 0] + (below.expm1().sum(1) / number).log1p()
