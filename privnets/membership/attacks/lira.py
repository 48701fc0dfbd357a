"""LiRA: likelihood-ratio attacks (Carlini et al. 2022, arXiv 2112.03570).

Signals at changed copies of a record count as independent, as in the authors' code: the score is
the mean over the record and its copies (section VI, several queries).
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from privnets import attack_formulas
from privnets.attack_formulas import Array
from privnets.membership.attacks.shadow_attack import ShadowAttack, Shadows


class _Lira(ShadowAttack):
    """Base class of attacks that average over queries."""

    def score(self, shadows: Shadows) -> Array:
        """Averages the scores of the record and of its changed copies."""
        mean: Array = np.mean([self.score_query(each) for each in shadows.by_query()], axis=0)
        return mean

    @abstractmethod
    def score_query(self, shadows: Shadows) -> Array:
        """Scores one query, shape [J, R]."""


class LiraOffline(_Lira):
    """LiRA with shadow models that never saw the record: a one-sided test.

    The score of a residual is the probability that a shadow model's residual is farther from 0;
    that of a classifier is its standardised confidence.
    """

    name = "lira_offline"

    def score_query(self, shadows: Shadows) -> Array:
        """Scores how unusual the signal is for a model trained without the record."""
        outside, count = shadows.moments(member=False), shadows.count
        if shadows.two_sided:
            return attack_formulas.lira_offline_of_residuals(shadows.signal, outside, count)
        return attack_formulas.lira_offline(shadows.signal, outside, count)


class LiraOnline(_Lira):
    """LiRA with shadow models on both sides: likelihood ratio of the signal."""

    name = "lira_online"
    sides = (False, True)
    threshold = 0.0

    def score_query(self, shadows: Shadows) -> Array:
        """Scores the log-likelihood ratio of two Gaussians at the signal."""
        inside, outside = shadows.moments(member=True), shadows.moments(member=False)
        return attack_formulas.lira_online(shadows.signal, inside, outside, shadows.count)
