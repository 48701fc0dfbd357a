"""Calibration and scores of attackers, with errors clustered by the records' origin.

An attacker that is confident and wrong makes an estimate of leakage absurd. So only the evidence
log q(s|z) / p(s) of a posterior q is kept, multiplied by one slope and shifted by one number per
class. Both are fitted by cross-entropy on validation (Platt, 1999, with the prior as a base), with
a Gaussian prior around the identity. At slope 0 only the prior is left. Finally a share of
1 / (n + 2) of the prior is mixed in, as n records cannot show more certainty. Steps of overlapping
sequences count as their number of independent origins.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp

from privnets.adversarial.attackers.attacker import Posterior
from privnets.adversarial.evidence import KnownRows
from privnets.statistics.estimates import Estimate, mean
from privnets.statistics.roc import Ranking

LogProbabilities = NDArray[np.float64]

_MAX_EVIDENCE = 30.0  # nats
_SLOPE_SPREAD = 1.0
_SHIFT_SPREAD = 1.0


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Log probabilities of the secret on validation and on test, shape [n, C]."""

    validation: LogProbabilities
    test: LogProbabilities

    @classmethod
    def from_prior(
        cls, prior: NDArray[np.float64], validation: KnownRows, test: KnownRows
    ) -> Beliefs:
        """The prior [C] for every row, as known without any release."""
        sizes = (len(validation.secret), len(test.secret))
        return cls(*(np.broadcast_to(np.log(prior), (n, len(prior))) for n in sizes))


@dataclass(frozen=True, eq=False)
class Assessment:
    """Scores of one attacker.

    Attributes:
        name: The attacker's name in metric keys.
        calibrated: Its calibrated beliefs.
        decision: Its decisions for balanced accuracy on test, shape [n].
        validation_accuracy: Balanced accuracy on validation, which chooses the strongest.
        validation_leakage: Leakage on validation, nats, which chooses the leakage to report.
        validation_score: Mean calibrated log probability of the truth on validation, nats, which
            chooses among attackers of equal accuracy there.
        accuracy: Balanced accuracy on test.
        leakage: Lower bound of I(S;Q) on test, nats.
    """

    name: str
    calibrated: Beliefs
    decision: NDArray[np.int64]
    validation_accuracy: Estimate
    validation_leakage: Estimate
    validation_score: Estimate
    accuracy: Estimate
    auc: Estimate
    leakage: Estimate
    remaining_gain: float


def assess(
    posterior: Posterior,
    validation: KnownRows,
    test: KnownRows,
    prior: NDArray[np.float64],
    reference: Beliefs | None = None,
) -> Assessment:
    """Calibrates an attacker on validation and scores it on test; every class occurs in both.

    Decisions for balanced accuracy use the attacker's own probabilities: a threshold fitted to
    validation would follow chance there, as validation of sequences is a few days. `prior` [C] has
    class frequencies in the attack split; leakage is counted from `reference`, or else from it.
    """
    reference = Beliefs.from_prior(prior, validation, test) if reference is None else reference
    origins = len(np.unique(validation.cluster))
    calibration = calibrate(posterior.validation, validation.secret, prior, origins)
    calibrated = Beliefs(calibration(posterior.validation), calibration(posterior.test))
    decisions = [balanced_decision(p, prior) for p in (posterior.validation, posterior.test)]
    return Assessment(
        name=posterior.name,
        calibrated=calibrated,
        decision=decisions[1],
        validation_accuracy=balanced_accuracy(decisions[0], validation, len(prior)),
        validation_leakage=leakage(calibrated.validation, reference.validation, validation),
        validation_score=log_score(calibrated.validation, validation),
        accuracy=balanced_accuracy(decisions[1], test, len(prior)),
        auc=area_under_curve(posterior.test, test),
        leakage=leakage(calibrated.test, reference.test, test),
        remaining_gain=posterior.remaining_gain,
    )


def calibrate(
    log_posterior: LogProbabilities,
    secret: NDArray[np.int64],
    prior: NDArray[np.float64],
    origins: int,
) -> Callable[[LogProbabilities], LogProbabilities]:
    """Fits a calibration on validation: a map of log probabilities [n, C] to calibrated ones.

    Args:
        log_posterior: Natural logarithms, -inf allowed, shape [n, C].
        secret: Shape [n].
        prior: Class frequencies in the attack split, positive, shape [C].
        origins: Number of independent origins of the n rows.
    """
    log_prior = np.log(prior)
    evidence = _evidence(log_posterior, log_prior)
    truth = np.eye(len(prior))[secret]
    weight = origins / len(secret)

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        slope, shift = weights[0], weights[1:]
        log_p = log_softmax(log_prior + slope * evidence + shift, axis=1)
        excess = np.exp(log_p) - truth
        value = -weight * (truth * log_p).sum()
        value += ((slope - 1) / _SLOPE_SPREAD) ** 2 / 2 + (shift**2).sum() / _SHIFT_SPREAD**2 / 2
        slope_gradient = weight * (excess * evidence).sum() + (slope - 1) / _SLOPE_SPREAD**2
        shift_gradient = weight * excess.sum(0) + shift / _SHIFT_SPREAD**2
        return value / origins, np.array([slope_gradient, *shift_gradient]) / origins

    bounds = [(0.0, None), *[(None, None)] * len(prior)]
    start = np.array([1.0, *np.zeros(len(prior))])
    slope, *shift = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    prior_share = 1 / (origins + 2)

    def apply_calibration(log_posterior: LogProbabilities) -> LogProbabilities:
        raised = slope * _evidence(log_posterior, log_prior) + shift
        log_p = log_softmax(log_prior + raised, axis=1)
        own, shared = log_p + np.log1p(-prior_share), log_prior + np.log(prior_share)
        mixed: LogProbabilities = np.logaddexp(own, shared)
        return mixed

    return apply_calibration


