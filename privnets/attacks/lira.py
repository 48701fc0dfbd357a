"""LiRA: likelihood-ratio attacks (Carlini et al. 2022, arXiv 2112.03570).

Below 64 references, variances are pooled over records, as in section VI of the paper. Signals at
changed copies of a record count as independent, as in the authors' code: the score is the mean over
the record and its copies.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from privnets.attacks.base import Attack
from privnets.attacks.view import Array, AttackerView

_PAPER = "Carlini et al., IEEE S&P 2022, arXiv 2112.03570"


class LiraOffline(Attack):
    """Standardised distance from references without the record: a one-sided test.

    Of residuals: probability that a reference model without the record has a residual farther
    from 0.
    """

    name = "lira_offline"
    family = "offline"
    paper = _PAPER

    def score(self, view: AttackerView) -> Array:
        """Scores how unusual the signal is for a model trained without the record."""
        scores = []
        for query in view.by_query():
            outside = query.moments(member=False)
            deviation = np.sqrt(outside.variance(query.references.count))
            if query.two_sided:
                size = np.abs(query.signal)
                above = ndtr((outside.mean - size) / deviation)
                scores.append(above + ndtr((-size - outside.mean) / deviation))
            else:
                scores.append((query.signal - outside.mean) / deviation)
        mean: Array = np.mean(scores, axis=0)
        return mean


class LiraOnline(Attack):
    """Log-likelihood ratio of two Gaussians, with references on both sides."""

    name = "lira_online"
    family = "online"
    paper = _PAPER
    threshold = 0.0

    def score(self, view: AttackerView) -> Array:
        """Scores the log-likelihood ratio at the signal."""
        scores = []
        for query in view.by_query():
            densities = []
            for is_member in (True, False):
                side = query.moments(member=is_member)
                variance = side.variance(query.references.count)
                distance = np.square(query.signal - side.mean)
                densities.append(-distance / (2 * variance) - np.log(variance) / 2)
            scores.append(densities[0] - densities[1])
        mean: Array = np.mean(scores, axis=0)
        return mean
