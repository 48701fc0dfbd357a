"""Attack on the parameters of a model."""

from __future__ import annotations

import torch
from torch import Tensor

from privnets.membership.attacks.base import (
    TOO_FEW_SHADOWS,
    Attack,
    Guesses,
    Trials,
    best_threshold,
    partners,
)
from privnets.membership.leakage import gaussian_log_ratios, left_out_log_ratios
from privnets.membership.models import MAX_COMPONENTS

# From two separate covariances to one that both sides share.
_SHRINKAGES = (1e-9, 1e-3, 0.1, 10.0)
_THRESHOLD_TRIALS = 2**15
_MIN_SHADOWS = 3


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
        return TOO_FEW_SHADOWS if trials.fewest_shadows() < _MIN_SHADOWS else None

    def guess(self, trials: Trials) -> Guesses:
        """Scores the log-likelihood ratio of the parameters."""
        assert trials.parameters is not None  # by `why_unavailable`
        values = _leading_components(trials.parameters).expand(*trials.member.shape, -1)
        score = torch.empty_like(trials.signal)
        decision = torch.empty_like(trials.member)
        for target in (0, 1):
            shadows, targets = trials.fold != target, trials.fold == target
            member = trials.member[:, shadows]
            partner = None if trials.draw is None else partners(trials.draw[shadows])
            shrinkage, threshold = _fit_shrinkage(values[:, shadows], member, partner)
            ratios = gaussian_log_ratios(values[:, shadows], member, values[:, targets], shrinkage)
            score[:, targets] = ratios - threshold
            decision[:, targets] = ratios >= threshold
        return Guesses(score, decision)


def _fit_shrinkage(shadows: Tensor, member: Tensor, partner: Tensor | None) -> tuple[float, float]:
    """Shrinkage and threshold with the largest advantage on shadow models, each left out.

    As many records are used as have enough trials for a threshold.
    """
    enough = max(1, _THRESHOLD_TRIALS // member.shape[1])
    shadows, member = shadows[:enough], member[:enough]
    found = []
    for shrinkage in _SHRINKAGES:
        ratios = left_out_log_ratios(shadows, member, shrinkage, partner)
        found.append((*best_threshold(ratios, member), shrinkage))
    _, threshold, shrinkage = max(found)
    return shrinkage, threshold


def _leading_components(parameters: Tensor) -> Tensor:
    """Leading principal components of models that every record shares, if they are many."""
    if parameters.ndim == 3 or parameters.shape[1] <= MAX_COMPONENTS:
        return parameters
    left, values, _ = torch.linalg.svd(parameters - parameters.mean(0), full_matrices=False)
    components: Tensor = left[:, :MAX_COMPONENTS] * values[:MAX_COMPONENTS]
    return components
