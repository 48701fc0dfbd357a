"""Student-t likelihood-ratio attacks in the style of BaVarIA (Brännvall 2026, arXiv 2603.11799).

Each side has a normal-inverse-gamma prior: four degrees of freedom for the pooled variance, and,
for members, one model at the record's mean without it plus the average shift.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, stdtr

from privnets.attacks.base import Attack
from privnets.attacks.view import Array, AttackerView

_PAPER = "Brännvall 2026, arXiv 2603.11799"
_TINY = 1e-300
# Degrees of freedom of the prior, and models that the prior adds to the members.
_PRIOR_FREEDOM = 4.0
_PRIOR_MEMBERS = 1.0


class BavariaOffline(Attack):
    """Minus the log-probability that a model without the record has a larger signal.

    Of residuals: log-probability that such a model has a residual farther from 0.
    """

    name = "bavaria_offline"
    family = "offline"
    paper = _PAPER

    def score(self, view: AttackerView) -> Array:
        """Scores the tail of the signal under a Student-t predictive distribution."""
        outside = view.moments(member=False)
        freedom = _PRIOR_FREEDOM + np.maximum(outside.count - 1, 0)
        variance = (outside.scatter + _PRIOR_FREEDOM * outside.pooled_variance) / freedom
        with np.errstate(divide="ignore"):
            width = np.sqrt(variance * (1 + 1 / outside.count))
        if not view.two_sided:
            tail = stdtr(freedom, (outside.mean - view.signal) / width)
            scores: Array = -np.log(np.maximum(tail, _TINY))
            return scores
        size = np.abs(view.signal)
        above = stdtr(freedom, (outside.mean - size) / width)
        below = stdtr(freedom, (-size - outside.mean) / width)
        scores = np.log(np.maximum(above + below, _TINY))
        return scores


class BavariaOnline(Attack):
    """Log-likelihood ratio of two Student-t predictive distributions."""

    name = "bavaria_online"
    family = "online"
    paper = _PAPER
    threshold = 0.0

    def score(self, view: AttackerView) -> Array:
        """Scores the log-likelihood ratio at the signal."""
        inside, outside = view.moments(member=True), view.moments(member=False)
        shifts = inside.mean - outside.mean
        known = ~np.isnan(shifts)  # over the records with references of both sides
        total, number = np.where(known, shifts, 0.0).sum(1), known.sum(1)
        average = np.divide(total, number, out=np.full_like(total, np.nan), where=number > 0)
        prior = outside.mean + average[:, None]
        count, extra = inside.count, _PRIOR_MEMBERS
        mean_inside = np.where(count > 0, inside.mean, prior)
        mean = (count * mean_inside + extra * prior) / (count + extra)
        away = np.square(mean_inside - prior)
        scatter = inside.scatter + count * extra / (count + extra) * away
        pooled = inside.pooled_variance, outside.pooled_variance
        # The prior model costs no degree of freedom for the mean.
        members = _log_student(view.signal, mean, scatter, pooled[0], count + extra, count)
        others = _log_student(
            view.signal, outside.mean, outside.scatter, pooled[1], outside.count, outside.count - 1
        )
        return members - others


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
