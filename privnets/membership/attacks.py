"""Membership attacks, which score trials (a model and a record) and decide, and their scores.

Trials come in two folds. An attack is fitted on the models of one fold (its shadow models) and
judged on the models of the other, and vice versa, so no target model is among its own shadows.
An attack is a subclass of `Attack` with one line in `privnets.membership.config.ATTACKS`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from privnets.points import Curve

# Degrees of freedom that the pooled variance of all records adds to that of one record.
_PRIOR_FREEDOM = 4.0
_TINY = 1e-300
_MIN_SHADOWS = 2
_BOUNDS_ON_OUTPUTS = ("bound/advantage", "bound/advantage_output")

FALSE_POSITIVE_RATES = (0.1, 0.01, 0.001)
_CURVE_RATES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 400, 500, 600, 700, 850)


@dataclass(frozen=True)
class Trials:
    """Observations of an attacker: R records, and J models for each.

    Column j is the same model for all records, except for linear models: there every record has
    models of its own.

    Attributes:
        member: Whether the record was in the training set, shape [R, J].
        fold: Which half of the models model j belongs to, 0 or 1, shape [J].
        signal: Nearly Gaussian for each record: the residual y - f(x) of a regression, or the
            logit of the probability of the true class; shape [R, J].
        error: The residual, or one minus the probability of the true class; shape [R, J].
        loss: Loss of the model at the record, without the penalty, shape [R, J].
        train_loss: Mean training loss of the model, shape [R, J] or broadcast to it.
        two_sided: Whether members have signals nearer to 0 (residuals) rather than larger ones.
        log_ratio: log p1/p0 of a draw's parameters under Gaussians fitted on the other fold,
            shape [R, J]; None if the parameters have no Gaussian fit.
        no_log_ratio: Reason if `log_ratio` is None.
    """

    member: Tensor
    fold: Tensor
    signal: Tensor
    error: Tensor
    loss: Tensor
    train_loss: Tensor
    two_sided: bool
    log_ratio: Tensor | None = None
    no_log_ratio: str = "the leakage of the parameters is not defined"


@dataclass(frozen=True)
class Guesses:
    """Answers of an attack.

    Attributes:
        score: Larger for more likely members, shape [R, J].
        decision: Whether the attack calls the record a member, bool, shape [R, J].
    """

    score: Tensor
    decision: Tensor


class Attack(ABC):
    """Base class of membership attacks.

    Attributes:
        bounds: Metrics that bound the attack's advantage, in order of preference; the first that
            is defined is checked.
    """

    name: ClassVar[str]
    bounds: ClassVar[tuple[str, ...]] = ()

    def why_unavailable(self, trials: Trials) -> str | None:
        """Returns the reason why the attack cannot be run on these trials, or None."""
        return None

    @abstractmethod
    def guess(self, trials: Trials) -> Guesses:
        """Answers all trials, each fold with what was fitted on the other."""


class ThresholdGaussian(Attack):
    """Calls a record a member if its error is below the crossing of two centred Gaussians.

    arXiv 2001.10648, section 6 (attack of Yeom et al.). The standard deviations of members' and
    other records' errors come from the shadow models. If members' errors are not smaller, no
    record is called a member.
    """

    name = "threshold_gaussian"
    bounds = _BOUNDS_ON_OUTPUTS

    def guess(self, trials: Trials) -> Guesses:
        """Compares the absolute error with the threshold of the other fold."""
        size = trials.error.abs()
        threshold = torch.empty_like(trials.fold, dtype=size.dtype)
        for target in (0, 1):
            inside, outside = error_deviations(trials, 1 - target)
            threshold[trials.fold == target] = gaussian_crossing(inside, outside)
        return Guesses(-size, size < threshold)


class ThresholdMeanLoss(Attack):
    """Calls a record a member if its loss is at most the mean training loss (Yeom et al.).

    The training loss is not a function of the parameters alone, so no bound applies.
    """

    name = "threshold_mean_loss"

    def guess(self, trials: Trials) -> Guesses:
        """Compares the loss with the training loss of the same model."""
        ratio = trials.train_loss.clamp_min(_TINY).log() - trials.loss.clamp_min(_TINY).log()
        return Guesses(ratio, trials.loss <= trials.train_loss)


class LiraOffline(Attack):
    """LiRA with shadow models that never saw the record (Carlini et al. 2022, one-sided test).

    The score of a residual is the probability that a shadow model's residual is farther from 0;
    that of a classifier is its standardised confidence. The threshold is the best one among the
    shadow models.
    """

    name = "lira_offline"
    bounds = _BOUNDS_ON_OUTPUTS

    def guess(self, trials: Trials) -> Guesses:
        """Scores how unusual the signal is for a model trained without the record."""
        score = torch.empty_like(trials.signal)
        decision = torch.empty_like(trials.member)
        for target in (0, 1):
            mean, deviation = _fit_signal(trials, 1 - target, member=False)
            unusual = _unusualness(trials, mean, deviation)
            shadows, targets = trials.fold != target, trials.fold == target
            threshold = _best_threshold(unusual[:, shadows], trials.member[:, shadows])
            score[:, targets] = unusual[:, targets]
            decision[:, targets] = unusual[:, targets] >= threshold
        return Guesses(score, decision)


class LiraOnline(Attack):
    """LiRA with shadow models on both sides: likelihood ratio of the signal (Carlini et al. 2022).

    Mean and variance of a side come from that side alone.
    """

    name = "lira_online"
    bounds = _BOUNDS_ON_OUTPUTS

    def why_unavailable(self, trials: Trials) -> str | None:
        """Every record needs two shadow models with it in each fold."""
        members = [trials.member[:, trials.fold == fold].sum(1) for fold in (0, 1)]
        if int(torch.stack(members).min()) >= _MIN_SHADOWS:
            return None
        return "a record has too few shadow models that trained with it"

    def guess(self, trials: Trials) -> Guesses:
        """Scores the log-likelihood ratio of two Gaussians at the signal."""
        score = torch.empty_like(trials.signal)
        for target in (0, 1):
            targets = trials.fold == target
            signal = trials.signal[:, targets]
            inside = _log_normal(signal, *_fit_signal(trials, 1 - target, member=True))
            outside = _log_normal(signal, *_fit_signal(trials, 1 - target, member=False))
            score[:, targets] = inside - outside
        return Guesses(score, score > 0)


class WhiteBox(Attack):
    """Likelihood ratio of the parameters under a Gaussian model of each side."""

    name = "white_box"
    bounds = ("bound/advantage",)

    def why_unavailable(self, trials: Trials) -> str | None:
        """The parameters must have a Gaussian fit on both sides."""
        return None if trials.log_ratio is not None else trials.no_log_ratio

    def guess(self, trials: Trials) -> Guesses:
        """Scores log p1/p0 of the parameters."""
        assert trials.log_ratio is not None  # by `why_unavailable`
        return Guesses(trials.log_ratio, trials.log_ratio > 0)


def error_deviations(trials: Trials, fold: int) -> tuple[float, float]:
    """Root-mean-square error among members and among other records, in one fold's models."""
    in_fold = (trials.fold == fold).expand_as(trials.member)
    inside = trials.error[trials.member & in_fold].square().mean().sqrt()
    outside = trials.error[~trials.member & in_fold].square().mean().sqrt()
    return float(inside), float(outside)


