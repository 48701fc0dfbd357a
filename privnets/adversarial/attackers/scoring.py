"""What a posterior is worth on records it never saw, with errors that respect their origin."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from privnets.adversarial.attackers.rows import Rows
from privnets.adversarial.evaluation.estimates import Estimate

_NOTHING = 1e-9
"""Of an order; below it every posterior leaks less than about so many nats."""


def balanced_accuracy(decision: NDArray[np.int64], rows: Rows, classes: int) -> Estimate:
    """Mean over the classes of the share of their records that are recognised.

    Args:
        decision: Shape [n].
        rows: The truth; every class occurs.
        classes: How many there are.
    """
    right = (decision == rows.secret).astype(np.float64)
    counts = np.bincount(rows.secret, minlength=classes)
    recall = np.bincount(rows.secret, weights=right, minlength=classes) / counts
    influence = (right - recall[rows.secret]) / (classes * counts[rows.secret])
    return Estimate(float(recall.mean()), influence, rows.cluster)


def balanced_decision(
    log_posterior: NDArray[np.float64], prior: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Bayes decisions for balanced accuracy: the class whose probability rose most.

    Args:
        log_posterior: Shape [n, C].
        prior: Shape [C].
    """
    decision: NDArray[np.int64] = (log_posterior - np.log(prior)).argmax(1)
    return decision


def area_under_curve(log_posterior: NDArray[np.float64], rows: Rows) -> Estimate:
    """Area under the ROC curve, ties counting half.

    With three classes or more it is the mean of each class against the rest.

    Args:
        log_posterior: Shape [n, C].
        rows: The truth; every class occurs.
    """
    classes = log_posterior.shape[1]
    if classes == 2:
        return _area(log_posterior[:, 1] - log_posterior[:, 0], rows.secret == 1, rows)
    areas = [_area(log_posterior[:, c], rows.secret == c, rows) for c in range(classes)]
    value = math.fsum(area.value for area in areas) / classes
    return Estimate(value, np.mean([area.influence for area in areas], axis=0), rows.cluster)


def leakage(log_posterior: NDArray[np.float64], known: NDArray[np.float64], rows: Rows) -> Estimate:
    """Mean of log p(s|q) / p(s) over records, which estimates I(S;Q) from below.

    In expectation it is I(S;Q) less the divergence of the attacker's posterior from the true one,
    plus that of the known law from the true one (0 where splits have the same frequencies). With
    p(s|side) for the known law, and an attacker who sees side information, it is I(S;Q|side).

    Args:
        log_posterior: Shape [n, C], normalised.
        known: Log probabilities without the release, shape [n, C], normalised.
        rows: The truth.
    """
    return alpha_leakage(log_posterior, known, rows, 1.0)


def alpha_leakage(
    log_posterior: NDArray[np.float64], known: NDArray[np.float64], rows: Rows, alpha: float
) -> Estimate:
    """Arimoto's information of an order, from below: H(S) - H(S|Q), both by the alpha-loss.

    With q ~ P^alpha and G the mean of q(s|z)^((alpha-1)/alpha) over records with secret s,
    H = alpha/(1-alpha) log G is least, and Arimoto's entropy, at the true posterior P. H(S) is that
    of the known law on the same records, so that an attacker who knows no more leaks nothing.

    Args:
        log_posterior: Shape [n, C], normalised.
        known: Log probabilities without the release, shape [n, C], normalised.
        rows: The truth.
        alpha: Order, in [0, inf]; 1 is Shannon's, at 0 nothing leaks.
    """
    if alpha == 0:
        return Estimate(0.0, np.zeros(len(rows.secret)), rows.cluster)
    return _alpha_entropy(known, rows, alpha) - _alpha_entropy(log_posterior, rows, alpha)


def _alpha_entropy(log_posterior: NDArray[np.float64], rows: Rows, alpha: float) -> Estimate:
    """Conditional entropy by the alpha-loss, less the logarithm of the number of classes."""
    own = _tilted(log_posterior, alpha)[np.arange(len(rows.secret)), rows.secret]
    if alpha == 1:
        return Estimate(-float(own.mean()), (own.mean() - own) / len(own), rows.cluster)
    power = 1 - 1 / alpha
    exponents = power * own
    log_mean = float(logsumexp(exponents)) - math.log(len(own))
    if abs(power) < 0.3:  # near order 1, 1 / power would magnify the rounding of log_mean
        log_mean = math.log1p(float(np.expm1(exponents).mean()))
    # At infinite order nothing may be guessed right; half a record keeps that finite.
    log_mean = max(log_mean, math.log(0.5 / len(own))) if math.isinf(alpha) else log_mean
    influence = -np.expm1(exponents - log_mean) / (power * len(own))
    return Estimate(-log_mean / power, influence, rows.cluster)


def _tilted(log_posterior: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """Log of P^alpha / mean P^alpha; at inf the best guesses share all of it."""
    if math.isinf(alpha):
        best = log_posterior == log_posterior.max(1, keepdims=True)
        with np.errstate(divide="ignore"):
            shared: NDArray[np.float64] = np.log(best / best.mean(1, keepdims=True))
        return shared
    raised = alpha * (log_posterior - log_posterior.mean(1, keepdims=True))
    # Low orders leave little but the difference from 1, which logsumexp would round away.
    small = np.log1p(np.expm1(np.minimum(raised, 1)).mean(1, keepdims=True))
    large = logsumexp(raised, axis=1, keepdims=True) - math.log(raised.shape[1])
    tilted: NDArray[np.float64] = raised - np.where(raised.max(1, keepdims=True) < 1, small, large)
    return tilted


def _area(score: NDArray[np.float64], positive: NDArray[np.bool_], rows: Rows) -> Estimate:
    """Mann and Whitney's, with DeLong's influences."""
    from scipy.stats import rankdata

    inside, outside = int(positive.sum()), int((~positive).sum())
    above = rankdata(score)
    own = np.empty_like(above)
    for group in (positive, ~positive):
        own[group] = rankdata(score[group])
    beaten = above - own  # records of the other class below each record, ties counting half
    placed = np.where(positive, beaten / outside, 1 - beaten / inside)
    value = float(placed[positive].mean())
    influence = (placed - value) / np.where(positive, inside, outside)
    return Estimate(value, influence, rows.cluster)
