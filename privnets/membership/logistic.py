"""Logistic regression as a stack, trained to convergence.

Minimises mean cross-entropy plus lambda times the squared norm of the coefficients, no intercept
(arXiv 2001.10648, eq. 1). Two classes have one coefficient vector, more have one each. Each model
stops on its own, so that its result does not depend on what it is stacked with.
"""

from __future__ import annotations

import torch
from torch import Tensor

from privnets.membership.pricing import NEWTON_UNKNOWNS

_NEWTON_STEPS = 60
_HALVINGS = 30
_DESCENT_STEPS = 3000
_CHECK_EVERY = 10
_TOLERANCE = 1e-7


def fit(x: Tensor, y: Tensor, classes: int, weight_decay: Tensor) -> tuple[Tensor, Tensor]:
    """Train models: by Newton's method where the unknowns are few, else by accelerated descent.

    Args:
        x: Features of each model's training set, shape [S, n, p], float64.
        y: Classes, int64, shape [S, n].
        classes: At least 2.
        weight_decay: lambda of each model, shape [S].

    Returns:
        Coefficients, shape [S, p, q], q = 1 for two classes and `classes` otherwise; and whether
        each model converged, shape [S]. Without regularisation data that a model classifies
        without a mistake have no minimiser: the loss falls for ever as the coefficients grow, and
        the model returned is where its gradient vanished.
    """
    problem = _Problem(x, y, classes, weight_decay)
    newton = x.shape[2] * problem.outputs <= NEWTON_UNKNOWNS
    weights, converged = _newton(problem) if newton else _accelerated_descent(problem)
    right = (log_probabilities(weights, x).argmax(-1) == y).all(1)
    return weights, converged & ~(right & (weight_decay == 0))


def log_probabilities(weights: Tensor, x: Tensor) -> Tensor:
    """Log-probability of every class.

    Args:
        weights: Shape [S, p, q].
        x: Shape [S, n, p] or [n, p].

    Returns:
        Shape [S, n, classes].
    """
    return log_softmax(x @ weights)


def log_softmax(logits: Tensor) -> Tensor:
    """Log-probability of every class from logits [..., q], q = 1 standing for two classes."""
    return _with_reference(logits).log_softmax(-1)


def _with_reference(logits: Tensor) -> Tensor:
    """Give two classes the logit of the first, which is 0."""
    if logits.shape[-1] > 1:
        return logits
    return torch.cat([torch.zeros_like(logits), logits], dim=-1)


class _Problem:
    """The objectives of a stack."""

    def __init__(self, x: Tensor, y: Tensor, classes: int, weight_decay: Tensor) -> None:
        self.outputs = 1 if classes == 2 else classes
        one_hot = torch.nn.functional.one_hot(y, classes).to(x.dtype)
        self.x, self.target = x, one_hot[..., -self.outputs :]
        self.decay = weight_decay.to(x.dtype)[:, None, None]

    @property
    def start(self) -> Tensor:
        """Coefficients of 0, shape [S, p, q]."""
        return self.x.new_zeros(len(self.x), self.x.shape[2], self.outputs)

    def subset(self, kept: Tensor) -> _Problem:
        part = object.__new__(_Problem)
        part.outputs = self.outputs
        part.x, part.target, part.decay = self.x[kept], self.target[kept], self.decay[kept]
        return part

    def probabilities(self, weights: Tensor) -> Tensor:
        """Of the classes that have coefficients, shape [S, n, q]."""
        return _with_reference(self.x @ weights).softmax(-1)[..., -self.outputs :]

    def value(self, weights: Tensor) -> Tensor:
        """The objective, shape [S]."""
        logits = self.x @ weights
        spread = _with_reference(logits).logsumexp(-1) - (logits * self.target).sum(-1)
        return spread.mean(1) + (self.decay * weights.square()).sum((1, 2))

    def gradient(self, weights: Tensor, probabilities: Tensor) -> Tensor:
        """Shape [S, p, q]."""
        slope = self.x.transpose(1, 2) @ (probabilities - self.target) / self.x.shape[1]
        return slope + 2 * self.decay * weights

    def curvature(self, probabilities: Tensor) -> Tensor:
        """The Hessian, unknowns ordered class by class, shape [S, q p, q p]."""
        count, size, p = self.x.shape
        weighted = probabilities[..., None] * self.x[:, :, None]
        flat = weighted.flatten(2)
        hessian = -(flat.transpose(1, 2) @ flat)
        by_class = weighted.permute(0, 2, 3, 1) @ self.x[:, None]
        blocks = hessian.view(count, self.outputs, p, self.outputs, p)
        torch.diagonal(blocks, dim1=1, dim2=3).add_(by_class.permute(0, 2, 3, 1))
        hessian /= size
        diagonal = torch.diagonal(hessian, dim1=1, dim2=2)
        # Directions without curvature (an equal shift of all classes, features that no record
        # has) have no gradient either: any positive number serves.
        diagonal.add_(2 * self.decay[:, :, 0] + 1e-12 * (1 + diagonal.amax(1, keepdim=True)))
        return hessian


