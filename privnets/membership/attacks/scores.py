"""Scores of membership attacks: advantage, area under the ROC curve, low false-positive rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from privnets.membership.attacks import Guesses
from privnets.membership.config import FALSE_POSITIVE_RATES
from privnets.points import Curve
from privnets.statistics.estimates import Estimate
from privnets.statistics.roc import ScoredTrials

_CURVE_RATES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 400, 500, 600, 700, 850)


@dataclass(frozen=True)
class AttackScore:
    """Scores of one attack.

    Attributes:
        advantage: TPR - FPR of its decisions, signed, in [-1, 1].
        auc: Area under the ROC curve (Mann-Whitney; ties count half), in [0, 1].
        low_rates: For each false-positive rate, the true-positive rate at the threshold with the
            largest false-positive rate that does not exceed it.
        non_members: Number of trials of records outside the training set.
        roc: TPR at false-positive rates in thousandths.
    """

    advantage: Estimate
    auc: Estimate
    low_rates: Mapping[float, Estimate]
    non_members: int
    roc: Curve


def score_guesses(guesses: Guesses, member: Tensor, *, shared_models: bool) -> AttackScore:
    """Scores an attack on trials pooled over records; `member` has shape [R, J]."""
    score, inside, decision = (
        each.T.cpu().numpy() for each in (guesses.score, member, guesses.decision)
    )
    trials = ScoredTrials(score, inside, shared_models=shared_models)
    return AttackScore(
        trials.advantage_estimate(decision),
        trials.area_estimate,
        {rate: trials.rate_estimate(rate) for rate in FALSE_POSITIVE_RATES},
        len(trials.others),
        Curve(_CURVE_RATES, tuple(trials.read_rate(step / 1000) for step in _CURVE_RATES)),
    )


def signed_advantage(decision: Tensor, member: Tensor, *, shared_models: bool) -> Estimate:
    """TPR - FPR over all trials, [R, J], and its standard error."""
    yes, inside = decision.T.cpu().numpy(), member.T.cpu().numpy()
    trials = ScoredTrials(yes.astype(float), inside, shared_models=shared_models)
    return trials.advantage_estimate(yes)
