"""How well stacked networks know labels, of which some may be missing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from privnets.adversarial.records import MISSING


def log_probabilities(logits: Tensor) -> Tensor:
    """Logarithms of the softmax over the last dimension, shape [S, n, ..., C].

    Classes are few and a vector processor takes records side by side, so that records lie
    innermost in what comes back, as they do in what a perceptron gives.
    """
    return logits.movedim(-1, 1).log_softmax(1).movedim(1, -1)


def cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """Mean negative log probability of the known labels, nats, shape [S].

    Its gradient is a closed form, of first order alone.

    Args:
        logits: Shape [S, n, C] or [S, n, T, C].
        label: Shape [S, n] or [S, n, T]; `MISSING` where unknown.
    """
    loss: Tensor = _CrossEntropy.apply(logits, label)  # type: ignore[no-untyped-call]
    return loss


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, label: Tensor) -> Tensor:
        known = label != MISSING
        own, count = label.clamp_min(0)[..., None], _count(known)
        log_p = log_probabilities(logits)
        ctx.save_for_backward(log_p, own, known, count)
        found = torch.where(known, log_p.gather(-1, own)[..., 0], 0.0)
        return -found.flatten(1).sum(1) / count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        log_p, own, known, count = ctx.saved_tensors
        share = (gradient / count).view(-1, *[1] * (known.ndim - 1)) * known
        off = log_p.exp()
        off.scatter_add_(-1, own, off.new_full((), -1.0).expand_as(own))
        return off.mul_(share[..., None]), None


def accuracy(logits: Tensor, label: Tensor) -> Tensor:
    """Share of the known labels that have the largest logit, shape [S]."""
    known = label != MISSING
    right = (logits.argmax(-1) == label) & known
    return right.flatten(1).sum(1) / _count(known)


def _count(known: Tensor) -> Tensor:
    return known.flatten(1).sum(1).clamp_min(1)
