"""Logistic regression as a target model, trained to convergence.

Minimises the mean cross-entropy plus lambda times the squared norm of the coefficients, without
an intercept (arXiv 2001.10648, eq. 1). Two classes share one coefficient vector; more classes have
one each. Each model stops separately, so its result does not depend on its stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from privnets.differential_privacy.per_example import LayerTape, ghost_clipping
from privnets.membership.config import MembershipConfig
from privnets.membership.models import GRADIENT_TOLERANCE, MAX_NEWTON_UNKNOWNS, Logistic
from privnets.membership.private.training import fit_privately
from privnets.membership.shared import ModelBatch, SharedTrainer, with_reference_class

_NEWTON_STEPS = 60
_HALVINGS = 30
_DESCENT_STEPS = 3000
_CHECK_EVERY = 10


class LogisticTrainer(SharedTrainer):
    """Trains logistic regressions, each to convergence."""

    model = Logistic()

    def parameter_count(self, config: MembershipConfig, features: int, classes: int) -> int:
        """One coefficient vector for two classes, else one for each."""
        return features * (1 if classes == 2 else classes)

    def fit(self, batch: ModelBatch) -> tuple[Tensor, Tensor]:
        """Trains to convergence (see `fit_logistic`), or by DP-SGD from coefficients of zero."""
        if batch.config.private_mechanism == "dp_sgd":
            outputs = 1 if batch.classes == 2 else batch.classes
            start = batch.x.new_zeros(len(batch.x), batch.x.shape[-1], outputs)
            return fit_privately(batch, [start], ghost_clipping(_on_tape, _losses))
        weights, converged = fit_logistic(
            batch.x, batch.y.long(), batch.classes, batch.weight_decay
        )
        return weights.flatten(1), converged

    def outputs(self, config: MembershipConfig, flat: Tensor, x: Tensor, classes: int) -> Tensor:
        """Logits of the classes that have coefficients."""
        return x @ flat.view(len(flat), x.shape[-1], -1)

    def identify(self, flat: Tensor, classes: int) -> Tensor:
        """Removes an equal shift of all classes, which the softmax ignores."""
        if classes == 2:
            return flat
        weights = flat.view(len(flat), -1, classes)
        identity = torch.eye(classes, dtype=flat.dtype, device=flat.device)
        basis = torch.linalg.qr(identity[:, :-1] - 1 / classes).Q
        identified: Tensor = weights @ basis
        return identified.flatten(1)


def _on_tape(tape: LayerTape, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
    return tape.dense(x, parameters[0])


def _losses(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of each record, shape [S, n]."""
    log_p = with_reference_class(logits).log_softmax(-1)
    return -log_p.gather(-1, y.long()[..., None])[..., 0]


def fit_logistic(x: Tensor, y: Tensor, classes: int, weight_decay: Tensor) -> tuple[Tensor, Tensor]:
    """Trains models by Newton's method (few unknowns) or by accelerated descent.

    Args:
        x: Features of each training set, shape [S, n, p], float64.
        y: Classes, int64, shape [S, n].
        classes: Number of classes, at least 2.
        weight_decay: Weight lambda of each model, shape [S].

    Returns:
        Coefficients, shape [S, p, q], q = 1 for two classes and `classes` otherwise; and whether
        each model converged, shape [S]. Without regularisation, data that a model classifies
        without error have no minimiser: the loss decreases as the coefficients grow. The model
        returned is the first with a vanishing gradient.
    """
    one_hot = torch.nn.functional.one_hot(y, classes).to(x.dtype)
    target = one_hot[..., 1:] if classes == 2 else one_hot
    objective = _CrossEntropy(x, target, weight_decay.to(x.dtype)[:, None, None])
    use_newton = x.shape[2] * objective.outputs <= MAX_NEWTON_UNKNOWNS
    weights, converged = _newton(objective) if use_newton else _accelerated_descent(objective)
    predicted = with_reference_class(x @ weights).log_softmax(-1).argmax(-1)
    is_separable = (predicted == y).all(1)
    return weights, converged & ~(is_separable & (weight_decay == 0))


@dataclass(frozen=True)
class _CrossEntropy:
    """Regularised cross-entropy of each model of a stack.

    Attributes:
        x: Features, shape [S, n, p].
        target: 1 for the class of a record, else 0, shape [S, n, q].
        decay: Shape [S, 1, 1].
    """

    x: Tensor
    target: Tensor
    decay: Tensor

    @property
    def outputs(self) -> int:
        """Number of classes that have coefficients, q."""
        return self.target.shape[-1]

    @property
    def start(self) -> Tensor:
        """Coefficients of zero, shape [S, p, q]."""
        return self.x.new_zeros(len(self.x), self.x.shape[2], self.outputs)

    def subset(self, kept: Tensor) -> _CrossEntropy:
        """Objectives of some of the models."""
        return _CrossEntropy(self.x[kept], self.target[kept], self.decay[kept])

    def probabilities(self, weights: Tensor) -> Tensor:
        """Probabilities of the classes that have coefficients, shape [S, n, q]."""
        return with_reference_class(self.x @ weights).softmax(-1)[..., -self.outputs :]

    def value(self, weights: Tensor) -> Tensor:
        """Value of each objective, shape [S]."""
        logits = self.x @ weights
        spread = with_reference_class(logits).logsumexp(-1) - (logits * self.target).sum(-1)
        return spread.mean(1) + (self.decay * weights.square()).sum((1, 2))

    def gradient(self, weights: Tensor, probabilities: Tensor) -> Tensor:
        """Gradient, shape [S, p, q]."""
        slope = self.x.transpose(1, 2) @ (probabilities - self.target) / self.x.shape[1]
        return slope + 2 * self.decay * weights

    def curvature(self, probabilities: Tensor) -> Tensor:
        """Hessian with unknowns ordered by class, shape [S, q p, q p]."""
        count, size, p = self.x.shape
        weighted = probabilities[..., None] * self.x[:, :, None]
        flat = weighted.flatten(2)
        hessian = -(flat.transpose(1, 2) @ flat)
        by_class = weighted.permute(0, 2, 3, 1) @ self.x[:, None]
        blocks = hessian.view(count, self.outputs, p, self.outputs, p)
        torch.diagonal(blocks, dim1=1, dim2=3).add_(by_class.permute(0, 2, 3, 1))
        hessian /= size
        diagonal = torch.diagonal(hessian, dim1=1, dim2=2)
        # Directions without curvature (an equal shift of all classes, features that are 0 in
        # all records) have no gradient either, so any positive number works.
        diagonal.add_(2 * self.decay[:, :, 0] + 1e-12 * (1 + diagonal.amax(1, keepdim=True)))
        return hessian


