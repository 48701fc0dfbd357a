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
from torch import Tensor

Array = NDArray[np.float64]

_COMPONENTS, _PASSES = 64, 2  # of images, and of the iteration that finds them
_AXES_ROWS = 2_000  # from which the components are found
_FEATURES, _FEATURES_PER_INPUT = 192, 32
_PENALTIES: Final = (1e-4, 1e-3, 1e-2, 1e-1)  # times the mean variance of features
_SLOPES: Final = np.array([0.125, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0])
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
    if is_image and attack.shape[1] > _COMPONENTS:  # first principal axes by subspace iteration
        rows = attack[:_AXES_ROWS] - attack[:_AXES_ROWS].mean(0)
        axes = _normal(random, (rows.shape[1], _COMPONENTS), rows)
        for _ in range(_PASSES):
            axes = torch.linalg.qr(rows.mT @ (rows @ axes)).Q
        attack, validation = attack @ axes, validation @ axes
    mean = attack.mean(0)
    squares = (attack - mean).square()
    deviation = (squares.mean() if is_image else squares.mean(0)).sqrt()
    deviation = torch.where(deviation > 0, deviation, 1)
    attack, validation = (attack - mean) / deviation, (validation - mean) / deviation
    inputs = attack.shape[1]
    features = min(_FEATURES, inputs * _FEATURES_PER_INPUT)
    weight = _normal(random, (inputs, features), attack) / inputs**0.5
    bias = _normal(random, (features,), attack)
    parts = (torch.cat([z, torch.relu(z @ weight + bias)], 1) for z in (attack, validation))
    x, new = (part.double() for part in parts)  # moments of heavy tails need the precision
    centre, share = x.mean(0), targets.double().mean(0)
    x -= centre
    second, moments = x.mT @ x / len(x), x.mT @ (targets - share) / len(x)
    variance = second.diagonal().mean().clamp_min(_SMALLEST_VARIANCE)
    penalties = variance * torch.tensor(_PENALTIES, device=x.device).view(-1, 1, 1)
    factors = torch.linalg.cholesky(second + penalties * torch.eye(len(second), device=x.device))
    weights = torch.cholesky_solve(moments.expand(len(factors), -1, -1), factors)
    columns = weights.transpose(0, 1).flatten(1)  # one product for all penalties
    predicted = ((new - centre) @ columns).view(len(new), len(factors), -1) + share
    return predicted.transpose(0, 1).cpu().numpy()


def select_beliefs(
    shares: Array, label: NDArray[np.int64], prior: Array, fold: NDArray[np.int64]
) -> Array:
    """Log probabilities of a label, by the prediction and the confidence that do best elsewhere.

    The prediction is chosen by its squared error on the rows of the other fold. Its evidence
    against the prior is multiplied by a slope, chosen there by cross-entropy.

    Args:
        shares: Predicted probabilities, shape [J, m, C]; they need not be normalised.
        label: Classes, shape [m].
        prior: Probabilities, shape [C].
        fold: 0 or 1, shape [m].

    Returns:
        Normalised, shape [m, C].
    """
    rows = np.arange(len(label))
    # The squared distance to the one-hot label, without the label's own square of 1.
    error = np.einsum("jmc,jmc->jm", shares, shares) - 2 * shares[:, rows, label]
    beliefs = np.empty(shares.shape[1:])
    for own in (fold == 0, fold == 1):
        chosen = shares[error[:, ~own].mean(1).argmin()]
        evidence = np.log(np.maximum(chosen, _SMALLEST_SHARE) / prior).T
        # Classes are few: as the first dimension they leave long rows to vector units.
        raised = np.log(prior)[:, None, None] + _SLOPES[:, None] * evidence[:, None]
        log_p = torch.from_numpy(raised).log_softmax(0).numpy()  # [C, slopes, m]
        loss = -log_p[label[~own], :, rows[~own]].mean(0)
        beliefs[own] = log_p[:, loss.argmin(), own].T
    return beliefs


def _normal(random: np.random.Generator, shape: tuple[int, ...], like: Tensor) -> Tensor:
    return torch.from_numpy(random.standard_normal(shape)).to(like)
