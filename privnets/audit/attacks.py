"""Membership attacks of audits: one function each, vectorised over audited models and records.

An attack belongs to one family by the knowledge that it needs. `threshold` attacks see the
audited model alone. `offline` attacks have reference models trained without the record; `online`
attacks also have reference models trained with it. Families are never compared with each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, stdtr

from privnets.audit.model_signals import Array, ModelSignals, ReferenceMoments
from privnets.registry import Registry

Family = Literal["threshold", "offline", "online"]
FAMILIES: Final[tuple[Family, ...]] = ("threshold", "offline", "online")

_MIN_REFERENCES = 2
_PRIOR_FREEDOM = 4.0
_PRIOR_MEMBERS = 1.0
_OFFLINE_SLOPE = 0.3
_TINY = 1e-300


@dataclass(frozen=True)
class AuditAttack:
    """Membership attack of an audit.

    Attributes:
        name: Name in tables.
        family: Knowledge that the attack needs.
        score: Scores of the audited models, shape [T, R], larger for more likely members; NaN
            where a record has too few reference models.
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
            return None if self.name in models.values else f"the signal {self.name!r} is unknown"
        if models.references < _MIN_REFERENCES:
            return f"it needs at least {_MIN_REFERENCES} reference models"
        if self.needs_confidence and models.confidence is None:
            return "the probability of the true class is unknown"
        return None


def _threshold(name: str, paper: str) -> AuditAttack:
    """Attack that calls a record a member if one signal of the model is above a threshold."""
    return AuditAttack(name, "threshold", lambda models: models.values[name][models.targets], paper)


_SONG = "Song and Mittal, USENIX Security 2021, arXiv 2003.10595"
_CARLINI = "Carlini et al., IEEE S&P 2022, arXiv 2112.03570"
_ZARIFZADEH = "Zarifzadeh et al., ICML 2024, arXiv 2312.03262"
_BRANNVALL = "Brännvall 2026, arXiv 2603.11799"

LOSS: Final = _threshold("loss", "Yeom et al., CSF 2018, arXiv 1709.01604")
CONFIDENCE: Final = _threshold("confidence", _SONG)
ENTROPY: Final = _threshold("entropy", _SONG)
MODIFIED_ENTROPY: Final = _threshold("modified_entropy", _SONG)
LOGIT: Final = _threshold("logit", "log-odds of the true class, " + _CARLINI)
SCORE: Final = _threshold("score", "score of the user")


def _lira_online(models: ModelSignals) -> Array:
    """Log-likelihood ratio of two Gaussians, fitted to references with and without the record.

    Variances are pooled over records below 64 references, as in section VI of the paper.
    """
    signal = models.signal[models.targets]
    inside, outside = _sides(models)
    return _log_normal(signal, inside, models) - _log_normal(signal, outside, models)


def _lira_offline(models: ModelSignals) -> Array:
    """Standardised distance from references without the record; the test is one-sided."""
    outside = models.moments(models.signal, member=False)
    distance = models.signal[models.targets] - outside.mean
    return distance / np.sqrt(outside.variance(models.references))


def _rmia_online(models: ModelSignals) -> Array:
    """Share of records whose likelihood ratio is not larger, with references of both sides.

    The ratio is p(x | model) / p(x), where p(x) averages both sides equally. The population is
    all records of the audit, and the ratio of two records is compared with gamma = 1.
    """
    logs = models.log_confidence
    inside, outside = (models.log_mean(logs, member=member) for member in (True, False))
    return _share_below(logs[models.targets] - _log_sum(inside, outside))


def _rmia_offline(models: ModelSignals) -> Array:
    """RMIA with p(x) = ((1 + a) p_out(x) + 1 - a) / 2 and a = 0.3 (section 3.2 of the paper)."""
    logs = models.log_confidence
    outside = models.log_mean(logs, member=False) + np.log1p(_OFFLINE_SLOPE)
    average = _log_sum(outside, np.log1p(-_OFFLINE_SLOPE))
    return _share_below(logs[models.targets] - average)


def _bavaria_online(models: ModelSignals) -> Array:
    """Log-likelihood ratio of two Student-t predictive distributions.

    Each side has a normal-inverse-gamma prior: four degrees of freedom for the pooled variance,
    and, for members, one model at the record's mean without it plus the average shift.
    """
    signal = models.signal[models.targets]
    inside, outside = _sides(models)
    prior = outside.mean + _average_shift(inside.mean - outside.mean)
    count, extra = inside.count, _PRIOR_MEMBERS
    known = np.where(count > 0, inside.mean, prior)
    mean = (count * known + extra * prior) / (count + extra)
    scatter = inside.scatter + count * extra / (count + extra) * np.square(known - prior)
    # The prior model costs no degree of freedom for the mean.
    members = _log_student(signal, mean, scatter, inside.pooled_variance, count + extra, count)
    others = _log_student(
        signal,
        outside.mean,
        outside.scatter,
        outside.pooled_variance,
        outside.count,
        outside.count - 1,
    )
    return members - others


