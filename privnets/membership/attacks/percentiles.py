"""Attacks P and R: percentiles of the loss (Ye et al. 2022, arXiv 2111.09679)."""

from __future__ import annotations

import numpy as np

from privnets.attack_formulas import share_below
from privnets.membership.attacks.base import MIN_POPULATION, Trials
from privnets.membership.attacks.shadow_attack import ShadowAttack
from privnets.membership.config import NO_POPULATION
from privnets.reference_models import Array, ComparedSignals


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

    def score(self, compared: ComparedSignals) -> Array:
        """Share of the population's records outside the training set with a larger loss."""
        assert compared.population is not None  # by `why_unavailable`
        return share_below(compared.logs, compared.population.logs)


class AttackR(ShadowAttack):
    """Percentile of the loss among the losses of shadow models without the record."""

    name = "attack_r"

    def score(self, compared: ComparedSignals) -> Array:
        """Share of shadow models without the record with a larger loss at it."""
        references, logs = compared.references, compared.logs_of_references
        outside = ~references.member
        count = outside.sum(0, keepdims=True)
        below = share_below(compared.logs.T, np.where(outside, logs, np.nan).T).T * count
        if references.left_out is not None:
            removed = references.left_out[False]
            was_outside = np.take_along_axis(outside, removed, 0)
            below -= was_outside & (np.take_along_axis(logs, removed, 0) <= compared.logs)
            count = count - was_outside
        shares: Array = below / count
        return shares
