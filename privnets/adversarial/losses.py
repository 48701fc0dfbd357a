"""How well stacked networks know labels, of which some may be missing."""

from __future__ import annotations

import torch
from torch import Tensor

from privnets.adversarial.records import MISSING


def cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """Mean negative log probability of the known labels, nats, shape [S].

    Args:
        logits: Shape [S, n, C] or [S, n, T, C].
        label: Shape [S, n] or [S, n, T]; `MISSING` where unknown.
    """
    known = label != MISSING
    own = logits.log_softmax(-1).gather(-1, label.clamp_min(0)[..., None])[..., 0]
    return -torch.where(known, own, 0.0).flatten(1).sum(1) / _count(known)


def accuracy(logits: Tensor, label: Tensor) -> Tensor:
    """Share of the known labels that have the largest logit, shape [S]."""
    known = label != MISSING
    right = (logits.argmax(-1) == label) & known
    return right.flatten(1).sum(1) / _count(known)


def _count(known: Tensor) -> Tensor:
    return known.flatten(1).sum(1).clamp_min(1)
