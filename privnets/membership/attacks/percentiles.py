"""Attacks P and R: percentiles of the loss (Ye et al. 2022, arXiv 2111.09679)."""

from __future__ import annotations

import numpy as np

from privnets.attack_formulas import Array, share_below
from privnets.membership.attacks.base import MIN_POPULATION, Trials
from privnets.membership.attacks.shadow_attack import ShadowAttack, Shadows
from privnets.membership.config import NO_POPULATION


class AttackP(ShadowAttack):
    """Percentile of the loss among the losses of the same model at records of the population.

    Shadow models serve only to choose the threshold.
    """

    name = "attack_p"
    bounds = ("bound/advantage",)

    def why_unavailable(self, trials: Trials) -> str | None:
        """The target must have losses at enough other records."""
        if trials.population is None:
            return NO_POPULATION
        return trials.population.why_too_small(MIN_POPULATION)

    def score(self, shadows: Shadows) -> Array:
        """Share of the population's records outside the training set with a larger loss."""
        assert shadows.population_logs is not None  # by `why_unavailable`
        return share_below(shadows.logs, shadows.population_logs)


class AttackR(ShadowAttack):
    """Percentile of the loss among the losses of shadow models without the record."""

    name = "attack_r"

    def score(self, shadows: Shadows) -> Array:
        """Share of shadow models without the record with a larger loss at it."""
        chosen = shadows.is_shadow
        outside = np.where(shadows.member[chosen], np.nan, shadows.logs[chosen])
        return share_below(shadows.logs.T, outside.T).T
