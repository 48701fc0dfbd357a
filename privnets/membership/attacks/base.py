"""Interface of membership attacks, and the trials on which they are judged.

Trials come in two folds. An attack is fitted on the models of one fold (its shadow models) and
judged on the models of the other, and vice versa, so no target model is among its own shadows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final

import torch
from torch import Tensor

BOUNDS_ON_OUTPUTS: Final = ("bound/advantage", "bound/advantage_output")
"""Bounds on attacks that depend on the model's output at the record alone."""

MIN_POPULATION: Final = 10
"""Least number of records in the population outside each training set, to rank among them."""

TOO_FEW_SHADOWS: Final = "a record has too few shadow models that trained with it, or without it"


@dataclass(frozen=True)
class Population:
    """Observations of K records that are not attacked, whose membership the attacker knows.

    Attributes:
        outside: Whether the record was outside the training set of model j, shape [K, J].
        signal: As in `Trials`, shape [K, J].
        loss: As in `Trials`, shape [K, J].
        features: Regressors of the signal, functions of a record, shape [K, q].
        features_of_records: The same of the attacked records, shape [R, q].
    """

    outside: Tensor
    signal: Tensor
    loss: Tensor
    features: Tensor
    features_of_records: Tensor

    def why_too_small(self, least: int) -> str | None:
        """Reason if a model has fewer records outside its training set than `least`, or None."""
        fewest = int(self.outside.sum(0).min())
        if fewest >= least:
            return None
        return (
            f"{fewest} records are neither attacked nor in the training set, and at least {least} "
            "are needed; attack fewer records"
        )


@dataclass(frozen=True, eq=False)
class Trials:
    """Observations of an attacker: R records, and J models for each.

    Column j is the same model for all records, except for linear models: there every record has
    models of its own.

    Attributes:
        member: Whether the record was in the training set, shape [R, J].
        fold: Which half of the models model j belongs to, 0 or 1, shape [J].
        signal: Nearly Gaussian for each record: the residual y - f(x) of a regression, or the
            logit of the probability of the true class; shape [R, J].
        error: The residual, or one minus the probability of the true class; shape [R, J].
        loss: Loss of the model at the record, without the penalty, shape [R, J].
        train_loss: Mean training loss of the model, shape [R, J] or broadcast to it.
        two_sided: Whether members have signals nearer to 0 (residuals) rather than larger ones.
        parameters: Parameters as released, shape [R, J, p], or [J, p] if every record has the
            same models; None if the attacker sees outputs alone.
        draw: Draw to which model j belongs, shape [J]; the two models of a draw share all members
            but the record. None if no two models do.
        population: Observations of other records by the same models; None if every record has
            models of its own.
        queries: Signals at changed copies of the records, shape [Q, R, J]; None without any.
        trajectory: Losses at the records in the course of training, shape [E, R, J]; the last ones
            are those of the trained models. None if the attacker sees no training.
    """

    member: Tensor
    fold: Tensor
    signal: Tensor
    error: Tensor
    loss: Tensor
    train_loss: Tensor
    two_sided: bool
    parameters: Tensor | None = None
    draw: Tensor | None = None
    population: Population | None = None
    queries: Tensor | None = None
    trajectory: Tensor | None = None

    def fewest_shadows(self, *sides: bool) -> int:
        """Least number of models with a record, or without it, in one fold.

        Args:
            sides: True for models with the record, False for those without it; both by default.
        """
        counts = [
            (self.member[:, self.fold == fold] == side).sum(1)
            for fold in (0, 1)
            for side in (sides or (False, True))
        ]
        return int(torch.stack(counts).min())


@dataclass(frozen=True)
class Guesses:
    """Answers of an attack.

    Attributes:
        score: Larger for more likely members, shape [R, J].
        decision: Whether the attack calls the record a member, bool, shape [R, J].
    """

    score: Tensor
    decision: Tensor


class Attack(ABC):
    """Base class of membership attacks.

    Attributes:
        bounds: Metrics that bound the attack's advantage, in order of preference; the first that
            is defined is checked.
    """

    name: ClassVar[str]
    bounds: ClassVar[tuple[str, ...]] = ()

    def why_unavailable(self, trials: Trials) -> str | None:
        """Returns the reason why the attack cannot be run on these trials, or None."""
        return None

    @abstractmethod
    def guess(self, trials: Trials) -> Guesses:
        """Answers all trials, each fold with what was fitted on the other."""


def threshold_of_shadows(score: Tensor, trials: Trials) -> Guesses:
    """Decides each fold by the threshold with the largest advantage on the other fold."""
    decision = torch.empty_like(trials.member)
    for target in (0, 1):
        targets, shadows = trials.fold == target, trials.fold != target
        _, threshold = best_threshold(score[:, shadows], trials.member[:, shadows])
        decision[:, targets] = score[:, targets] >= threshold
    return Guesses(score, decision)


def best_threshold(score: Tensor, member: Tensor) -> tuple[float, float]:
    """Largest advantage of calling scores from a threshold on members, and that threshold."""
    order = score.flatten().argsort(descending=True)
    ranked = member.flatten()[order]
    ordered = score.flatten()[order]
    advantage = ranked.cumsum(0) / ranked.sum() - (~ranked).cumsum(0) / (~ranked).sum()
    # No threshold separates equal scores, so only the last of a run counts.
    is_last = torch.ones_like(ranked)
    is_last[:-1] = ordered[1:] != ordered[:-1]
    best = torch.where(is_last, advantage, -1.0).argmax()
    return float(advantage[best]), float(ordered[best])


def partners(draw: Tensor) -> Tensor:
    """Index of the other model of the same draw, from draws [n] that occur twice each."""
    pairs = draw.argsort().view(-1, 2)
    partner = torch.empty_like(draw)
    partner[pairs] = pairs.flip(1)
    return partner
