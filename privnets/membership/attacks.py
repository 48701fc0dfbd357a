"""Membership attacks, which score trials (a model and a record) and decide.

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

from privnets.membership.leakage import gaussian_log_ratios, left_out_log_ratios

# Degrees of freedom that the pooled variance of all records adds to that of one record.
_PRIOR_FREEDOM = 4.0
_TINY = 1e-300
_MIN_SHADOWS = 2
_TOO_FEW = "a record has too few shadow models that trained with it, or without it"
_BOUNDS_ON_OUTPUTS = ("bound/advantage", "bound/advantage_output")

# From two separate covariances to one that both sides share.
_SHRINKAGES = (1e-9, 1e-3, 0.1, 10.0)
_MAX_COMPONENTS = 64
_THRESHOLD_TRIALS = 2**15


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
        parameters: Parameters as released, shape [R, J, p], or [J, p] if every record has the
            same models; None if the attacker sees outputs alone.
        draw: Draw to which model j belongs, shape [J]; the two models of a draw share all members
            but the record. None if no two models do.
    """

    member: Tensor
    fold: Tensor
    signal: Tensor
    error: Tensor
    loss: Tensor
    train_loss: Tensor
    two_sided: bool
    parameters: Tensor | None = None
    draw: Tensor | None = None

    @property
    def fewest_shadows(self) -> int:
        """Least number of models with a record, or without it, in one fold."""
        counts = []
        for fold in (0, 1):
            inside = self.member[:, self.fold == fold]
            counts += [inside.sum(1), (~inside).sum(1)]
        return int(torch.stack(counts).min())


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
            _, threshold = _best_threshold(unusual[:, shadows], trials.member[:, shadows])
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
        """Every record needs two shadow models on each side of each fold."""
        return _TOO_FEW if trials.fewest_shadows < _MIN_SHADOWS else None

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
    """Likelihood ratio of the parameters under Gaussians with shrunk covariances.

    The covariance of a side is shrunk towards that of both sides (Friedman 1989, regularised
    discriminant analysis), so it exists for any number of parameters. The shadow models choose
    the shrinkage and the threshold, each scored by a fit without itself. Of more than 64
    parameters, the leading principal components of all models are used.
    """

    name = "white_box"
    bounds = ("bound/advantage",)

    def why_unavailable(self, trials: Trials) -> str | None:
        """The attacker must see parameters, and three shadow models on each side of each fold."""
        if trials.parameters is None:
            return "the attacker sees no parameters"
        return _TOO_FEW if trials.fewest_shadows <= _MIN_SHADOWS else None

    def guess(self, trials: Trials) -> Guesses:
        """Scores the log-likelihood ratio of the parameters."""
        assert trials.parameters is not None  # by `why_unavailable`
        values = _leading_components(trials.parameters).expand(*trials.member.shape, -1)
        score = torch.empty_like(trials.signal)
        decision = torch.empty_like(trials.member)
        for target in (0, 1):
            shadows, targets = trials.fold != target, trials.fold == target
            member = trials.member[:, shadows]
            partner = None if trials.draw is None else _partners(trials.draw[shadows])
            shrinkage, threshold = _fit_shrinkage(values[:, shadows], member, partner)
            ratios = gaussian_log_ratios(values[:, shadows], member, values[:, targets], shrinkage)
            score[:, targets] = ratios - threshold
            decision[:, targets] = ratios >= threshold
        return Guesses(score, decision)


def _partners(draw: Tensor) -> Tensor:
    """Index of the other model of the same draw, from draws [n] that occur twice each."""
    pairs = draw.argsort().view(-1, 2)
    partner = torch.empty_like(draw)
    partner[pairs] = pairs.flip(1)
    return partner


def _fit_shrinkage(shadows: Tensor, member: Tensor, partner: Tensor | None) -> tuple[float, float]:
    """Shrinkage and threshold with the largest advantage on shadow models, each left out.

    As many records are used as have enough trials for a threshold.
    """
    enough = max(1, _THRESHOLD_TRIALS // member.shape[1])
    shadows, member = shadows[:enough], member[:enough]
    found = []
    for shrinkage in _SHRINKAGES:
        ratios = left_out_log_ratios(shadows, member, shrinkage, partner)
        found.append((*_best_threshold(ratios, member), shrinkage))
    _, threshold, shrinkage = max(found)
    return shrinkage, threshold


def _leading_components(parameters: Tensor) -> Tensor:
    """Leading principal components of models that every record shares, if they are many."""
    if parameters.ndim == 3 or parameters.shape[1] <= _MAX_COMPONENTS:
        return parameters
    left, values, _ = torch.linalg.svd(parameters - parameters.mean(0), full_matrices=False)
    components: Tensor = left[:, :_MAX_COMPONENTS] * values[:_MAX_COMPONENTS]
    return components


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


def _best_threshold(score: Tensor, member: Tensor) -> tuple[float, float]:
    """Largest advantage of calling scores from a threshold on members, and that threshold."""
    order = score.flatten().argsort(descending=True)
    ranked = member.flatten()[order]
    ordered = score.flatten()[order]
    advantage = ranked.cumsum(0) / ranked.sum() - (~ranked).cumsum(0) / (~ranked).sum()
    # No threshold separates equal scores, so only the last of a run counts.
    is_last = torch.ones_like(ranked)
    is_last[:-1] = ordered[1:] != ordered[:-1]
    best = torch.where(is_last, advantage, -1.0).argmax()
    return float(advantage[best]), float(ordered[best])
