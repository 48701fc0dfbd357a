"""Base class of attacks that compare a target's signal with those of shadow models."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from privnets.attack_formulas import Array, BoolArray, ReferenceMoments, log_mean
from privnets.membership.attacks.base import (
    BOUNDS_ON_OUTPUTS,
    TOO_FEW_SHADOWS,
    Attack,
    Guesses,
    Trials,
    best_threshold,
)

_MIN_SHADOWS = 2


@dataclass(frozen=True, eq=False)
class Shadows:
    """Signals of all J models, those of one fold being shadow models; a row for each model.

    Attributes:
        signal: As in `Trials`, shape [J, R].
        logs: Log-probability of the target, shape [J, R]. Of a regression, that of a Gaussian
            whose variance is the mean squared error of the shadow models, without its constant.
        member: Whether the record was in the training set, shape [J, R].
        is_shadow: Whether a model is a shadow model, shape [J].
        two_sided: As in `Trials`.
        population_logs: Log-probability at the records of the population outside the training
            set, else NaN, shape [J, K]; None if there are none.
    """

    signal: Array
    logs: Array
    member: BoolArray
    is_shadow: BoolArray
    two_sided: bool
    population_logs: Array | None = None
    queries: tuple[Array, ...] = ()

    @classmethod
    def of(cls, trials: Trials, fold: int) -> Shadows:
        """Takes the models of one fold as shadow models."""
        scale, is_shadow = 1.0, trials.fold == fold
        if trials.two_sided:
            outside = ~trials.member & is_shadow
            scale = max(2 * float(trials.loss[outside].mean()), 1e-300)
        signal, member = _rows(trials.signal), trials.member.T.cpu().numpy()
        logs, shadow = -_rows(trials.loss) / scale, is_shadow.cpu().numpy()
        of_population = None
        if (population := trials.population) is not None:
            of_population = np.where(
                population.outside.T.cpu(), -_rows(population.loss) / scale, np.nan
            )
        copies = () if trials.queries is None else tuple(map(_rows, trials.queries))
        return cls(signal, logs, member, shadow, trials.two_sided, of_population, copies)

    @property
    def count(self) -> int:
        """Number of shadow models."""
        return int(self.is_shadow.sum())

    def moments(self, *, member: bool) -> ReferenceMoments:
        """Moments of the shadow models with a record, or without it, shape [1, R]."""
        chosen = self.is_shadow
        return ReferenceMoments.over(self.signal[chosen], self.member[chosen] == member)

    def by_query(self) -> Iterator[Shadows]:
        """The same with the signal at the record, and at each of its changed copies."""
        for signal in (self.signal, *self.queries):
            yield replace(self, signal=signal)

    def log_mean(self, *, member: bool) -> Array:
        """Logarithm of their mean probability, shape [1, R]."""
        chosen = self.is_shadow
        return log_mean(self.logs[chosen], self.member[chosen] == member)


class ShadowAttack(Attack):
    """Base class of attacks that compare a target's signal with those of shadow models.

    Attributes:
        sides: Sides on which every record needs two shadow models in each fold: with the record
            (True), or without it (False).
        threshold: Least score of a member. If None, the shadow models choose it, as the one with
            the largest advantage among them.
    """

    bounds: ClassVar[tuple[str, ...]] = BOUNDS_ON_OUTPUTS
    sides: ClassVar[tuple[bool, ...]] = (False,)
    threshold: ClassVar[float | None] = None

    def why_unavailable(self, trials: Trials) -> str | None:
        """Every record needs two shadow models on each of the `sides` of each fold."""
        return TOO_FEW_SHADOWS if trials.fewest_shadows(*self.sides) < _MIN_SHADOWS else None

    @abstractmethod
    def score(self, shadows: Shadows) -> Array:
        """Scores all models with the shadow models as references, shape [J, R]."""

    def guess(self, trials: Trials) -> Guesses:
        """Scores and decides the models of each fold with the other fold as shadow models."""
        score = torch.empty_like(trials.signal)
        decision = torch.empty_like(trials.member)
        for target in (0, 1):
            targets, shadows = trials.fold == target, trials.fold != target
            rows = self.score(Shadows.of(trials, 1 - target))
            values = torch.from_numpy(rows.T).to(trials.signal)
            threshold = self.threshold
            if threshold is None:
                _, threshold = best_threshold(values[:, shadows], trials.member[:, shadows])
            score[:, targets] = values[:, targets]
            decision[:, targets] = values[:, targets] >= threshold
        return Guesses(score, decision)


def _rows(values: Tensor) -> Array:
    rows: Array = values.T.double().cpu().numpy()
    return rows