def _newton(objective: _CrossEntropy) -> tuple[Tensor, Tensor]:
    """Newton's method with step halving."""
    weights = objective.start
    result, converged = weights.clone(), weights.new_zeros(len(weights), dtype=torch.bool)
    active = torch.arange(len(weights), device=weights.device)
    for _ in range(_NEWTON_STEPS):
        probabilities = objective.probabilities(weights)
        gradient = objective.gradient(weights, probabilities)
        done = gradient.abs().amax((1, 2)) <= GRADIENT_TOLERANCE
        if bool(done.any()):
            result[active[done]], converged[active[done]] = weights[done], True
            active, weights, objective = active[~done], weights[~done], objective.subset(~done)
            probabilities, gradient = probabilities[~done], gradient[~done]
        if not len(active):
            break
        flat = gradient.transpose(1, 2).flatten(1)
        factor = torch.linalg.cholesky(objective.curvature(probabilities))
        step = torch.cholesky_solve(flat[..., None], factor)[..., 0]
        slope = (flat * step).sum(1)
        direction = step.view(len(active), objective.outputs, -1).transpose(1, 2)
        weights = _descend_along(objective, weights, direction, slope)
    result[active] = weights
    return result, converged


def _descend_along(
    objective: _CrossEntropy, weights: Tensor, step: Tensor, slope: Tensor
) -> Tensor:
    """Halves each model's step until it decreases the objective enough (Armijo's rule)."""
    length = torch.ones_like(slope)
    before = objective.value(weights)
    for _ in range(_HALVINGS):
        moved = weights - length[:, None, None] * step
        # Near the minimum, rounding exceeds the decrease, and the full step is right.
        slack = 1e-14 * before.abs()
        too_small = objective.value(moved) > before - 1e-4 * length * slope + slack
        if not bool(too_small.any()):
            break
        length = torch.where(too_small, length / 2, length)
    return weights - length[:, None, None] * step


def _accelerated_descent(objective: _CrossEntropy) -> tuple[Tensor, Tensor]:
    """Nesterov's descent with restarts, preconditioned by a fixed bound on the curvature.

    The Hessian of the cross-entropy is at most X'X/2n for each class (X'X/4n for two; Böhning
    1992), so no step size is needed.
    """
    weights = objective.start
    inverse = _inverse_bound(objective)
    ahead, momentum = weights.clone(), weights.new_ones(len(weights))
    result, converged = weights.clone(), weights.new_zeros(len(weights), dtype=torch.bool)
    active = torch.arange(len(weights), device=weights.device)
    for step in range(1, _DESCENT_STEPS + 1):
        gradient = objective.gradient(ahead, objective.probabilities(ahead))
        moved = ahead - inverse @ gradient
        uphill = (gradient * (moved - weights)).sum((1, 2)) > 0
        momentum = torch.where(uphill, 1.0, momentum)
        following = (1 + (1 + 4 * momentum**2).sqrt()) / 2
        push = torch.where(uphill, 0.0, (momentum - 1) / following)
        ahead = moved + push[:, None, None] * (moved - weights)
        weights, momentum = moved, following
        if step % _CHECK_EVERY == 0:
            done = gradient.abs().amax((1, 2)) <= GRADIENT_TOLERANCE
            if bool(done.any()):
                result[active[done]], converged[active[done]] = weights[done], True
                kept = ~done
                active, weights, ahead = active[kept], weights[kept], ahead[kept]
                momentum, inverse = momentum[kept], inverse[kept]
                objective = objective.subset(kept)
            if not len(active):
                break
    result[active] = weights
    return result, converged


def _inverse_bound(objective: _CrossEntropy) -> Tensor:
    x = objective.x
    bound = x.transpose(1, 2) @ x / (x.shape[1] * (4 if objective.outputs == 1 else 2))
    identity = torch.eye(x.shape[2], dtype=x.dtype, device=x.device)
    floor = 1e-9 * torch.diagonal(bound, dim1=1, dim2=2).sum(1)[:, None, None]
    inverse: Tensor = torch.linalg.inv(bound + (2 * objective.decay + floor) * identity)
    return inverse
