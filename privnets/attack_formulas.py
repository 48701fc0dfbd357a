"""Formulas of membership attacks: scores of judged models beside their reference models.

Audits and the membership experiment share them. Scores have a row for each judged model and a
column for each record, shape [T, R]. They are larger for more likely members, and NaN where a
record lacks the reference models that they need.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, ndtr, stdtr

from privnets.reference_models import Array, ComparedSignals, ReferenceMoments

_TINY = 1e-300
# Degrees of freedom of the prior of BaVarIA, and models that its prior adds to the members.
_PRIOR_FREEDOM = 4.0
_PRIOR_MEMBERS = 1.0
# Slope a of RMIA's estimate of p(x) without members (section 3.2 of the paper).
_OFFLINE_SLOPE = 0.3


def lira_online(compared: ComparedSignals) -> Array:
    """Log-likelihood ratio of two Gaussians (Carlini et al. 2022, arXiv 2112.03570).

    Below 64 references, variances are pooled over records, as in section VI of the paper. Signals
    at changed copies of a record count as independent, as in the authors' code: the score is the
    mean over the record and its copies.
    """

    def ratio(query: ComparedSignals) -> Array:
        count = query.references.count
        inside, outside = query.moments(member=True), query.moments(member=False)
        return _log_normal(query.signal, inside, count) - _log_normal(query.signal, outside, count)

    return _mean_over_queries(ratio, compared)


def lira_offline(compared: ComparedSignals) -> Array:
    """Standardised distance from references without the record; the test is one-sided.

    Of residuals: probability that a reference model without the record has a residual farther
    from 0.
    """
    return _mean_over_queries(_distance, compared)


def bavaria_online(compared: ComparedSignals) -> Array:
    """Log-likelihood ratio of two Student-t predictive distributions (in the style of BaVarIA).

    Brännvall 2026, arXiv 2603.11799. Each side has a normal-inverse-gamma prior: four degrees of
    freedom for the pooled variance, and, for members, one model at the record's mean without it
    plus the average shift.
    """
    inside, outside = compared.moments(member=True), compared.moments(member=False)
    prior = outside.mean + _average_shift(inside.mean - outside.mean)
    count, extra = inside.count, _PRIOR_MEMBERS
    known = np.where(count > 0, inside.mean, prior)
    mean = (count * known + extra * prior) / (count + extra)
    scatter = inside.scatter + count * extra / (count + extra) * np.square(known - prior)
    # The prior model costs no degree of freedom for the mean.
    members = _log_student(
        compared.signal, mean, scatter, inside.pooled_variance, count + extra, count
    )
    others = _log_student(
        compared.signal,
        outside.mean,
        outside.scatter,
        outside.pooled_variance,
        outside.count,
        outside.count - 1,
    )
    return members - others


def bavaria_offline(compared: ComparedSignals) -> Array:
    """Minus the log-probability that a model without the record has a larger signal.

    The predictive distribution is Student's t, as in `bavaria_online`. Of residuals it is the
    log-probability that a model without the record has a residual farther from 0.
    """
    outside = compared.moments(member=False)
    freedom, width = _predictive(outside)
    if not compared.two_sided:
        distance = (compared.signal - outside.mean) / width
        scores: Array = -np.log(np.maximum(stdtr(freedom, -distance), _TINY))
        return scores
    size = np.abs(compared.signal)
    above = stdtr(freedom, (outside.mean - size) / width)
    below = stdtr(freedom, (-size - outside.mean) / width)
    scores = np.log(np.maximum(above + below, _TINY))
    return scores


def rmia_online(compared: ComparedSignals) -> Array:
    """RMIA whose p(x) averages references of both sides equally, as does p(z) of the population.

    Zarifzadeh et al. 2024, arXiv 2312.03262. The score is the share of the population's records
    whose ratio p(z | model) / p(z) is not larger than p(x | model) / p(x), gamma being 1. Records
    of the population without references of both sides are left out. Without a population the
    score is log p(x | model) / p(x), which has the same order for one model.
    """
    return _rank(_online_ratio, compared)


def rmia_offline(compared: ComparedSignals) -> Array:
    """The same with p(x) = ((1 + a) p_out(x) + 1 - a) / 2 and a = 0.3 (section 3.2)."""
    return _rank(_offline_ratio, compared)


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


def _mean_over_queries(
    score: Callable[[ComparedSignals], Array], compared: ComparedSignals
) -> Array:
    mean: Array = np.mean([score(each) for each in compared.by_query()], axis=0)
    return mean


def _distance(query: ComparedSignals) -> Array:
    outside = query.moments(member=False)
    deviation = np.sqrt(outside.variance(query.references.count))
    if not query.two_sided:
        return (query.signal - outside.mean) / deviation
    size = np.abs(query.signal)
    above: Array = ndtr((outside.mean - size) / deviation)
    below: Array = ndtr((-size - outside.mean) / deviation)
    return above + below


def _rank(ratio: Callable[[ComparedSignals], Array], compared: ComparedSignals) -> Array:
    values, population = ratio(compared), compared.population
    return values if population is None else share_below(values, ratio(population))


def _online_ratio(compared: ComparedSignals) -> Array:
    """Logarithm of p(x | model) / p(x)."""
    inside, outside = compared.log_mean(member=True), compared.log_mean(member=False)
    ratio: Array = compared.logs - (_log_sum(inside, outside) - np.log(2))
    return ratio


def _offline_ratio(compared: ComparedSignals) -> Array:
    outside = compared.log_mean(member=False) + np.log1p(_OFFLINE_SLOPE)
    ratio: Array = compared.logs - (_log_sum(outside, np.log1p(-_OFFLINE_SLOPE)) - np.log(2))
    return ratio


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
