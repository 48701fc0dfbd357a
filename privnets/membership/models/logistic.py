"""Logistic regression as a target model, trained to convergence.

Minimises the mean cross-entropy plus lambda times the squared norm of the coefficients, without
an intercept (arXiv 2001.10648, eq. 1). Two classes share one coefficient vector; more classes have
one each. Each model stops separately, so its result does not depend on its stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from privnets.differential_privacy.per_example import Tape, dense_gradients
from privnets.membership.config import MembershipConfig
from privnets.membership.models import GRADIENT_TOLERANCE, MAX_NEWTON_UNKNOWNS, Logistic
from privnets.membership.models.shared import (
    ModelBatch,
    SharedTrainer,
    fit_privately,
    with_reference_class,
)

_NEWTON_STEPS = 60
_HALVINGS = 30
# Weight decay, relative to the features' largest mean square, from which rounding in float32
# cannot make a Hessian indefinite.
_FLOAT32_DECAY = 1e-4
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
            return fit_privately(batch, [start], dense_gradients(_logits, _losses))
        weights, converged = fit_logistic(
            batch.x, batch.y.long(), batch.classes, batch.weight_decay
        )
        return weights.flatten(1), converged

    def outputs(self, config: MembershipConfig, flat: Tensor, x: Tensor, classes: int) -> Tensor:
        """Logits of the classes that have coefficients."""
        # Transposed, so that later reductions over classes run over records side by side.
        return (flat.view(len(flat), x.shape[-1], -1).mT @ x.mT).mT

    def identify(self, flat: Tensor, classes: int) -> Tensor:
        """Removes an equal shift of all classes, which the softmax ignores."""
        if classes == 2:
            return flat
        weights = flat.view(len(flat), -1, classes)
        identity = torch.eye(classes, dtype=flat.dtype, device=flat.device)
        basis = torch.linalg.qr(identity[:, :-1] - 1 / classes).Q
        identified: Tensor = weights @ basis
        return identified.flatten(1)


def _logits(tape: Tape, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
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
    objective = _CrossEntropy.of(x, y, classes, weight_decay)
    use_newton = x.shape[2] * objective.outputs <= MAX_NEWTON_UNKNOWNS
    weights, converged = _newton(objective) if use_newton else _accelerated_descent(objective)
    logits = (weights @ objective.x).mT
    is_separable = (with_reference_class(logits).argmax(-1) == y).all(1)
    return weights.mT, converged & ~(is_separable & (weight_decay == 0))


class _Expansion(NamedTuple):
    """Objectives at some coefficients.

    Attributes:
        value: Shape [S].
        gradient: Shape [S, q, p].
        probabilities: Probabilities of the classes that have coefficients, shape [S, q, n].
    """

    value: Tensor
    gradient: Tensor
    probabilities: Tensor


@dataclass(frozen=True)
class _CrossEntropy:
    """Regularised cross-entropy of each model of a stack.

    Records are the innermost dimension; products of few features would use a small part of the
    vector unit.

    Attributes:
        x: Features, shape [S, p, n], float64.
        observed: Mean of features times targets, shape [S, q, p].
        decay: Shape [S, 1, 1].
        hessian_x: Features from which Hessians are computed, in float32 where that is safe. It
            costs no accuracy: values and gradients, which decide when to stop, are in float64.
    """

    x: Tensor
    observed: Tensor
    decay: Tensor
    hessian_x: Tensor

    @classmethod
    def of(cls, x: Tensor, y: Tensor, classes: int, weight_decay: Tensor) -> _CrossEntropy:
        """Prepares the objectives; see `fit_logistic`."""
        target = torch.nn.functional.one_hot(y, classes).to(x.dtype).mT
        if classes == 2:
            target = target[:, 1:]
        transposed = x.mT.contiguous()
        least_decay = _FLOAT32_DECAY * transposed.square().mean(2).amax(1)
        is_safe = bool((weight_decay >= least_decay).all())
        return cls(
            x=transposed,
            observed=target @ x / x.shape[1],
            decay=weight_decay.to(x.dtype)[:, None, None],
            hessian_x=transposed.float() if is_safe else transposed,
        )

    @property
    def outputs(self) -> int:
        """Number of classes that have coefficients, q."""
        return self.observed.shape[1]

    @property
    def start(self) -> Tensor:
        """Coefficients after a Newton step from zero, shape [S, q, p].

        With equal probabilities the Hessian is X'X/qn for each class, X'X/4n for two: gradients
        sum to zero over the classes.
        """
        classes = max(self.outputs, 2)
        downhill = self.observed - self.x.mean(2)[:, None] / classes
        return downhill @ self.inverse_curvature(4 if classes == 2 else classes)

    def subset(self, kept: Tensor) -> _CrossEntropy:
        """Objectives of some of the models."""
        parts = self.x[kept], self.observed[kept], self.decay[kept], self.hessian_x[kept]
        return _CrossEntropy(*parts)

    def expand(self, weights: Tensor) -> _Expansion:
        """Computes values and gradients at coefficients [S, q, p]."""
        logits = weights @ self.x
        largest = logits.amax(1, keepdim=True)
        if self.outputs == 1:
            largest.clamp_min_(0)
        odds = logits.sub_(largest).exp_()
        total = odds.sum(1, keepdim=True)
        if self.outputs == 1:
            total += (-largest).exp_()
        probabilities = odds.div_(total)
        penalty = self.decay * weights
        loss = (largest + total.log()).mean((1, 2))
        value = loss + (weights * (penalty - self.observed)).sum((1, 2))
        expected = probabilities @ self.x.mT / self.x.shape[2]
        return _Expansion(value, expected - self.observed + 2 * penalty, probabilities)

    def hessian(self, probabilities: Tensor) -> Tensor:
        """Computes Hessians with unknowns ordered by class, shape [S, q p, q p]."""
        x = self.hessian_x
        count, p, size = x.shape
        weighted = (probabilities.to(x.dtype)[:, :, None] * x[:, None]).flatten(1, 2)
        hessian = weighted @ weighted.mT / -size
        by_class = (weighted @ x.mT / size).view(count, self.outputs, p, p)
        blocks = hessian.view(count, self.outputs, p, self.outputs, p)
        torch.diagonal(blocks, dim1=1, dim2=3).add_(by_class.permute(0, 2, 3, 1))
        diagonal = torch.diagonal(hessian, dim1=1, dim2=2)
        # Directions without curvature (an equal shift of all classes, features that are 0 in
        # all records) have no gradient either, so any positive number works.
        diagonal.add_(2 * self.decay[:, :, 0] + 1e-12 * (1 + diagonal.amax(1, keepdim=True)))
        return hessian

    def inverse_curvature(self, divisor: int) -> Tensor:
        """Inverse of X'X/(divisor n) plus the curvature of the penalty, shape [S, p, p]."""
        product = self.x @ self.x.mT / (divisor * self.x.shape[2])
        # For features without variation and no weight decay.
        floor = 1e-9 * torch.diagonal(product, dim1=1, dim2=2).sum(1)[:, None, None] + 1e-12
        identity = torch.eye(self.x.shape[1], dtype=self.x.dtype, device=self.x.device)
        inverse: Tensor = torch.linalg.inv(product + (2 * self.decay + floor) * identity)
        return inverse