def log_score(log_posterior: LogProbabilities, rows: KnownRows) -> Estimate:
    """Mean log probability of the truth, nats."""
    return mean(log_posterior[np.arange(len(rows.secret)), rows.secret], rows.cluster)


def balanced_decision(
    log_posterior: LogProbabilities, prior: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Bayes decisions for balanced accuracy: the class whose probability rose most, shape [n]."""
    decision: NDArray[np.int64] = (log_posterior - np.log(prior)).argmax(1)
    return decision


def balanced_accuracy(decision: NDArray[np.int64], rows: KnownRows, classes: int) -> Estimate:
    """Mean over classes of the share of their records that decisions [n] recognise, in [0, 1]."""
    right = (decision == rows.secret).astype(np.float64)
    counts = np.bincount(rows.secret, minlength=classes)
    recall = np.bincount(rows.secret, weights=right, minlength=classes) / counts
    influence = (right - recall[rows.secret]) / (classes * counts[rows.secret])
    return Estimate.of_records(float(recall.mean()), influence, rows.cluster)


def area_under_curve(log_posterior: LogProbabilities, rows: KnownRows) -> Estimate:
    """Area under the ROC curve of a posterior [n, C], ties counting half; in [0, 1].

    With three or more classes, the mean of each class against the rest.
    """
    classes = log_posterior.shape[1]
    positive = rows.secret == np.arange(classes)[:, None]
    score = log_posterior.T
    if classes == 2:
        score, positive = score[1:] - score[:1], positive[1:]
    ranking = Ranking(score)
    ordered = ranking.sort(positive)
    placed = ranking.restore(ranking.placements(ordered, ~ordered))
    sizes = np.where(positive, positive.sum(1, keepdims=True), (~positive).sum(1, keepdims=True))
    areas = (placed * positive).sum(1, keepdims=True) / positive.sum(1, keepdims=True)
    influence = ((placed - areas) / sizes).mean(0)
    return Estimate.of_records(math.fsum(areas[:, 0]) / len(areas), influence, rows.cluster)


def leakage(
    log_posterior: LogProbabilities,
    reference: LogProbabilities,
    rows: KnownRows,
    alpha: float = 1.0,
) -> Estimate:
    """Arimoto information of order alpha from below: H(S) - H(S|Q), both by the alpha-loss, nats.

    With q ~ P^alpha and G the mean of q(s|z)^((alpha-1)/alpha) over records with secret s,
    H = alpha/(1-alpha) log G is least, and Arimoto's entropy, at the true posterior P
    (arXiv 2310.18241). H(S) uses the reference on the same records, so that an attacker without
    further knowledge leaks 0.

    At order 1 it is the mean of log p(s|q) - log p(s). Its expectation is I(S;Q), less the
    divergence of the posterior from the true one, plus that of the reference from the true law.
    With p(s|side) as reference and an attacker that sees side information it is I(S;Q|side).

    Args:
        log_posterior: Normalised, shape [n, C].
        reference: Normalised log probabilities without the release, shape [n, C].
        rows: True secrets.
        alpha: Order, in [0, inf]; 1 is Shannon's, and at 0 leakage is 0.
    """
    if alpha == 0:
        return Estimate.of_records(0.0, np.zeros(len(rows.secret)), rows.cluster)
    return _alpha_entropy(reference, rows, alpha) - _alpha_entropy(log_posterior, rows, alpha)


def _alpha_entropy(log_posterior: LogProbabilities, rows: KnownRows, alpha: float) -> Estimate:
    """Conditional entropy by the alpha-loss, less the logarithm of the number of classes."""
    own = _tilt(log_posterior, alpha)[np.arange(len(rows.secret)), rows.secret]
    if alpha == 1:
        return Estimate.of_records(-float(own.mean()), (own.mean() - own) / len(own), rows.cluster)
    power = 1 - 1 / alpha
    exponents = power * own
    log_mean = float(logsumexp(exponents)) - math.log(len(own))
    if abs(power) < 0.3:  # near order 1, 1 / power would magnify the rounding of log_mean
        log_mean = math.log1p(float(np.expm1(exponents).mean()))
    # At infinite order all guesses may be wrong; half a record keeps the logarithm finite.
    log_mean = max(log_mean, math.log(0.5 / len(own))) if math.isinf(alpha) else log_mean
    influence = -np.expm1(exponents - log_mean) / (power * len(own))
    return Estimate.of_records(-log_mean / power, influence, rows.cluster)


def _tilt(log_posterior: LogProbabilities, alpha: float) -> LogProbabilities:
    """Log of P^alpha / mean P^alpha; at infinity the best guesses share it equally."""
    if math.isinf(alpha):
        best = log_posterior == log_posterior.max(1, keepdims=True)
        with np.errstate(divide="ignore"):
            shared: LogProbabilities = np.log(best / best.mean(1, keepdims=True))
        return shared
    raised = alpha * (log_posterior - log_posterior.mean(1, keepdims=True))
    # At low orders sums are close to 1, and logsumexp would round their difference from 1 away.
    small = np.log1p(np.expm1(np.minimum(raised, 1)).mean(1, keepdims=True))
    large = logsumexp(raised, axis=1, keepdims=True) - math.log(raised.shape[1])
    tilted: LogProbabilities = raised - np.where(raised.max(1, keepdims=True) < 1, small, large)
    return tilted


def _evidence(
    log_posterior: LogProbabilities, log_prior: NDArray[np.float64]
) -> NDArray[np.float64]:
    clipped: NDArray[np.float64] = np.clip(log_posterior - log_prior, -_MAX_EVIDENCE, _MAX_EVIDENCE)
    return clipped
