"""RMIA: likelihood ratios ranked among a population (Zarifzadeh et al. 2024, arXiv 2312.03262)."""

from __future__ import annotations

from privnets import attack_formulas
from privnets.membership.attacks.base import MIN_POPULATION, Trials
from privnets.membership.attacks.shadow_attack import ShadowAttack
from privnets.reference_models import Array, ComparedSignals


class _Rmia(ShadowAttack):
    """Base class of attacks that rank likelihood ratios among a population, if there is one."""

    bounds = ("bound/advantage",)

    def why_unavailable(self, trials: Trials) -> str | None:
        """A population must have enough records to rank among."""
        if trials.population and (reason := trials.population.why_too_small(MIN_POPULATION)):
            return reason
        return super().why_unavailable(trials)


class RmiaOffline(_Rmia):
    """RMIA with shadow models that never saw the record, or the record of the population."""

    name = "rmia_offline"

    def score(self, compared: ComparedSignals) -> Array:
        """Scores the rank of the likelihood ratio."""
        return attack_formulas.rmia_offline(compared)


class RmiaOnline(_Rmia):
    """RMIA with shadow models on both sides, of the record and of the population's records."""

    name = "rmia_online"
    sides = (False, True)

    def why_unavailable(self, trials: Trials) -> str | None:
        """Enough records of the population must have shadow models on both sides, too."""
        if (reason := super().why_unavailable(trials)) or trials.population is None:
            return reason
        outside, fewest = trials.population.outside, MIN_POPULATION
        for shadows in (trials.fold == 0, trials.fold == 1):
            has_both = (~outside[:, shadows]).any(1) & outside[:, shadows].any(1)
            fewest = min(fewest, int((outside[:, ~shadows] & has_both[:, None]).sum(0).min()))
        if fewest == MIN_POPULATION:
            return None
        return (
            f"{fewest} records that are not attacked have shadow models with and without them, and "
            f"at least {MIN_POPULATION} are needed; raise draws or train_size"
        )

    def score(self, compared: ComparedSignals) -> Array:
        """Scores the rank of the likelihood ratio."""
        return attack_formulas.rmia_online(compared)
