"""Student-t likelihood-ratio attacks in the style of BaVarIA (Brännvall 2026, arXiv 2603.11799)."""

from __future__ import annotations

from privnets import attack_formulas
from privnets.membership.attacks.shadow_attack import ShadowAttack
from privnets.reference_models import Array, ComparedSignals


class BavariaOffline(ShadowAttack):
    """Tail of the signal under a Student-t distribution, fitted to models without the record."""

    name = "bavaria_offline"

    def score(self, compared: ComparedSignals) -> Array:
        """Scores how unusual the signal is for a model trained without the record."""
        return attack_formulas.bavaria_offline(compared)


class BavariaOnline(ShadowAttack):
    """Likelihood ratio of two Student-t distributions, with shadow models on both sides."""

    name = "bavaria_online"
    sides = (False, True)
    threshold = 0.0

    def score(self, compared: ComparedSignals) -> Array:
        """Scores the log-likelihood ratio at the signal."""
        return attack_formulas.bavaria_online(compared)
