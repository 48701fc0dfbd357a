"""Membership attacks: each scores trials (a model and a record) and says who was a member.

Trials come in two folds. An attack learns from the models of one fold (its shadow models) and is
judged on the models of the other, then the other way round: a target model is never among the
shadows it is attacked with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# Degrees of freedom that all records together lend to one record's variance.
_PRIOR_FREEDOM = 4.0
_TINY = 1e-300


@dataclass(frozen=True)
class Trials:
    """What an attacker may observe of models on records. R records, J models or draws.

    Attributes:
        member: Whether the record was in the training set, shape [R, J].
        fold: Which half of the models a draw belongs to, 0 or 1, shape [J].
        signal: Roughly Gaussian per record: the residual y - f(x) of a regression, or the logit of
            the probability of the true class; shape [R, J].
        error: The residual, or one minus the probability of the true class; shape [R, J].
        loss: The training loss of the model at the record, shape [R, J].
        train_loss: The model's mean training loss, shape [R, J] or broadcast to it.
        two_sided: Whether a member's signal is nearer to 0 (residuals) rather than larger.
    """

    member: Tensor
    fold: Tensor
    signal: Tensor
    error: Tensor
    loss: Tensor
    train_loss: Tensor
    two_sided: bool


@dataclass(frozen=True)
class Guesses:
    """An attack's answers.

    Attributes:
        score: Larger where membership is likelier, shape [R, J].
        decision: The yes or no it commits itself to, shape [R, J].
    """

    score: Tensor
    decision: Tensor


def threshold_gaussian(trials: Trials) -> Guesses:
    """Member if the error is below the point where two centred Gaussian densities cross.

    arXiv 2001.10648, section 6 (the adversary of Yeom et al.): the deviations of the error among
    members and others are learnt from the shadows. Nobody is called a member by errors that are
    not smaller among members.
    """
    size = trials.error.abs()
    threshold = torch.empty_like(trials.fold, dtype=size.dtype)
    for judged in (0, 1):
        inside, outside = error_deviations(trials, 1 - judged)
        threshold[trials.fold == judged] = crossing(inside, outside)
    return Guesses(-size, size < threshold)


def threshold_mean_loss(trials: Trials) -> Guesses:
    """Member if the loss at the record is at most the model's mean training loss (Yeom et al.)."""
    ratio = trials.train_loss.clamp_min(_TINY).log() - trials.loss.clamp_min(_TINY).log()
    return Guesses(ratio, trials.loss <= trials.train_loss)


def white_box(log_ratio: Tensor) -> Guesses:
    """Likelihood ratio of the parameters under the Gaussian model of each side.

    Args:
        log_ratio: log p1/p0 of a draw's parameters by the other fold's moments, shape [R, J].
    """
    return Guesses(log_ratio, log_ratio > 0)


def lira_offline(trials: Trials) -> Guesses:
    """LiRA with shadows that never saw the record: how unusual is so good a fit for one of them?

    Carlini et al. 2022, the one-sided test. For a residual, the chance that a shadow's would be
    farther from 0; for a classifier, that its confidence would be lower. The threshold is the one
    that did best among the shadows themselves.
    """
    score = torch.empty_like(trials.signal)
    decision = torch.empty_like(trials.member)
    for judged in (0, 1):
        mean, deviation = _fit(trials, 1 - judged, side=False)
        score_all = _unusual(trials, mean, deviation)
        shadows, targets = trials.fold != judged, trials.fold == judged
        best = _best_threshold(score_all[:, shadows], trials.member[:, shadows])
        score[:, targets] = score_all[:, targets]
        decision[:, targets] = score_all[:, targets] >= best
    return Guesses(score, decision)


def lira_online(trials: Trials) -> Guesses:
    """LiRA with shadows on both sides: the likelihood ratio of the signal at the record.

    Carlini et al. 2022. Mean and variance of each side come from that side alone.
    """
    score = torch.empty_like(trials.signal)
    for judged in (0, 1):
        targets = trials.fold == judged
        signal = trials.signal[:, targets]
        inside = _log_normal(signal, *_fit(trials, 1 - judged, side=True))
        outside = _log_normal(signal, *_fit(trials, 1 - judged, side=False))
        score[:, targets] = inside - outside
    return Guesses(score, score > 0)


def fewest_shadows(trials: Trials) -> int:
    """Models that trained with a record, in one fold, for the record that has fewest."""
    inside = torch.stack([trials.member[:, trials.fold == f].sum(1) for f in (0, 1)])
    return int(inside.min())


def error_deviations(trials: Trials, fold: int) -> tuple[float, float]:
    """Root-mean-square error among members and among others, in one fold's models."""
    chosen = (trials.fold == fold).expand_as(trials.member)
    inside = trials.error[trials.member & chosen].square().mean().sqrt()
    outside = trials.error[~trials.member & chosen].square().mean().sqrt()
    return float(inside), float(outside)


def crossing(inside: float, outside: float) -> float:
    """Where the densities of centred Gaussians with these deviations meet; 0 if r <= 1.

    e* = s_out sqrt(2 ln r / (r^2 - 1)), r = s_out / s_in.
    """
    if not outside > inside:
        return 0.0
    if inside <= 0:
        return _TINY
    ratio = outside / inside
    return outside * math.sqrt(2 * math.log(ratio) / (ratio**2 - 1))


def gaussian_threshold_advantage(inside: float, outside: float) -> float:
    """The advantage of `threshold_gaussian` if errors were centred Gaussians."""
    threshold = crossing(inside, outside)
    if threshold == 0.0:
        return 0.0
    if inside <= 0:
        return 1.0
    root = math.sqrt(2)
    return math.erf(threshold / (inside * root)) - math.erf(threshold / (outside * root))


def _fit(trials: Trials, fold: int, *, side: bool) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each record's signal on one side of one fold, shape [R, 1] each."""
    chosen = (trials.member == side) & (trials.fold == fold)
    count = chosen.sum(1, keepdim=True)
    signal = torch.where(chosen, trials.signal, 0.0)
    mean = signal.sum(1, keepdim=True) / count.clamp_min(1)
    square = torch.where(chosen, (trials.signal - mean) ** 2, 0.0).sum(1, keepdim=True)
    freedom = (count - 1).clamp_min(0)
    pooled = square.sum() / freedom.sum().clamp_min(1)
    variance = (square + _PRIOR_FREEDOM * pooled) / (freedom + _PRIOR_FREEDOM)
    return mean, variance.clamp_min(_TINY).sqrt()


def _unusual(trials: Trials, mean: Tensor, deviation: Tensor) -> Tensor:
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
    gained = ranked.cumsum(0) / ranked.sum() - (~ranked).cumsum(0) / (~ranked).sum()
    # A threshold between equal scores cannot be had: only the last of a run counts.
    last = torch.ones_like(ranked)
    last[:-1] = ordered[1:] != ordered[:-1]
    return ordered[torch.where(last, gained, -1.0).argmax()]
