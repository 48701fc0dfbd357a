"""LiRA: likelihood-ratio attacks (Carlini et al. 2022, arXiv 2112.03570)."""

from __future__ import annotations

from privnets import attack_formulas
from privnets.membership.attacks.shadow_attack import ShadowAttack
from privnets.reference_models import Array, ComparedSignals


class LiraOffline(ShadowAttack):
    """LiRA with shadow models that never saw the record: a one-sided test.

    The score of a residual is the probability that a shadow model's residual is farther from 0;
    that of a classifier is its standardised confidence.
    """

    name = "lira_offline"

    def score(self, compared: ComparedSignals) -> Array:
        """Scores how unusual the signal is for a model trained without the record."""
        return attack_formulas.lira_offline(compared)


class LiraOnline(ShadowAttack):
    """LiRA with shadow models on both sides: likelihood ratio of the signal."""

    name = "lira_online"
    sides = (False, True)
    threshold = 0.0

    def score(self, compared: ComparedSignals) -> Array:
        """Scores the log-likelihood ratio of two Gaussians at the signal."""
        return attack_formulas.lira_online(compared)
