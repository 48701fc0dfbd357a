"""Loss-trajectory attack (Liu et al., CCS 2022, arXiv 2208.14933), with losses of training itself.

The paper's attacker imitates training by distillation, since only the trained model answers. Here
the attacker sees the losses of the target at its checkpoints, which is at least as strong.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from privnets.attacks.base import NO_TRAJECTORY, Attack
from privnets.attacks.view import Array, AttackerView, BoolArray

_NEWTON_STEPS = 30
_PENALTY = 1e-3
_TINY = 1e-12


class LossTrajectory(Attack):
    """Logistic regression on the logarithms of the losses at all checkpoints.

    It is fitted to the trajectories of reference models, of members and of other records alike, and
    serves all records. DP-SGD covers every checkpoint, so its bound holds; that of the released
    parameters does not.
    """

    name = "loss_trajectory"
    family = "learned"
    paper = "Liu et al., CCS 2022, arXiv 2208.14933"
    bounds = ("bound/advantage_dp",)

    def why_unavailable(self, view: AttackerView) -> str | None:
        """The attacker must see losses in the course of training."""
        has_losses = view.training is not None and view.training.trajectory is not None
        return None if has_losses else NO_TRAJECTORY

    def score(self, view: AttackerView) -> Array:
        """Scores the log-odds of membership, given the trajectory."""
        training = view.training
        assert training is not None  # by `why_unavailable`
        assert training.trajectory is not None
        assert training.trajectory_of_references is not None
        judged, known = (
            np.moveaxis(np.log(np.maximum(losses, _TINY)), 0, -1)
            for losses in (training.trajectory, training.trajectory_of_references)
        )
        known = known.reshape(-1, known.shape[-1])
        mean, deviation = known.mean(0), np.maximum(known.std(0, ddof=1), _TINY)
        weights = fit_log_odds((known - mean) / deviation, view.references.member.ravel())
        scores: Array = ((judged - mean) / deviation) @ weights
        return scores


def fit_log_odds(features: Array, member: BoolArray) -> Array:
    """Fits logistic regression with a balanced prior, by Newton's method.

    Args:
        features: Standardised, shape [m, E].
        member: Shape [m].

    Returns:
        Coefficients without the intercept, shape [E].
    """
    x = np.column_stack([features, np.ones(len(features))])
    share = np.clip(member.mean(), 1e-9, 1 - 1e-9)
    weight = np.where(member, 0.5 / share, 0.5 / (1 - share)) / len(member)
    penalty = np.full(x.shape[1], _PENALTY)
    penalty[-1] = _TINY
    theta = np.zeros(x.shape[1])
    for _ in range(_NEWTON_STEPS):
        p = expit(x @ theta)
        gradient = x.T @ (weight * (p - member)) + penalty * theta
        curvature = (x * (weight * p * (1 - p))[:, None]).T @ x + np.diag(penalty)
        step = np.linalg.solve(curvature, gradient)
        theta = theta - step
        if np.abs(step).max() < 1e-10:
            break
    return theta[:-1]
