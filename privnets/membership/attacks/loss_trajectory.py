"""Loss-trajectory attack (Liu et al., CCS 2022, arXiv 2208.14933), with losses of training itself.

The paper's attacker imitates training by distillation, since only the trained model answers. Here
the attacker sees the losses of the target at its checkpoints, which is at least as strong.
"""

from __future__ import annotations

import torch
from torch import Tensor

from privnets.membership.attacks.base import Attack, Guesses, Trials, threshold_of_shadows
from privnets.membership.config import NO_TRAJECTORY

_NEWTON_STEPS = 30
_PENALTY = 1e-3
_TINY = 1e-12


class LossTrajectory(Attack):
    """Logistic regression on the logarithms of the losses at all checkpoints.

    It is fitted to the trajectories of shadow models, of members and of other records alike, and
    serves all records. DP-SGD covers every checkpoint, so its bound holds; that of the released
    parameters does not.
    """

    name = "loss_trajectory"
    bounds = ("bound/advantage_dp",)

    def why_unavailable(self, trials: Trials) -> str | None:
        """The attacker must see losses in the course of training."""
        return NO_TRAJECTORY if trials.trajectory is None else None

    def guess(self, trials: Trials) -> Guesses:
        """Scores the log-odds of membership, given the trajectory."""
        assert trials.trajectory is not None  # by `why_unavailable`
        features = trials.trajectory.clamp_min(_TINY).log().movedim(0, -1)
        score = torch.empty_like(trials.signal)
        for target in (0, 1):
            shadows, targets = trials.fold != target, trials.fold == target
            known = features[:, shadows].flatten(0, 1)
            mean, deviation = known.mean(0), known.std(0).clamp_min(_TINY)
            inside = trials.member[:, shadows].flatten()
            weights = fit_log_odds((known - mean) / deviation, inside)
            score[:, targets] = ((features[:, targets] - mean) / deviation) @ weights
        return threshold_of_shadows(score, trials)


def fit_log_odds(features: Tensor, member: Tensor) -> Tensor:
    """Fits logistic regression with a balanced prior, by Newton's method.

    Args:
        features: Standardised, shape [m, E].
        member: Bool, shape [m].

    Returns:
        Coefficients without the intercept, shape [E].
    """
    x = torch.cat([features, torch.ones_like(features[:, :1])], dim=1).double()
    y = member.double()
    share = y.mean().clamp(1e-9, 1 - 1e-9)
    weight = torch.where(member, 0.5 / share, 0.5 / (1 - share)) / len(y)
    penalty = torch.full((x.shape[1],), _PENALTY, dtype=x.dtype, device=x.device)
    penalty[-1] = _TINY
    theta = x.new_zeros(x.shape[1])
    for _ in range(_NEWTON_STEPS):
        p = torch.sigmoid(x @ theta)
        gradient = x.T @ (weight * (p - y)) + penalty * theta
        curvature = (x * (weight * p * (1 - p))[:, None]).T @ x + torch.diag(penalty)
        step = torch.linalg.solve(curvature, gradient)
        theta = theta - step
        if float(step.abs().max()) < 1e-10:
            break
    return theta[:-1].to(features)
