"""Membership attacks of audits: one function each, vectorised over audited models and records.

An attack belongs to one family by the knowledge that it needs. `threshold` attacks see the
audited model alone. `learned` attacks are fitted to its outputs at other records of known
membership. `offline` attacks have reference models trained without the record; `online` attacks
also have reference models trained with it. Families are never compared with each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from privnets import attack_formulas
from privnets.audit import learned
from privnets.audit.model_signals import ModelSignals
from privnets.reference_models import Array, ComparedSignals
from privnets.registry import Registry

Family = Literal["threshold", "learned", "offline", "online"]
FAMILIES: Final[tuple[Family, ...]] = ("threshold", "learned", "offline", "online")

NOT_GIVEN: Final = "this signal was not given"
"""Reason why a `threshold` attack was not run."""

_MIN_REFERENCES = 2


@dataclass(frozen=True)
class AuditAttack:
    """Membership attack of an audit.

    Attributes:
        name: Name in tables.
        family: Knowledge that the attack needs.
        score: Scores of the audited models, shape [T, R], larger for more likely members; NaN
            where a record has too few reference models. Of the family `learned`, it may use
            memberships of `ModelSignals.known` records alone.
        paper: Source of the attack.
        needs_confidence: Whether the probability of the true class must be known.
    """

    name: str
    family: Family
    score: Callable[[ModelSignals], Array]
    paper: str
    needs_confidence: bool = False

    def why_unavailable(self, models: ModelSignals) -> str | None:
        """Returns the reason why the attack cannot be run, or None."""
        if self.family == "threshold":
            return None if self.name in models.values else NOT_GIVEN
        if self.family == "learned":
            return _why_nothing_to_learn(models)
        if models.references < _MIN_REFERENCES:
            return f"it needs at least {_MIN_REFERENCES} reference models"
        if self.needs_confidence and models.confidence is None:
            return "the probability of the true class is unknown"
        return None


def _why_nothing_to_learn(models: ModelSignals) -> str | None:
    member = models.target_member
    if models.labels is None:
        return "it needs the true classes"
    if min(member.sum(1).min(), (~member).sum(1).min()) < learned.MIN_KNOWN:
        return f"it needs at least {learned.MIN_KNOWN} members and {learned.MIN_KNOWN} others"
    if member.size > learned.MAX_TRIALS:
        return f"more than {learned.MAX_TRIALS:,} trials; name one model as the target"
    return None


def _threshold(name: str, paper: str) -> AuditAttack:
    """Attack that calls a record a member if one signal of the model is above a threshold."""
    return AuditAttack(name, "threshold", lambda models: models.values[name][models.targets], paper)


def _reference_attack(
    name: str,
    family: Family,
    formula: Callable[[ComparedSignals], Array],
    paper: str,
    *,
    needs_confidence: bool = False,
) -> AuditAttack:
    """Attack that compares the signal of a model with those of its references."""
    return AuditAttack(
        name, family, lambda models: formula(models.comparison), paper, needs_confidence
    )


_SONG = "Song and Mittal, USENIX Security 2021, arXiv 2003.10595"
_CARLINI = "Carlini et al., IEEE S&P 2022, arXiv 2112.03570"
_ZARIFZADEH = "Zarifzadeh et al., ICML 2024, arXiv 2312.03262"
_SHOKRI = "after Shokri et al., IEEE S&P 2017, arXiv 1610.05820"
_BERTRAN = "Bertran et al., NeurIPS 2023, arXiv 2307.03694"
_BRANNVALL = "Brännvall 2026, arXiv 2603.11799"

LOSS: Final = _threshold("loss", "Yeom et al., CSF 2018, arXiv 1709.01604")
CONFIDENCE: Final = _threshold("confidence", _SONG)
ENTROPY: Final = _threshold("entropy", _SONG)
MODIFIED_ENTROPY: Final = _threshold("modified_entropy", _SONG)
LOGIT: Final = _threshold("logit", "log-odds of the true class, " + _CARLINI)
SCORE: Final = _threshold("score", "score of the user")
CORRECTNESS: Final = _threshold("correctness", "Yeom et al., CSF 2018, arXiv 1709.01604")

BOOSTING: Final = AuditAttack("boosting", "learned", learned.boosting, _SHOKRI)
LOGISTIC: Final = AuditAttack("logistic", "learned", learned.logistic, _SHOKRI)
CLASS_THRESHOLDS: Final = AuditAttack(
    "class_thresholds", "learned", learned.class_thresholds, _SONG
)
QUANTILE_REGRESSION: Final = AuditAttack(
    "quantile_regression", "learned", learned.quantile_regression, _BERTRAN
)


def _difference(models: ModelSignals) -> Array:
    """Log-probability of the true class, or the signal, minus its mean without the record."""
    compared = models.comparison
    if models.confidence is None:
        return compared.signal - compared.moments(member=False).mean
    logs = compared.logs_of_references
    return compared.logs - compared.references.moments(logs, member=False).mean


LIRA_ONLINE: Final = _reference_attack(
    "lira_online", "online", attack_formulas.lira_online, _CARLINI
)
LIRA_OFFLINE: Final = _reference_attack(
    "lira_offline", "offline", attack_formulas.lira_offline, _CARLINI
)
RMIA_ONLINE: Final = _reference_attack(
    "rmia_online", "online", attack_formulas.rmia_online, _ZARIFZADEH, needs_confidence=True
)
RMIA_OFFLINE: Final = _reference_attack(
    "rmia_offline", "offline", attack_formulas.rmia_offline, _ZARIFZADEH, needs_confidence=True
)
BAVARIA_ONLINE: Final = _reference_attack(
    "bavaria_online", "online", attack_formulas.bavaria_online, _BRANNVALL
)
BAVARIA_OFFLINE: Final = _reference_attack(
    "bavaria_offline", "offline", attack_formulas.bavaria_offline, _BRANNVALL
)
DIFFERENCE: Final = AuditAttack(
    "difference", "offline", _difference, "Watson et al., ICLR 2022, arXiv 2111.08440"
)

_HERE = "privnets.audit.attacks"
_NAMES = (
    *("loss", "confidence", "entropy", "modified_entropy", "logit", "score", "correctness"),
    *("class_thresholds", "quantile_regression", "logistic", "boosting"),
    *("lira_offline", "rmia_offline", "bavaria_offline", "difference"),
    *("lira_online", "rmia_online", "bavaria_online"),
)
AUDIT_ATTACKS: Final[Registry[AuditAttack]] = Registry(
    "audit attack",
    "privnets.audit_attacks",
    f"{_HERE}:AuditAttack",
    {name: f"{_HERE}:{name.upper()}" for name in _NAMES},
)
