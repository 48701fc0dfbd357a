"""RMIA: likelihood ratios ranked among a population (Zarifzadeh et al. 2024, arXiv 2312.03262)."""

from __future__ import annotations

import numpy as np

from privnets import attack_formulas
from privnets.attack_formulas import Array
from privnets.membership.attacks.base import MIN_POPULATION, Trials
from privnets.membership.attacks.shadow_attack import ShadowAttack, Shadows


class _Rmia(ShadowAttack):
    """Base class of attacks that rank likelihood ratios among a population, if there is one."""

    bounds = ("bound/advantage",)

    def why_unavailable(self, trials: Trials) -> str | None:
        """A population must have enough records to rank among."""
        if trials.population and (reason := trials.population.why_too_small(MIN_POPULATION)):
            return reason
        return super().why_unavailable(trials)


class RmiaOffline(_Rmia):
    """RMIA with shadow models that never saw the record.

    The score is the share of the population's records whose ratio p(z | model) / p(z) is not
    larger than that of the record (gamma = 1). If every record has models of its own, the score
    is the ratio itself, which has the same order for one model.
    """

    name = "rmia_offline"

    def score(self, shadows: Shadows) -> Array:
        """Scores the rank of the likelihood ratio."""
        outside = shadows.log_mean(member=False)
        return _rank(attack_formulas.rmia_offline(shadows.logs, outside), shadows)


class RmiaOnline(_Rmia):
    """RMIA whose p(x) averages shadow models with the record and without it equally."""

    name = "rmia_online"
    sides = (False, True)

    def score(self, shadows: Shadows) -> Array:
        """Scores the rank of the likelihood ratio."""
        inside, outside = shadows.log_mean(member=True), shadows.log_mean(member=False)
        return _rank(attack_formulas.rmia_online(shadows.logs, inside, outside), shadows)


def _rank(ratio: Array, shadows: Shadows) -> Array:
    """Share of population records with a smaller ratio, where p(z) has models without z alone."""
    if (logs := shadows.population_logs) is None:
        return ratio
    references = logs[shadows.is_shadow]
    average = attack_formulas.log_mean(references, ~np.isnan(references))
    return attack_formulas.share_below(ratio, attack_formulas.rmia_offline(logs, average))
