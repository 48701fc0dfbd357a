"""Conditional entropy of order alpha of the secret, from the adversary's logits.

Both forms of its gradient are described in `objectives` (arXiv 2310.18241, eq. 3, 7 and 9).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

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


class ConditionalEntropy:
    """Conditional entropy of the secret, for a stack whose members differ in order."""

    def __init__(
        self,
        orders: Sequence[float],
        form: GradientForm,
        sequence: SequenceForm = "joint",
        device: torch.device | None = None,
        *,
        is_complete: bool = False,
    ) -> None:
        """Groups members by order, in [0, inf].

        Of a sequence's steps, `joint` is the entropy of all, exact if they are conditionally
        independent (eq. 7); `sum` adds the steps' entropies. In `joint` a record's known steps
        stand for all of its steps. Otherwise records with fewer known steps would weigh more above
        order 1, and less below. `is_complete` says that no secret is missing, which saves to look.
        """
        self._form, self._sequence, self._is_complete = form, sequence, is_complete
        # On the logits' device: an index from the host would be copied there in every step.
        groups = {
            order: torch.tensor([i for i, other in enumerate(orders) if other == order])
            for order in sorted(set(orders))
        }
        self._members_by_order = {order: index.to(device) for order, index in groups.items()}
        self._stack_order = torch.cat(list(groups.values())).argsort().to(device)

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
        if len(self._members_by_order) == 1:
            return self._entropy(next(iter(self._members_by_order)), log_p, secret)
        parts = [
            self._entropy(order, log_p[members], secret[members])
            for order, members in self._members_by_order.items()
        ]
        return torch.cat(parts)[self._stack_order]

    def _entropy(self, order: float, log_p: Tensor, secret: Tensor) -> Tensor:
        posterior = self._form == "posterior"
        if order == 1 and self._is_complete:
            scores = _shannon(log_p) if posterior else -at_label(log_p, secret)
            return scores.mean(1).sum(1)
        is_known = secret != MISSING
        # Entries of the scores, of each record or step, that rest on a known secret.
        is_joint = self._sequence == "joint" and is_known.shape[2] > 1
        counted = is_known.any(2, keepdim=True) if is_joint else is_known
        if order == 0:
            steps = counted.any(1).sum(1) * (is_known.shape[2] // counted.shape[2])
            return math.log(log_p.shape[-1]) * steps.to(log_p.dtype)
        if order == 1:  # scores add, and `joint` equals `sum` but for missing steps
            scores = _shannon(log_p) if posterior else -at_known(log_p, secret)
        elif posterior:
            scores = _log_norm(order, log_p)
        else:  # logarithm of the best guess's gain at the true secret, q^((alpha - 1) / alpha)
            guess = (min(order, _MAX_GUESS_ORDER) * log_p).log_softmax(-1)
            exponent = 1.0 if math.isinf(order) else (order - 1) / order
            scores = exponent * at_known(guess, secret)
        scores = torch.where(is_known, scores, 0.0)
        if is_joint:  # as if all of a record's steps were known
            known_steps = is_known.sum(2, keepdim=True).clamp_min(1).to(scores.dtype)
            scores = scores.sum(2, keepdim=True) * (is_known.shape[2] / known_steps)
        if order == 1:
            means = torch.where(counted, scores, 0.0).sum(1) / counted.sum(1).clamp_min(1)
            return means.sum(1)
        factor = -1.0 if math.isinf(order) else order / (1 - order)
        return factor * _log_mean_exp(scores, counted).sum(1)


def at_label(values: Tensor, label: Tensor) -> Tensor:
    """Values at each record's own class: [S, n, C] and [S, n] to [S, n]."""
    return values.gather(-1, label[..., None])[..., 0]


def at_known(values: Tensor, label: Tensor) -> Tensor:
    """Values at each record's own class, at class 0 where it is missing."""
    return at_label(values, label.clamp_min(0))


def _shannon(log_p: Tensor) -> Tensor:
    return -(log_p.exp() * log_p).sum(-1)


def _log_norm(order: float, log_p: Tensor) -> Tensor:
    """Logarithm of the norm of order alpha, stable near 1."""
    if math.isinf(order):
        return log_p.amax(-1)
    if abs(order - 1) < _NEAR_ONE:
        powers = ((order - 1) * log_p).clamp_max(_MAX_EXPONENT)
        return (log_p.exp() * powers.expm1()).sum(-1).log1p() / order
    return (order * log_p).logsumexp(-1) / order


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
