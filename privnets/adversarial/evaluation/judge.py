"""Judge of a rung: a small attacker in closed form, as cheap as a few steps of training.

Ridge regression on the released values and on random rectified features of them (Rahimi and Recht,
2008; Cho and Saul, 2009) predicts a class's probability. Images are first reduced to their
principal components. The penalty and the confidence are chosen on one half of the validation
records for the other half, so that every record is scored by a choice made without it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax
from torch import Tensor

Array = NDArray[np.float64]

_COMPONENTS, _PASSES = 64, 2  # of images, and of the iteration that finds them
_AXES_ROWS = 2_000  # from which the components are found
_FEATURES = 192
_PENALTIES: Final = (1e-4, 1e-3, 1e-2, 1e-1)  # times the mean variance of features
_SLOPES: Final = np.array([0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0])
_SMALLEST_SHARE, _SMALLEST_VARIANCE = 1e-3, 1e-12


def predict_shares(
    attack: Tensor,
    validation: Tensor,
    targets: Tensor,
    random: np.random.Generator,
    *,
    is_image: bool,
) -> Array:
    """Predicts the probability of each target by ridge regression, once per penalty.

    Args:
        attack: Released values to fit, float32, shape [n, f].
        validation: Released values to predict from, float32, shape [m, f].
        targets: 1 where a row of `attack` belongs to the target, else 0, float32, shape [n, T].
        random: Draws the random features; the same for all releases that are compared.
        is_image: Whether columns are pixels, whose proportions matter.

    Returns:
        Predictions, about in [0, 1], shape [penalties, m, T].
    """
    if is_image and attack.shape[1] > _COMPONENTS:
        axes = _principal_axes(attack[:_AXES_ROWS], random)
        attack, validation = attack @ axes, validation @ axes
    attack, validation = _scale(attack, validation, is_image=is_image)
    inputs = attack.shape[1]
    weight = _normal(random, (inputs, _FEATURES), attack) / inputs**0.5
    bias = _normal(random, (_FEATURES,), attack)
    x, new = (torch.cat([z, torch.relu(z @ weight + bias)], 1) for z in (attack, validation))
    centre, share = x.mean(0), targets.mean(0)
    x -= centre
    second = (x.mT @ x).double() / len(x)
    moments = (x.mT @ (targets - share)).double() / len(x)
    variance = second.diagonal().mean().clamp_min(_SMALLEST_VARIANCE)
    penalties = variance * torch.tensor(_PENALTIES, device=x.device).view(-1, 1, 1)
    factors = torch.linalg.cholesky(second + penalties * torch.eye(len(second), device=x.device))
    weights = torch.cholesky_solve(moments.expand(len(factors), -1, -1), factors)
    predicted = share + (new - centre) @ weights.to(new.dtype)
    return predicted.double().cpu().numpy()


def select_beliefs(
    shares: Array, label: NDArray[np.int64], prior: Array, fold: NDArray[np.int64]
) -> Array:
    """Log probabilities of a label, by the predictions and the confidence that do best elsewhere.

    A prediction's evidence against the prior is multiplied by a slope. Both are chosen by the
    cross-entropy of the rows in the other fold.

    Args:
        shares: Predicted probabilities, shape [J, m, C]; they need not be normalised.
        label: Classes, shape [m].
        prior: Probabilities, shape [C].
        fold: 0 or 1, shape [m].

    Returns:
        Normalised, shape [m, C].
    """
    evidence = np.log(np.maximum(shares, _SMALLEST_SHARE)) - np.log(prior)
    slopes = _SLOPES[:, None, None, None]
    log_p = log_softmax(np.log(prior) + slopes * evidence, axis=-1).reshape(-1, *shares.shape[1:])
    loss = -log_p[:, np.arange(len(label)), label]
    beliefs = np.empty_like(log_p[0])
    for own in (fold == 0, fold == 1):
        best = loss[:, ~own].mean(1).argmin()
        beliefs[own] = log_p[best, own]
    return beliefs


def _scale(attack: Tensor, validation: Tensor, *, is_image: bool) -> tuple[Tensor, Tensor]:
    """Mean 0 and variance 1 of the attack split, for each column or for all pixels together."""
    mean = attack.mean(0)
    squares = (attack - mean).square()
    deviation = (squares.mean() if is_image else squares.mean(0)).sqrt()
    deviation = torch.where(deviation > 0, deviation, 1)
    return (attack - mean) / deviation, (validation - mean) / deviation


def _principal_axes(x: Tensor, random: np.random.Generator) -> Tensor:
    """First principal axes of rows [n, f] by subspace iteration, shape [f, components]."""
    x = x - x.mean(0)
    axes = _normal(random, (x.shape[1], _COMPONENTS), x)
    for _ in range(_PASSES):
        axes = torch.linalg.qr(x.mT @ (x @ axes)).Q
    return axes


def _normal(random: np.random.Generator, shape: tuple[int, ...], like: Tensor) -> Tensor:
    return torch.from_numpy(random.standard_normal(shape)).to(like)
