"""Formulas of membership attacks: scores from a target's signal and those of reference models.

Audits and the membership experiment share them. Arrays have a row for each target model and a
column for each record, shape [T, R]; moments may have one row for all targets. Scores are larger
for more likely members, and NaN where a record lacks the reference models that they need.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, ndtr, stdtr

Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_TINY_VARIANCE = 1e-30
_TINY = 1e-300
_OWN_VARIANCE_REFERENCES = 64
# Degrees of freedom of the prior of BaVarIA, and models that its prior adds to the members.
_PRIOR_FREEDOM = 4.0
_PRIOR_MEMBERS = 1.0
# Slope a of RMIA's estimate of p(x) without members (section 3.2 of the paper).
_OFFLINE_SLOPE = 0.3


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

    @classmethod
    def over(cls, values: Array, side: BoolArray) -> ReferenceMoments:
        """Moments over the reference models of one side of each record.

        Args:
            values: Signals of M reference models, shape [M, R].
            side: Which of them are on that side, shape [M, R].

        Returns:
            Moments of shape [1, R].
        """
        count = side.sum(0, keepdims=True).astype(float)
        total = np.where(side, values, 0.0).sum(0, keepdims=True)
        mean = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
        deviation = np.where(side, values - mean, 0.0)
        return cls(count, mean, np.square(deviation).sum(0, keepdims=True))

    @cached_property
    def pooled_variance(self) -> Array:
        """Variance within records, pooled over records; shape [T, 1]."""
        freedom = np.maximum(self.count - 1, 0).sum(1, keepdims=True)
        total = self.scatter.sum(1, keepdims=True)
        variance = np.divide(total, freedom, out=np.full_like(total, np.nan), where=freedom > 0)
        bounded: Array = np.maximum(variance, _TINY_VARIANCE)
        return bounded

    def variance(self, references: int) -> Array:
        """Variance that LiRA uses: a record's own from 64 references on, else the pooled one."""
        if references < _OWN_VARIANCE_REFERENCES:
            return self.pooled_variance
        own = self.scatter / np.maximum(self.count - 1, 1)
        return np.maximum(np.where(self.count > 1, own, self.pooled_variance), _TINY_VARIANCE)


def lira_online(
    signal: Array, inside: ReferenceMoments, outside: ReferenceMoments, references: int
) -> Array:
    """Log-likelihood ratio of two Gaussians (Carlini et al. 2022, arXiv 2112.03570).

    Args:
        references: Number of reference models of both sides. Below 64, variances are pooled over
            records, as in section VI of the paper.
    """
    return _log_normal(signal, inside, references) - _log_normal(signal, outside, references)


def lira_offline(signal: Array, outside: ReferenceMoments, references: int) -> Array:
    """Standardised distance from references without the record; the test is one-sided."""
    return (signal - outside.mean) / np.sqrt(outside.variance(references))


def lira_offline_of_residuals(residual: Array, outside: ReferenceMoments, references: int) -> Array:
    """Probability that a reference model without the record has a residual farther from 0."""
    deviation, size = np.sqrt(outside.variance(references)), np.abs(residual)
    above: Array = ndtr((outside.mean - size) / deviation)
    below: Array = ndtr((-size - outside.mean) / deviation)
    return above + below


def bavaria_online(signal: Array, inside: ReferenceMoments, outside: ReferenceMoments) -> Array:
    """Log-likelihood ratio of two Student-t predictive distributions (in the style of BaVarIA).

    Brännvall 2026, arXiv 2603.11799. Each side has a normal-inverse-gamma prior: four degrees of
    freedom for the pooled variance, and, for members, one model at the record's mean without it
    plus the average shift.
    """
    prior = outside.mean + _average_shift(inside.mean - outside.mean)
    count, extra = inside.count, _PRIOR_MEMBERS
    known = np.where(count > 0, inside.mean, prior)
    mean = (count * known + extra * prior) / (count + extra)
    scatter = inside.scatter + count * extra / (count + extra) * np.square(known - prior)
    # The prior model costs no degree of freedom for the mean.
    members = _log_student(signal, mean, scatter, inside.pooled_variance, count + extra, count)
    others = _log_student(
        signal,
        outside.mean,
        outside.scatter,
        outside.pooled_variance,
        outside.count,
        outside.count - 1,
    )
    return members - others


def bavaria_offline(signal: Array, outside: ReferenceMoments) -> Array:
    """Minus the log-probability that a model without the record has a larger signal.

    The predictive distribution is Student's t, as in `bavaria_online`.
    """
    freedom, width = _predictive(outside)
    distance = (signal - outside.mean) / width
    scores: Array = -np.log(np.maximum(stdtr(freedom, -distance), _TINY))
    return scores


