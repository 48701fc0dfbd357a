"""Attacks that compare the error of a model with a threshold (Yeom et al., arXiv 1709.01604)."""

from __future__ import annotations

import math

import torch

from privnets.membership.attacks.base import BOUNDS_ON_OUTPUTS, Attack, Guesses, Trials

_TINY = 1e-300


class ThresholdGaussian(Attack):
    """Calls a record a member if its error is below the crossing of two centred Gaussians.

    arXiv 2001.10648, section 6 (attack of Yeom et al.). The standard deviations of members' and
    other records' errors come from the shadow models. If members' errors are not smaller, no
    record is called a member.
    """

    name = "threshold_gaussian"
    bounds = BOUNDS_ON_OUTPUTS

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