def _bavaria_offline(models: ModelSignals) -> Array:
    """Minus the log-probability that a model without the record has a larger signal.

    The predictive distribution is Student's t, as in `bavaria_online`.
    """
    outside = models.moments(models.signal, member=False)
    freedom = _PRIOR_FREEDOM + np.maximum(outside.count - 1, 0)
    variance = (outside.scatter + _PRIOR_FREEDOM * outside.pooled_variance) / freedom
    with np.errstate(divide="ignore"):
        width = np.sqrt(variance * (1 + 1 / outside.count))
    distance = (models.signal[models.targets] - outside.mean) / width
    scores: Array = -np.log(np.maximum(stdtr(freedom, -distance), _TINY))
    return scores


def _difference(models: ModelSignals) -> Array:
    """Log-probability of the true class, or the signal, minus its mean without the record."""
    values = models.signal if models.confidence is None else models.log_confidence
    return values[models.targets] - models.moments(values, member=False).mean


LIRA_ONLINE: Final = AuditAttack("lira_online", "online", _lira_online, _CARLINI)
LIRA_OFFLINE: Final = AuditAttack("lira_offline", "offline", _lira_offline, _CARLINI)
RMIA_ONLINE: Final = AuditAttack("rmia_online", "online", _rmia_online, _ZARIFZADEH, True)
RMIA_OFFLINE: Final = AuditAttack("rmia_offline", "offline", _rmia_offline, _ZARIFZADEH, True)
BAVARIA_ONLINE: Final = AuditAttack("bavaria_online", "online", _bavaria_online, _BRANNVALL)
BAVARIA_OFFLINE: Final = AuditAttack("bavaria_offline", "offline", _bavaria_offline, _BRANNVALL)
DIFFERENCE: Final = AuditAttack(
    "difference", "offline", _difference, "Watson et al., ICLR 2022, arXiv 2111.08440"
)

_HERE = "privnets.audit.attacks"
AUDIT_ATTACKS: Final[Registry[AuditAttack]] = Registry(
    "audit attack",
    "privnets.audit_attacks",
    f"{_HERE}:AuditAttack",
    {
        "loss": f"{_HERE}:LOSS",
        "confidence": f"{_HERE}:CONFIDENCE",
        "entropy": f"{_HERE}:ENTROPY",
        "modified_entropy": f"{_HERE}:MODIFIED_ENTROPY",
        "logit": f"{_HERE}:LOGIT",
        "score": f"{_HERE}:SCORE",
        "lira_offline": f"{_HERE}:LIRA_OFFLINE",
        "rmia_offline": f"{_HERE}:RMIA_OFFLINE",
        "bavaria_offline": f"{_HERE}:BAVARIA_OFFLINE",
        "difference": f"{_HERE}:DIFFERENCE",
        "lira_online": f"{_HERE}:LIRA_ONLINE",
        "rmia_online": f"{_HERE}:RMIA_ONLINE",
        "bavaria_online": f"{_HERE}:BAVARIA_ONLINE",
    },
)


def _sides(models: ModelSignals) -> tuple[ReferenceMoments, ReferenceMoments]:
    inside = models.moments(models.signal, member=True)
    return inside, models.moments(models.signal, member=False)


def _average_shift(shifts: Array) -> Array:
    """Mean over the records with references of both sides, shape [T, 1]; NaN without one."""
    known = ~np.isnan(shifts)
    total = np.where(known, shifts, 0.0).sum(1, keepdims=True)
    count = known.sum(1, keepdims=True)
    mean: Array = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return mean


def _log_sum(one: Array, two: ArrayLike) -> Array:
    """Logarithm of exp(one) + exp(two); NaN stays NaN."""
    with np.errstate(invalid="ignore"):
        total: Array = np.logaddexp(one, two)
    return total


def _log_normal(signal: Array, side: ReferenceMoments, models: ModelSignals) -> Array:
    variance = side.variance(models.references)
    return -np.square(signal - side.mean) / (2 * variance) - np.log(variance) / 2


def _log_student(
    signal: Array, mean: Array, scatter: Array, pooled: Array, count: Array, freedom: Array
) -> Array:
    """Log-density of the predictive distribution, without its constant log(pi) / 2."""
    total = _PRIOR_FREEDOM + np.maximum(freedom, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = (scatter + _PRIOR_FREEDOM * pooled) / total * (1 + 1 / count)
        tail = np.log1p(np.square(signal - mean) / (total * variance))
        scale = gammaln((total + 1) / 2) - gammaln(total / 2) - np.log(total * variance) / 2
        density: Array = scale - (total + 1) / 2 * tail
    return density


def _share_below(ratio: Array) -> Array:
    """Share of the records of the same model whose ratio is not larger; NaN stays NaN."""
    shares = np.full_like(ratio, np.nan)
    for row, known in zip(shares, ratio, strict=True):
        defined = ~np.isnan(known)
        ordered = np.sort(known[defined])
        ranks = np.searchsorted(ordered, known[defined], side="right")
        row[defined] = ranks / max(len(ordered), 1)
    return shares