def bavaria_offline_of_residuals(residual: Array, outside: ReferenceMoments) -> Array:
    """Log-probability that a model without the record has a residual farther from 0."""
    freedom, width = _predictive(outside)
    size = np.abs(residual)
    above = stdtr(freedom, (outside.mean - size) / width)
    below = stdtr(freedom, (-size - outside.mean) / width)
    scores: Array = np.log(np.maximum(above + below, _TINY))
    return scores


def rmia_online(logs: Array, inside: Array, outside: Array) -> Array:
    """Logarithm of p(x | model) / p(x), where p(x) averages references of both sides equally.

    Zarifzadeh et al. 2024, arXiv 2312.03262. `share_below` turns ratios into the scores of RMIA.

    Args:
        logs: Log-probability of the target (its true class) by the target models.
        inside: `log_mean` of references that trained with the record; `outside`: without it.
    """
    ratio: Array = logs - (_log_sum(inside, outside) - np.log(2))
    return ratio


def rmia_offline(logs: Array, outside: Array) -> Array:
    """The same with p(x) = ((1 + a) p_out(x) + 1 - a) / 2 and a = 0.3 (section 3.2)."""
    average = _log_sum(outside + np.log1p(_OFFLINE_SLOPE), np.log1p(-_OFFLINE_SLOPE)) - np.log(2)
    ratio: Array = logs - average
    return ratio


def log_mean(logs: Array, side: BoolArray) -> Array:
    """Logarithm of the mean of exp(logs) over the references of one side; NaN without one.

    Args:
        logs: Logarithms of M reference models, shape [M, R].
        side: Which of them are on that side, shape [M, R].

    Returns:
        Shape [1, R].
    """
    masked = np.where(side, logs, -np.inf)
    top = masked.max(0, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        total = np.exp(masked - top).sum(0, keepdims=True)
        mean: Array = top + np.log(total / side.sum(0, keepdims=True))
    return mean


def share_below(values: Array, rivals: Array) -> Array:
    """Share of each row's rivals that are not larger; NaN stays NaN.

    Args:
        values: Shape [T, R].
        rivals: Shape [T, K]; NaN where there is none.
    """
    shares = np.full_like(values, np.nan)
    for row, known, others in zip(shares, values, rivals, strict=True):
        defined = ~np.isnan(known)
        ordered = np.sort(others[~np.isnan(others)])
        ranks = np.searchsorted(ordered, known[defined], side="right")
        row[defined] = ranks / max(len(ordered), 1)
    return shares


def _log_normal(signal: Array, side: ReferenceMoments, references: int) -> Array:
    variance = side.variance(references)
    return -np.square(signal - side.mean) / (2 * variance) - np.log(variance) / 2


def _predictive(outside: ReferenceMoments) -> tuple[Array, Array]:
    """Degrees of freedom and width of the Student-t distribution without the record."""
    freedom = _PRIOR_FREEDOM + np.maximum(outside.count - 1, 0)
    variance = (outside.scatter + _PRIOR_FREEDOM * outside.pooled_variance) / freedom
    with np.errstate(divide="ignore"):
        width: Array = np.sqrt(variance * (1 + 1 / outside.count))
    return freedom, width


def _log_student(
    signal: Array, mean: Array, scatter: Array, pooled: Array, count: Array, freedom: Array
) -> Array:
    """Log-density of the predictive distribution, without its constant log(pi) / 2."""
    total = _PRIOR_FREEDOM + np.maximum(freedom, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = (scatter + _PRIOR_FREEDOM * pooled) / total * (1 + 1 / count)
        tail = np.log1p(np.square(signal - mean) / (total * variance))
        scale = gammaln((total + 1) / 2) - gammaln(total / 2) - np.log(total * variance) / 2
        density: Array = scale - (total + 1) / 2 * tail
    return density


def _average_shift(shifts: Array) -> Array:
    """Mean over the records with references of both sides, shape [T, 1]; NaN without one."""
    known = ~np.isnan(shifts)
    total = np.where(known, shifts, 0.0).sum(1, keepdims=True)
    count = known.sum(1, keepdims=True)
    mean: Array = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return mean


def _log_sum(one: Array, two: ArrayLike) -> Array:
    """Logarithm of exp(one) + exp(two); NaN stays NaN."""
    with np.errstate(invalid="ignore"):
        total: Array = np.logaddexp(one, two)
    return total
