"""Audit of differential privacy in one training run with canaries.

Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", arXiv 2305.08846. Each of
m canaries, records made for the audit, joins the training set by a fair coin of its own. An
auditor then guesses, for some of them, whether they joined. If training is (epsilon, delta)-private
for added or removed records, too many correct guesses are unlikely.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import binom

_TOLERANCE = 1e-9


def one_run_epsilon(
    score: ArrayLike,
    member: ArrayLike,
    threshold: float,
    delta: float = 1e-5,
    confidence: float = 0.95,
) -> float:
    """Lower bound on epsilon from scores of canaries: those from a threshold count as members.

    Args:
        score: Larger for canaries that more likely joined, shape [m].
        member: Whether each canary joined, by a fair coin of its own, shape [m].
        threshold: Fixed before these scores are known, or chosen on other canaries.
        delta: In [0, 1).
        confidence: Probability with which the bound holds, in (0, 1).

    Returns:
        At least 0.

    Raises:
        ValueError: If shapes differ, a score is NaN, or an argument is out of range.
    """
    scores, joined = np.asarray(score, dtype=float), np.asarray(member)
    if scores.ndim != 1 or scores.shape != joined.shape or joined.dtype != bool:
        raise ValueError(
            "score and member must be a vector of numbers and one of booleans, equally long; got "
            f"shapes {list(scores.shape)} and {list(joined.shape)}, {joined.dtype}."
        )
    if np.isnan(scores).any():
        raise ValueError("score must not be NaN.")
    guessed = scores >= threshold
    correct = int((guessed & joined).sum())
    return epsilon_of_guesses(correct, int(guessed.sum()), len(scores), delta, confidence)


def epsilon_of_guesses(
    correct: int, guesses: int, canaries: int, delta: float = 1e-5, confidence: float = 0.95
) -> float:
    """Largest epsilon that the number of correct guesses refutes (theorem 5.2); 0 if none.

    Args:
        correct: Guesses that were right.
        guesses: Canaries that the auditor guessed about.
        canaries: All canaries, m.
        delta: In [0, 1).
        confidence: Probability with which the bound holds, in (0, 1).
    """
    if not 0 <= correct <= guesses <= canaries:
        raise ValueError(
            "correct, guesses and canaries must not decrease, from at least 0; got "
            f"{correct}, {guesses} and {canaries}."
        )
    if not 0 <= delta < 1 or not 0 < confidence < 1:
        raise ValueError(
            "delta must be at least 0 and below 1, and confidence between 0 and 1; "
            f"got {delta} and {confidence}."
        )

    def excess(epsilon: float) -> float:
        chance = _chance_of(correct, guesses, canaries, epsilon, delta)
        return chance - (1 - confidence)

    if guesses == 0 or excess(0.0) > 0:
        return 0.0
    high = 1.0
    while excess(high) <= 0:
        high *= 2
    return float(brentq(excess, high / 2 if high > 1 else 0.0, high, xtol=_TOLERANCE))


def _chance_of(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Bound on the probability of this many correct guesses, or more, under (epsilon, delta)."""
    rate = float(expit(epsilon))
    chance = float(binom.sf(correct - 1, guesses, rate))
    if delta == 0 or correct == 0:
        return chance
    fewer = np.arange(1, correct + 1)
    increases = (binom.sf(correct - fewer - 1, guesses, rate) - chance) / fewer
    return min(1.0, chance + 2 * canaries * delta * float(np.max(increases, initial=0.0)))