def _newton(objective: _CrossEntropy) -> tuple[Tensor, Tensor]:
    """Newton's method with step halving."""
    weights = objective.start
    now = objective.expand(weights)
    result, converged = weights.clone(), weights.new_zeros(len(weights), dtype=torch.bool)
    active = torch.arange(len(weights), device=weights.device)
    for _ in range(_NEWTON_STEPS):
        done = now.gradient.abs().amax((1, 2)) <= GRADIENT_TOLERANCE
        if bool(done.any()):
            kept = ~done
            result[active[done]], converged[active[done]] = weights[done], True
            active, weights, objective = active[kept], weights[kept], objective.subset(kept)
            now = _Expansion(*(each[kept] for each in now))
        if not len(active):
            break
        factor = torch.linalg.cholesky(objective.hessian(now.probabilities))
        flat = now.gradient.flatten(1)[..., None].to(factor.dtype)
        step = torch.cholesky_solve(flat, factor).view_as(weights).to(weights.dtype)
        slope = (now.gradient * step).sum((1, 2))
        length = torch.ones_like(slope)
        # Near the minimum, rounding exceeds the decrease, and the full step is right.
        most = now.value + 1e-14 * now.value.abs()
        moved = weights - step
        now = objective.expand(moved)
        for _ in range(_HALVINGS):  # until each step decreases the objective enough (Armijo)
            too_small = now.value > most - 1e-4 * length * slope
            if not bool(too_small.any()):
                break
            length = torch.where(too_small, length / 2, length)
            moved = weights - length[:, None, None] * step
            now = objective.expand(moved)
        weights = moved
    result[active] = weights
    return result, converged


def _accelerated_descent(objective: _CrossEntropy) -> tuple[Tensor, Tensor]:
    """Nesterov's descent with restarts, preconditioned by a fixed bound on the curvature.

    The Hessian of the cross-entropy is at most X'X/2n for each class (X'X/4n for two; Böhning
    1992), so no step size is needed.
    """
    weights = objective.start
    inverse = objective.inverse_curvature(4 if objective.outputs == 1 else 2)
    ahead, momentum = weights.clone(), weights.new_ones(len(weights))
    result, converged = weights.clone(), weights.new_zeros(len(weights), dtype=torch.bool)
    active = torch.arange(len(weights), device=weights.device)
    for step in range(1, _DESCENT_STEPS + 1):
        gradient = objective.expand(ahead).gradient
        moved = ahead - gradient @ inverse
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
