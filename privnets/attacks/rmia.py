"""RMIA: likelihood ratios ranked among a population (Zarifzadeh et al. 2024, arXiv 2312.03262).

The score is the share of the population's records whose ratio p(z | model) / p(z) is not larger
than p(x | model) / p(x), gamma being 1. Without a population the score is the logarithm of the
latter ratio, which has the same order for one model.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from privnets.attacks.base import MIN_POPULATION, NO_PROBABILITIES, Attack, Family
from privnets.attacks.view import Array, AttackerView, share_below

# Slope a of the estimate of p(x) without members (section 3.2 of the paper).
_OFFLINE_SLOPE = 0.3


class RmiaOffline(Attack):
    """RMIA with p(x) = ((1 + a) p_out(x) + 1 - a) / 2, by references without the record."""

    name = "rmia_offline"
    family: ClassVar[Family] = "offline"
    paper = "Zarifzadeh et al., ICML 2024, arXiv 2312.03262"
    bounds = ("bound/advantage",)

    def why_unavailable(self, view: AttackerView) -> str | None:
        """Probabilities must be known, at enough records of the population if there is one."""
        if view.logs is None:
            return NO_PROBABILITIES
        return None if view.population is None else view.population.why_too_small(MIN_POPULATION)

    def score(self, view: AttackerView) -> Array:
        """Scores the rank of the likelihood ratio."""
        values = self.ratio(view)
        return (
            values if view.population is None else share_below(values, self.ratio(view.population))
        )

    def ratio(self, view: AttackerView) -> Array:
        """Logarithm of p(x | model) / p(x), shape [T, R]."""
        outside = view.log_mean(member=False) + np.log1p(_OFFLINE_SLOPE)
        ratio: Array = view.known_logs - (_log_sum(outside, np.log1p(-_OFFLINE_SLOPE)) - np.log(2))
        return ratio


class RmiaOnline(RmiaOffline):
    """RMIA whose p(x) averages references of both sides equally, as does p(z) of the population.

    Records of the population without references of both sides are left out.
    """

    name = "rmia_online"
    family = "online"

    def why_unavailable(self, view: AttackerView) -> str | None:
        """Enough records of the population must have references of both sides, too."""
        if (reason := super().why_unavailable(view)) or view.population is None:
            return reason
        inside = view.population.references.member
        has_both = inside.any(0) & ~inside.all(0)
        fewest = int((view.population.is_known & has_both).sum(1).min())
        if fewest >= MIN_POPULATION:
            return None
        return (
            f"{fewest} records that are not attacked have reference models with and without them, "
            f"and at least {MIN_POPULATION} are needed; raise draws or train_size"
        )

    def ratio(self, view: AttackerView) -> Array:
        """Logarithm of p(x | model) / p(x), shape [T, R]."""
        inside, outside = view.log_mean(member=True), view.log_mean(member=False)
        ratio: Array = view.known_logs - (_log_sum(inside, outside) - np.log(2))
        return ratio


def _log_sum(one: Array, two: Array | float) -> Array:
    """Logarithm of exp(one) + exp(two), of finite numbers; NaN stays NaN."""
    gap = np.abs(one - two)
    total: Array = np.maximum(one, two) + np.log(1 + np.exp(-gap))  # faster than `logaddexp`
    return total
