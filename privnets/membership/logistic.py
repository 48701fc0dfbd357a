"""Logistic regression as a stack, trained to convergence.

Minimises mean cross-entropy plus lambda times the squared norm of the coefficients, no intercept
(arXiv 2001.10648, eq. 1). Two classes have one coefficient vector, more have one each.
"""

from __future__ import annotations

import torch
from torch import Tensor

MOST_STEPS = 3000
_TOLERANCE = 1e-7
_CHECK_EVERY = 10


def fit(x: Tensor, y: Tensor, classes: int, weight_decay: Tensor) -> tuple[Tensor, Tensor]:
    """Train models by accelerated descent in the metric of a fixed bound on the curvature.

    The Hessian of the cross-entropy never exceeds X'X/2n per class (X'X/4n for two; Böhning
    1992), so descent in that metric needs no step size; Nesterov's momentum with restarts does
    the rest. Each model stops on its own: its result does not depend on what it is stacked with.

    Args:
        x: Features of each model's training set, shape [S, n, p], float64.
        y: Classes, int64, shape [S, n].
        classes: At least 2.
        weight_decay: lambda of each model, shape [S].

    Returns:
        Coefficients, shape [S, p, q], q = 1 for two classes and `classes` otherwise; and whether
        each model converged, shape [S]. Without regularisation separable data have no minimiser,
        and the model returned is the last of `MOST_STEPS` steps.
    """
    problem = _Problem(x, y, classes, weight_decay)
    weights = x.new_zeros(len(x), x.shape[2], problem.outputs)
    ahead, momentum = weights.clone(), x.new_ones(len(x))
    result, converged = weights.clone(), torch.zeros(len(x), dtype=torch.bool, device=x.device)
    active = torch.arange(len(x), device=x.device)
    for step in range(1, MOST_STEPS + 1):
        gradient = problem.gradient(ahead)
        moved = ahead - problem.precondition(gradient)
        uphill = (gradient * (moved - weights)).sum((1, 2)) > 0
        momentum = torch.where(uphill, 1.0, momentum)
        following = (1 + (1 + 4 * momentum**2).sqrt()) / 2
        push = torch.where(uphill, 0.0, (momentum - 1) / following)
        ahead = moved + push[:, None, None] * (moved - weights)
        weights, momentum = moved, following
        if step % _CHECK_EVERY == 0:
            done = gradient.abs().amax((1, 2)) <= _TOLERANCE
            if bool(done.any()):
                result[active[done]], converged[active[done]] = weights[done], True
                kept = ~done
                active, weights, ahead = active[kept], weights[kept], ahead[kept]
                momentum, problem = momentum[kept], problem.subset(kept)
            if not len(active):
                break
    result[active] = weights
    return result, converged


def log_probabilities(weights: Tensor, x: Tensor) -> Tensor:
    """Log-probability of every class.

    Args:
        weights: Shape [S, p, q].
        x: Shape [S, n, p] or [n, p].

    Returns:
        Shape [S, n, classes].
    """
    return _log_probabilities(x @ weights)


def _log_probabilities(logits: Tensor) -> Tensor:
    if logits.shape[-1] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits], dim=-1)
    return logits.log_softmax(-1)


class _Problem:
    """The objectives of a stack."""

    def __init__(self, x: Tensor, y: Tensor, classes: int, weight_decay: Tensor) -> None:
        self.outputs = 1 if classes == 2 else classes
        one_hot = torch.nn.functional.one_hot(y, classes).to(x.dtype)
        self._x, self._target = x, one_hot[..., 1:] if classes == 2 else one_hot
        self._decay = weight_decay.to(x.dtype)[:, None, None]
        bound = x.transpose(1, 2) @ x / (x.shape[1] * (4 if classes == 2 else 2))
        identity = torch.eye(x.shape[2], dtype=x.dtype, device=x.device)
        # Directions that no record has keep a gradient of 0: any positive curvature serves there.
        floor = 1e-9 * torch.diagonal(bound, dim1=1, dim2=2).sum(1)[:, None, None]
        self._inverse = torch.linalg.inv(bound + (2 * self._decay + floor) * identity)

    def gradient(self, weights: Tensor) -> Tensor:
        probabilities = _log_probabilities(self._x @ weights).exp()[..., -self.outputs :]
        slope = self._x.transpose(1, 2) @ (probabilities - self._target) / self._x.shape[1]
        return slope + 2 * self._decay * weights

    def precondition(self, gradient: Tensor) -> Tensor:
        step: Tensor = self._inverse @ gradient
        return step

    def subset(self, kept: Tensor) -> _Problem:
        part = object.__new__(_Problem)
        part.outputs = self.outputs
        part._x, part._target = self._x[kept], self._target[kept]
        part._decay, part._inverse = self._decay[kept], self._inverse[kept]
        return part