def gaussian_crossing(inside: float, outside: float) -> float:
    """Point at which the densities of two centred Gaussians cross; 0 if r <= 1.

    e* = s_out sqrt(2 ln r / (r^2 - 1)), r = s_out / s_in, from the standard deviations of
    members' (`inside`) and other records' errors (arXiv 2001.10648, section 6).
    """
    if not outside > inside:
        return 0.0
    if inside <= 0:
        return _TINY
    ratio = outside / inside
    return outside * math.sqrt(2 * math.log(ratio) / (ratio**2 - 1))


def gaussian_threshold_advantage(inside: float, outside: float) -> float:
    """Advantage of `ThresholdGaussian` on centred Gaussian errors with these deviations.

    erf(e* / (s_in sqrt 2)) - erf(e* / (s_out sqrt 2)).
    """
    threshold = gaussian_crossing(inside, outside)
    if threshold == 0.0:
        return 0.0
    if inside <= 0:
        return 1.0
    root = math.sqrt(2)
    return math.erf(threshold / (inside * root)) - math.erf(threshold / (outside * root))


def _fit_signal(trials: Trials, fold: int, *, member: bool) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each record's signal on one side of one fold, shape [R, 1] each."""
    selected = (trials.member == member) & (trials.fold == fold)
    count = selected.sum(1, keepdim=True)
    signal = torch.where(selected, trials.signal, 0.0)
    mean = signal.sum(1, keepdim=True) / count.clamp_min(1)
    squares = torch.where(selected, (trials.signal - mean) ** 2, 0.0).sum(1, keepdim=True)
    freedom = (count - 1).clamp_min(0)
    pooled = squares.sum() / freedom.sum().clamp_min(1)
    variance = (squares + _PRIOR_FREEDOM * pooled) / (freedom + _PRIOR_FREEDOM)
    return mean, variance.clamp_min(_TINY).sqrt()


