"""Student-t likelihood-ratio attacks in the style of BaVarIA (Brännvall 2026, arXiv 2603.11799)."""

from __future__ import annotations

from privnets import attack_formulas
from privnets.attack_formulas import Array
from privnets.membership.attacks.shadow_attack import ShadowAttack, Shadows


class BavariaOffline(ShadowAttack):
    """Tail of the signal under a Student-t distribution, fitted to models without the record."""

    name = "bavaria_offline"

    def score(self, shadows: Shadows) -> Array:
        """Scores how unusual the signal is for a model trained without the record."""
        outside = shadows.moments(member=False)
        if shadows.two_sided:
            return attack_formulas.bavaria_offline_of_residuals(shadows.signal, outside)
        return attack_formulas.bavaria_offline(shadows.signal, outside)


class BavariaOnline(ShadowAttack):
    """Likelihood ratio of two Student-t distributions, with shadow models on both sides."""

    name = "bavaria_online"
    sides = (False, True)
    threshold = 0.0

    def score(self, shadows: Shadows) -> Array:
        """Scores the log-likelihood ratio at the signal."""
        inside, outside = shadows.moments(member=True), shadows.moments(member=False)
        return attack_formulas.bavaria_online(shadows.signal, inside, outside)
