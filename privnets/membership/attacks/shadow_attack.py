"""Base class of attacks that compare a target's signal with those of shadow models."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from privnets.membership.attacks.base import (
    BOUNDS_ON_OUTPUTS,
    TOO_FEW_SHADOWS,
    Attack,
    Guesses,
    Trials,
    best_threshold,
    partners,
)
from privnets.reference_models import Array, BoolArray, ComparedSignals, References

_MIN_SHADOWS = 2
# Comparisons of one fold's models with another's, which all attacks on the same trials share.
_COMPARED: WeakKeyDictionary[Trials, dict[tuple[int, int, bool], ComparedSignals]] = (
    WeakKeyDictionary()
)


class ShadowAttack(Attack):
    """Base class of attacks that compare a target's signal with those of shadow models.

    Attributes:
        sides: Sides on which every record needs two shadow models in each fold: with the record
            (True), or without it (False).
        threshold: Least score of a member. If None, the shadow models choose it, as the one with
            the largest advantage among them. Each is then scored without itself, unless that
            leaves a record with fewer than two shadow models on a side.
    """

    bounds: ClassVar[tuple[str, ...]] = BOUNDS_ON_OUTPUTS
    sides: ClassVar[tuple[bool, ...]] = (False,)
    threshold: ClassVar[float | None] = None

    def why_unavailable(self, trials: Trials) -> str | None:
        """Every record needs two shadow models on each of the `sides` of each fold."""
        return TOO_FEW_SHADOWS if trials.fewest_shadows(*self.sides) < _MIN_SHADOWS else None

    @abstractmethod
    def score(self, compared: ComparedSignals) -> Array:
        """Scores the judged models, shape [T, R]; the references are shadow models."""

    def guess(self, trials: Trials) -> Guesses:
        """Scores and decides the models of each fold with the other fold as shadow models."""
        score = torch.empty_like(trials.signal)
        decision = torch.empty_like(trials.member)
        can_leave_out = trials.fewest_shadows(*self.sides) > _MIN_SHADOWS
        for target in (0, 1):
            targets, shadows = trials.fold == target, trials.fold != target
            score[:, targets] = self._score(trials, target, 1 - target)
            threshold = self.threshold
            if threshold is None:
                known = self._score(trials, 1 - target, 1 - target, leaves_out=can_leave_out)
                _, threshold = best_threshold(known, trials.member[:, shadows])
            decision[:, targets] = score[:, targets] >= threshold
        return Guesses(score, decision)

    def _score(
        self, trials: Trials, judged: int, shadows: int, *, leaves_out: bool = False
    ) -> Tensor:
        compared = _COMPARED.setdefault(trials, {})
        key = judged, shadows, leaves_out
        if key not in compared:
            folds = trials.fold == judged, trials.fold == shadows
            compared[key] = compare(trials, *folds, leaves_out=leaves_out)
        rows = self.score(compared[key])
        return torch.from_numpy(rows.T).to(trials.signal)


def compare(
    trials: Trials, judged: Tensor, shadows: Tensor, *, leaves_out: bool = False
) -> ComparedSignals:
    """Compares some models with shadow models.

    Args:
        judged: Whether a model is judged, shape [J].
        shadows: Whether a model is a shadow model, shape [J].
        leaves_out: Whether the judged models are the shadow models, each compared with the others.
    """
    scale = 1.0
    if trials.two_sided:
        outside = ~trials.member & shadows
        scale = max(2 * float(trials.loss[outside].mean()), 1e-300)
    member = _flags(trials.member[:, shadows])
    queries = trials.queries if trials.queries is not None else ()
    return ComparedSignals(
        signal=_rows(trials.signal[:, judged]),
        of_references=_rows(trials.signal[:, shadows]),
        logs=-_rows(trials.loss[:, judged]) / scale,
        logs_of_references=-_rows(trials.loss[:, shadows]) / scale,
        references=_references(trials, member, shadows) if leaves_out else References(member),
        two_sided=trials.two_sided,
        population=_compare_population(trials, judged, shadows, scale, leaves_out),
        queries=tuple((_rows(each[:, judged]), _rows(each[:, shadows])) for each in queries),
    )


def _references(trials: Trials, member: BoolArray, shadows: Tensor) -> References:
    """Shadow models, each without itself and without the other model of its draw."""
    companions = None
    if trials.draw is not None:
        other = partners(trials.draw[shadows]).cpu().numpy()
        companions = np.broadcast_to(other[:, None], member.shape)
    return References.leave_one_out(member, np.arange(len(member)), companions)


def _compare_population(
    trials: Trials, judged: Tensor, shadows: Tensor, scale: float, leaves_out: bool
) -> ComparedSignals | None:
    """Compares models at the population, each at the records outside its training set."""
    if (population := trials.population) is None:
        return None
    member, left_out = ~_flags(population.outside[:, shadows]), None
    if leaves_out:
        own = np.broadcast_to(np.arange(len(member))[:, None], member.shape)
        left_out = own, own
    logs = -_rows(population.loss[:, judged]) / scale
    return ComparedSignals(
        signal=_rows(population.signal[:, judged]),
        of_references=_rows(population.signal[:, shadows]),
        logs=np.where(_flags(population.outside[:, judged]), logs, np.nan),
        logs_of_references=-_rows(population.loss[:, shadows]) / scale,
        references=References(member, left_out),
        two_sided=trials.two_sided,
    )


def _rows(values: Tensor) -> Array:
    rows: Array = values.T.double().cpu().numpy()
    return rows


def _flags(values: Tensor) -> BoolArray:
    flags: BoolArray = values.T.cpu().numpy()
    return flags
