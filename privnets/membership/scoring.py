"""What an attack's answers are worth: advantage with its error, ROC, and rates at low FPR."""

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
class Score:
    """Of one attack.

    Attributes:
        advantage: TPR - FPR of its decisions, signed, in [-1, 1].
        advantage_error: Standard error of it; records (and, where models serve several records,
            models) are the independent units, not trials.
        auc: Area under the ROC curve (Mann-Whitney, ties count half).
        true_positive_rates: TPR at the largest threshold whose FPR is at most the given one.
        false_positives: How many false positives each of those rates rests on.
        roc: TPR at false-positive rates in thousandths.
    """

    advantage: float
    advantage_error: float
    auc: float
    true_positive_rates: dict[float, float]
    false_positives: dict[float, int]
    roc: Curve


def score(guesses: Guesses, member: Tensor, *, shared_models: bool) -> Score:
    """Judge an attack on trials pooled over records.

    Args:
        guesses: Its answers, shape [R, J].
        member: The truth, shape [R, J].
        shared_models: Whether column j is the same model for every record.
    """
    advantage, error = signed_advantage(guesses.decision, member, shared_models=shared_models)
    true, false = _sorted_rates(guesses.score, member)
    outsiders = int((~member).sum())
    rates, counts = {}, {}
    for rate in FALSE_POSITIVE_RATES:
        rates[rate], counts[rate] = _at_most(true, false, rate, outsiders)
    curve = tuple(_at_most(true, false, step / 1000, outsiders)[0] for step in _CURVE_RATES)
    return Score(advantage, error, _area(true, false), rates, counts, Curve(_CURVE_RATES, curve))


def signed_advantage(
    decision: Tensor, member: Tensor, *, shared_models: bool
) -> tuple[float, float]:
    """TPR - FPR over all trials, and its standard error, clustered by record and shared model.

    Args:
        decision: Who is called a member, shape [R, J].
        member: Who is, shape [R, J].
        shared_models: Whether column j is the same model for every record.
    """
    inside, outside = member.sum(), (~member).sum()
    yes = decision.double()
    true, false = yes[member].sum() / inside, yes[~member].sum() / outside
    influence = torch.where(member, (yes - true) / inside, -(yes - false) / outside)
    by_record = influence.sum(1).square().sum()
    variance = by_record * len(member) / (len(member) - 1)
    if shared_models:
        both = by_record + influence.sum(0).square().sum() - influence.square().sum()
        # Clustering both ways can fall below one way by chance alone.
        variance = torch.maximum(variance, both)
    return float(true - false), float(variance.sqrt())


def _sorted_rates(values: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
    """True and false positives (counts scaled to rates) at each distinct threshold, ascending."""
    ordered, order = values.flatten().sort(descending=True)
    ranked = member.flatten()[order]
    last = torch.ones_like(ranked)
    last[:-1] = ordered[1:] != ordered[:-1]
    true = ranked.cumsum(0)[last].double() / ranked.sum()
    false = (~ranked).cumsum(0)[last].double() / (~ranked).sum()
    zero = true.new_zeros(1)
    return torch.cat([zero, true]), torch.cat([zero, false])


def _area(true: Tensor, false: Tensor) -> float:
    return float(torch.trapezoid(true, false))


def _at_most(true: Tensor, false: Tensor, rate: float, outsiders: int) -> tuple[float, int]:
    # Half a trial of slack keeps a rate that is met exactly from being lost to rounding.
    allowed = (math.floor(rate * outsiders + 1e-9) + 0.5) / outsiders
    place = int(torch.searchsorted(false, allowed)) - 1
    return float(true[place]), round(float(false[place]) * outsiders)