def _unusualness(trials: Trials, mean: Tensor, deviation: Tensor) -> Tensor:
    if not trials.two_sided:
        return (trials.signal - mean) / deviation
    size = trials.signal.abs()
    above: Tensor = torch.special.ndtr((mean - size) / deviation)
    below: Tensor = torch.special.ndtr((-size - mean) / deviation)
    return above + below


def _log_normal(value: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    return -((value - mean) ** 2) / (2 * deviation**2) - deviation.log()


def _best_threshold(score: Tensor, member: Tensor) -> Tensor:
    order = score.flatten().argsort(descending=True)
    ranked = member.flatten()[order]
    ordered = score.flatten()[order]
    advantage = ranked.cumsum(0) / ranked.sum() - (~ranked).cumsum(0) / (~ranked).sum()
    # No threshold separates equal scores, so only the last of a run counts.
    is_last = torch.ones_like(ranked)
    is_last[:-1] = ordered[1:] != ordered[:-1]
    return ordered[torch.where(is_last, advantage, -1.0).argmax()]


@dataclass(frozen=True)
class AttackScore:
    """Scores of one attack.

    Attributes:
        advantage: TPR - FPR of its decisions, signed, in [-1, 1].
        advantage_error: Standard error of `advantage`. Records (and models, where they serve
            several records) are the independent units, not trials.
        auc: Area under the ROC curve (Mann-Whitney; ties count half), in [0, 1].
        low_rates: For each rate r, `tpr_at_fpr_r` at the threshold with the largest FPR that does
            not exceed it, and the number of `false_positives_at_fpr_r` there.
        roc: TPR at false-positive rates in thousandths.
    """

    advantage: float
    advantage_error: float
    auc: float
    low_rates: dict[str, float]
    roc: Curve


def score_guesses(guesses: Guesses, member: Tensor, *, shared_models: bool) -> AttackScore:
    """Scores an attack on trials pooled over records; `member` has shape [R, J]."""
    advantage, error = signed_advantage(guesses.decision, member, shared_models=shared_models)
    true, false = _roc(guesses.score, member)
    outsiders = int((~member).sum())
    low_rates: dict[str, float] = {}
    for rate in FALSE_POSITIVE_RATES:
        power, count = _rate_at(true, false, rate, outsiders)
        low_rates |= {f"tpr_at_fpr_{rate}": power, f"false_positives_at_fpr_{rate}": count}
    curve = tuple(_rate_at(true, false, step / 1000, outsiders)[0] for step in _CURVE_RATES)
    auc = float(torch.trapezoid(true, false))
    return AttackScore(advantage, error, auc, low_rates, Curve(_CURVE_RATES, curve))


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
