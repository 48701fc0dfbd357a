"""Signals of audited models and their references, in the form that attacks use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, xlogy

Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_TINY = 1e-30
_CLIP_QUANTILE = 0.99
_OWN_VARIANCE_REFERENCES = 64


@dataclass(frozen=True, eq=False)
class ReferenceMoments:
    """Moments of each record's signal over the reference models of one side, shape [T, R] each.

    Attributes:
        count: Number of reference models.
        mean: Mean signal; NaN without a model.
        scatter: Sum of squared deviations from the mean.
    """

    count: Array
    mean: Array
    scatter: Array

    @cached_property
    def pooled_variance(self) -> Array:
        """Variance within records, pooled over records; shape [T, 1]."""
        freedom = np.maximum(self.count - 1, 0).sum(1, keepdims=True)
        total = self.scatter.sum(1, keepdims=True)
        variance = np.divide(total, freedom, out=np.full_like(total, np.nan), where=freedom > 0)
        bounded: Array = np.maximum(variance, _TINY)
        return bounded

    def variance(self, references: int) -> Array:
        """Variance that LiRA uses: a record's own from 64 references on, else the pooled one."""
        if references < _OWN_VARIANCE_REFERENCES:
            return self.pooled_variance
        own = self.scatter / np.maximum(self.count - 1, 1)
        return np.maximum(np.where(self.count > 1, own, self.pooled_variance), _TINY)


@dataclass(frozen=True, eq=False)
class ModelSignals:
    """Signals of M models at R records; T of the models are audited, each by all the others.

    Attributes:
        values: Signals by name, shape [M, R], larger for more likely members.
        signal: Nearly Gaussian signal of attacks with references, shape [M, R].
        confidence: Probability of the true class after clipping, shape [M, R]; None if unknown.
        member: Whether the record was in the training set, shape [M, R].
        targets: Numbers of the audited models, shape [T].
        records: Label of each record.
        clip: Distance from 0 and 1 to which probabilities were clipped; 0 if they were not.
    """

    values: Mapping[str, Array]
    signal: Array
    confidence: Array | None
    member: BoolArray
    targets: NDArray[np.int64]
    records: NDArray[np.object_]
    clip: float

    @property
    def references(self) -> int:
        """Number of reference models of each audited model."""
        return len(self.member) - 1

    @property
    def target_member(self) -> BoolArray:
        """Membership in the training sets of the audited models, shape [T, R]."""
        return self.member[self.targets]

    def moments(self, values: Array, *, member: bool) -> ReferenceMoments:
        """Moments over the reference models that trained with a record, or without it.

        Each audited model is left out of its own references.

        Args:
            values: Values of every model, shape [M, R].
        """
        side = self.member == member
        centre = values.mean(0)
        deviation = np.where(side, values - centre, 0.0)
        own = side[self.targets]
        count = side.sum(0) - own.astype(float)
        total = deviation.sum(0) - deviation[self.targets]
        squares = np.square(deviation).sum(0) - np.square(deviation[self.targets])
        mean = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
        scatter = np.where(count > 1, np.maximum(squares - total * np.nan_to_num(mean), 0.0), 0.0)
        return ReferenceMoments(count, centre + mean, scatter)


def derive_from_probabilities(probabilities: Array, labels: NDArray[np.int64]) -> dict[str, Array]:
    """Signals of class probabilities, each larger for more likely members.

    Entropies are in nats. The modified entropy is that of Song and Mittal (USENIX Security 2021,
    eq. 8): -(1 - p_y) log p_y - sum over other classes of p_k log(1 - p_k).

    Args:
        probabilities: Shape [M, R, C].
        labels: True classes, shape [R].

    Returns:
        `loss`, `confidence`, `entropy`, `modified_entropy` and `logit`, shape [M, R] each.
    """
    index = labels[None, :, None]
    true = np.take_along_axis(probabilities, index, axis=2)[..., 0]
    others = probabilities.copy()
    np.put_along_axis(others, index, 0.0, axis=2)
    rest = others.sum(2)
    log_true = np.log(np.maximum(true, _TINY))
    wrong = (others * np.log(np.maximum(1 - others, _TINY))).sum(2)
    with np.errstate(divide="ignore"):
        log_odds = np.log(true) - np.log(rest)
    return {
        "loss": log_true,
        "confidence": true,
        "entropy": xlogy(probabilities, probabilities).sum(2),
        "modified_entropy": (1 - true) * log_true + wrong,
        "logit": log_odds,
    }


def logit_of_loss(loss: Array) -> Array:
    """Log-odds of the true class, -log(exp(loss) - 1), from a cross-entropy loss >= 0."""
    with np.errstate(divide="ignore", over="ignore"):
        small = -np.log(np.expm1(np.minimum(loss, 30.0)))
    return np.where(loss > 30.0, -loss, small)


def choose_clip(log_odds: Array) -> float:
    """Half the distance of the most extreme probabilities from 0 or 1, other than 0 and 1.

    A forest of 50 trees votes in steps of 0.02 and gets 0.01: a continuity correction. The most
    extreme one is the 99% quantile of |log-odds| over finite values. No membership is used.
    """
    sizes = np.abs(log_odds[np.isfinite(log_odds)])
    if not len(sizes):
        return 0.25
    return max(_TINY, float(expit(-np.quantile(sizes, _CLIP_QUANTILE)) / 2))


def clip_log_odds(log_odds: Array, clip: float) -> Array:
    """Log-odds of probabilities clipped to [clip, 1 - clip]."""
    limit = -float(logit(clip))
    return np.clip(log_odds, -limit, limit)
