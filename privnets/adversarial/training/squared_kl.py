"""The squared-KL objective: (1 - a) I(U;X|Q)^2 + a I(S;Q)^2 (ICLR 2019 submission, eq. 8).

Each information is a mean over the batch of a log ratio that inference networks give. Forms:

* `label`, as published: the log ratio at the true label.
* `full`: the log ratio's mean over the classes, weighted by the network's own probabilities. Less
  noisy and never negative, but the weights of the leakage move with the releaser, which biases its
  gradient.
* `sound`: `full` for the utility, whose weights P(u|x) do not depend on the releaser, and `label`
  for the leakage, whose gradient is right in the mean.

The square of a batch's mean is too large by its variance, so that it favours releases of low
variance; and a mean below zero, as inexact networks give, would push leakage up. `running` squares
a running mean instead, never below zero; `clamped` squares the batch's own, never below zero;
`batch` is as published.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Estimator = Literal["sound", "label", "full"]
Squaring = Literal["running", "clamped", "batch"]

# A running mean forgets a batch after about so many steps.
MEMORY = 20.0


def censored(
    log_reference: Tensor, log_inferred: Tensor, utility: Tensor, estimator: Estimator
) -> Tensor:
    """I(U;X|Q) in nats: how much of the utility the release loses (eq. 3).

    Args:
        log_reference: log P(u|x), shape [S, n, C]; held fixed.
        log_inferred: log P(u|q), shape [S, n, C].
        utility: True labels, shape [S, n].
        estimator: Which form.

    Returns:
        Batch means, shape [S].
    """
    ratio = log_reference.detach() - log_inferred
    if estimator == "label":
        return at_label(ratio, utility).mean(1)
    return (log_reference.detach().exp() * ratio).sum(-1).mean(1)


def leakage(
    log_inferred: Tensor, log_prior: Tensor, secret: Tensor, estimator: Estimator
) -> Tensor:
    """I(S;Q) in nats: how much the release tells of the secret (eq. 4).

    Args:
        log_inferred: log P(s|q), shape [S, n, C].
        log_prior: log P(s), shape [S, C].
        secret: True secrets, shape [S, n].
        estimator: Which form.

    Returns:
        Batch means, shape [S].
    """
    ratio = log_inferred - log_prior[:, None]
    if estimator == "full":
        return (log_inferred.exp() * ratio).sum(-1).mean(1)
    return at_label(ratio, secret).mean(1)


def at_label(values: Tensor, label: Tensor) -> Tensor:
    """The value at each record's own class: [S, n, C] and [S, n] to [S, n]."""
    return values.gather(-1, label[..., None])[..., 0]


class RunningMean:
    """Exponential means of the two informations, which carry over from step to step."""

    def __init__(self, like: Tensor) -> None:
        """Begin with nothing seen; `like` is of shape [2, S]."""
        self.value = torch.zeros_like(like)
        self.weight = torch.zeros_like(like[:, :1])

    def update(self, batch: Tensor) -> Tensor:
        """Take in a batch's means, shape [2, S]; give the means so far."""
        rate = 1 / MEMORY
        self.value = torch.lerp(self.value, batch.detach(), rate)
        self.weight = self.weight + rate * (1 - self.weight)
        return self.value / self.weight


def squared(batch: Tensor, running: RunningMean, squaring: Squaring) -> Tensor:
    """Something whose gradient is that of the squared informations.

    Args:
        batch: Differentiable batch means of the two informations, shape [2, S].
        running: Updated with `batch`.
        squaring: What is squared.

    Returns:
        Shape [2, S].
    """
    mean = running.update(batch)
    if squaring == "batch":
        return batch.square()
    if squaring == "clamped":
        return batch.clamp_min(0).square()
    mean = mean.clamp_min(0)
    # The gradient of m^2 is 2 m times that of m, which the batch estimates; the value is m^2.
    return mean.square() + 2 * mean * (batch - batch.detach())
