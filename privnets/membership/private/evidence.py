"""Lower bound on epsilon that the membership attacks of one replicate support."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from privnets.statistics.roc import ScoredTrials


def epsilon_lower_bound(
    scores: Sequence[Tensor], member: Tensor, delta: float, confidence: float
) -> float:
    """Lower bound on the epsilon of training, for replaced records.

    On each half of the records, the best attack and threshold come from the other half. The two
    bounds by Clopper-Pearson limits share the error (`privnets.statistics.roc.epsilon_bounds`).

    Args:
        scores: Of each attack, larger for more likely members, shape [R, J].
        member: Whether the record was in the training set, shape [R, J].
        confidence: Probability with which the bound holds, in (0, 1).

    Returns:
        At least 0.
    """
    inside = member.T.cpu().numpy()
    trials = [ScoredTrials(score.T.cpu().numpy(), inside) for score in scores]
    is_even = np.arange(inside.shape[1]) % 2 == 0
    level = (1 + confidence) / 2
    return max(_bound(trials, half, delta, level) for half in (is_even, ~is_even))


def _bound(trials: Sequence[ScoredTrials], judged: np.ndarray, delta: float, level: float) -> float:
    chosen = [each.select(~judged).epsilon_threshold(delta, level) for each in trials]
    best = max(range(len(trials)), key=lambda i: chosen[i][0])
    return trials[best].select(judged).epsilon_at(chosen[best][1], delta, level)