def _newton(problem: _Problem) -> tuple[Tensor, Tensor]:
    """Newton's method with step halving."""
    weights = problem.start
    result, converged = weights.clone(), weights.new_zeros(len(weights), dtype=torch.bool)
    active = torch.arange(len(weights), device=weights.device)
    for _ in range(_NEWTON_STEPS):
        probabilities = problem.probabilities(weights)
        gradient = problem.gradient(weights, probabilities)
        done = gradient.abs().amax((1, 2)) <= _TOLERANCE
        if bool(done.any()):
            result[active[done]], converged[active[done]] = weights[done], True
            active, weights, problem = active[~done], weights[~done], problem.subset(~done)
            probabilities, gradient = probabilities[~done], gradient[~done]
        if not len(active):
            break
        flat = gradient.transpose(1, 2).flatten(1)
        factor = torch.linalg.cholesky(problem.curvature(probabilities))
        step = torch.cholesky_solve(flat[..., None], factor)[..., 0]
        slope = (flat * step).sum(1)
        direction = step.view(len(active), problem.outputs, -1).transpose(1, 2)
        weights = _descend_along(problem, weights, direction, slope)
    result[active] = weights
    return result, converged


def _descend_along(problem: _Problem, weights: Tensor, step: Tensor, slope: Tensor) -> Tensor:
    """Take the step, halved for each model until it lowers its objective enough."""
    length = torch.ones_like(slope)
    before = problem.value(weights)
    for _ in range(_HALVINGS):
        moved = weights - length[:, None, None] * step
        # Near the minimum the fall drowns in rounding: there the full step is right.
        slack = 1e-14 * before.abs()
        short = problem.value(moved) > before - 1e-4 * length * slope + slack
        if not bool(short.any()):
            break
        length = torch.where(short, length / 2, length)
    return weights - length[:, None, None] * step


def _accelerated_descent(problem: _Problem) -> tuple[Tensor, Tensor]:
    """Nesterov's descent with restarts, in the metric of a fixed bound on the curvature.

    The Hessian of the cross-entropy never exceeds X'X/2n per class (X'X/4n for two; Böhning
    1992), so no step size is needed.
    """
    weights = problem.start
    inverse = _inverse_bound(problem)
    ahead, momentum = weights.clone(), weights.new_ones(len(weights))
    result, converged = weights.clone(), weights.new_zeros(len(weights), dtype=torch.bool)
    active = torch.arange(len(weights), device=weights.device)
    for step in range(1, _DESCENT_STEPS + 1):
        gradient = problem.gradient(ahead, problem.probabilities(ahead))
        moved = ahead - inverse @ gradient
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
                momentum, inverse = momentum[kept], inverse[kept]
                problem = problem.subset(kept)
            if not len(active):
                break
    result[active] = weights
    return result, converged


def _inverse_bound(problem: _Problem) -> Tensor:
    x = problem.x
    bound = x.transpose(1, 2) @ x / (x.shape[1] * (4 if problem.outputs == 1 else 2))
    identity = torch.eye(x.shape[2], dtype=x.dtype, device=x.device)
    floor = 1e-9 * torch.diagonal(bound, dim1=1, dim2=2).sum(1)[:, None, None]
    inverse: Tensor = torch.linalg.inv(bound + (2 * problem.decay + floor) * identity)
    return inverse
