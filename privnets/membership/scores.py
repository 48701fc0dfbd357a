"""Scores of an attack: advantage with its standard error, ROC curve, and low-FPR rates."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from privnets.membership.attacks import Guesses
from privnets.points import Curve

FALSE_POSITIVE_RATES = (0.1, 0.01, 0.001)
_CURVE_RATES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 400, 500, 600, 700, 850)


@dataclass(frozen=True)
class AttackScore:
    """Scores of one attack.

    Attributes:
        advantage: TPR - FPR of its decisions, signed, in [-1, 1].
        advantage_error: Standard error of `advantage`. Records (and models, where they serve
            several records) are the independent units, not trials.
        auc: Area under the ROC curve (Mann-Whitney; ties count half), in [0, 1].
        true_positive_rates: For each rate, the TPR at the threshold with the largest FPR that
            does not exceed it.
        false_positives: Number of false positives at each of those thresholds.
        roc: TPR at false-positive rates in thousandths.
    """

    advantage: float
    advantage_error: float
    auc: float
    true_positive_rates: dict[float, float]
    false_positives: dict[float, int]
    roc: Curve


def score_guesses(guesses: Guesses, member: Tensor, *, shared_models: bool) -> AttackScore:
    """Scores an attack on trials pooled over records; `member` has shape [R, J]."""
    advantage, error = signed_advantage(guesses.decision, member, shared_models=shared_models)
    true, false = _roc(guesses.score, member)
    outsiders = int((~member).sum())
    rates, counts = {}, {}
    for rate in FALSE_POSITIVE_RATES:
        rates[rate], counts[rate] = _rate_at(true, false, rate, outsiders)
    curve = tuple(_rate_at(true, false, step / 1000, outsiders)[0] for step in _CURVE_RATES)
    auc = float(torch.trapezoid(true, false))
    return AttackScore(advantage, error, auc, rates, counts, Curve(_CURVE_RATES, curve))


def signed_advantage(
    decision: Tensor, member: Tensor, *, shared_models: bool
) -> tuple[float, float]:
    """TPR - FPR over all trials, and its standard error, clustered by record and shared model.

    With shared models, column j of `decision` and `member` [R, J] is one model.
    """
    inside, outside = member.sum(), (~member).sum()
    yes = decision.double()
    true, false = yes[member].sum() / inside, yes[~member].sum() / outside
    influence = torch.where(member, (yes - true) / inside, -(yes - false) / outside)
    by_record = influence.sum(1).square().sum()
    variance = by_record * len(member) / (len(member) - 1)
    if shared_models:
        both = by_record + influence.sum(0).square().sum() - influence.square().sum()
        # By chance, the two-way estimate can be below the one-way estimate.
        variance = torch.maximum(variance, both)
    return float(true - false), float(variance.sqrt())


def _roc(values: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
    """True- and false-positive rates at each distinct threshold, ascending, from 0 to 1."""
    ordered, order = values.flatten().sort(descending=True)
    ranked = member.flatten()[order]
    is_last = torch.ones_like(ranked)
    is_last[:-1] = ordered[1:] != ordered[:-1]
    true = ranked.cumsum(0)[is_last].double() / ranked.sum()
    false = (~ranked).cumsum(0)[is_last].double() / (~ranked).sum()
    zero = true.new_zeros(1)
    return torch.cat([zero, true]), torch.cat([zero, false])


def _rate_at(true: Tensor, false: Tensor, rate: float, outsiders: int) -> tuple[float, int]:
    """True-positive rate and number of false positives at a false-positive rate."""
    # Half a trial of tolerance keeps rounding from excluding a rate that is met exactly.
    limit = (math.floor(rate * outsiders + 1e-9) + 0.5) / outsiders
    index = int(torch.searchsorted(false, limit)) - 1
    return float(true[index]), round(float(false[index]) * outsiders)
