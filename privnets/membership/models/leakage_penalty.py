"""Leakage of membership as a part of the training objective, weighted by `leakage_weight`.

The future work of arXiv 2001.10648. Linear models have a quadratic penalty that is fixed before
training and trades bias against the leakage of noisy parameters. Networks have the leakage of
their outputs, measured at reference records in every step.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# A direction keeps at least this share of its coefficient, so that its penalty is finite.
_LEAST_SHARE = 1e-6
_TINY_VARIANCE = 1e-6


def ridge_penalty(
    x: Tensor, y: Tensor, size: int, weight_decay: float, leakage_weight: float, noise_std: float
) -> Tensor:
    """Penalty matrix K of ridge regression: theta = (X'X/n + K)^-1 X'y/n.

    In principal direction j of all records, with second moment c, coefficient t of the fit to all
    records and penalty k, the fit keeps the share u = c / (c + k) of t. This costs the squared
    error c t^2 (1 - u)^2. To first order, a parameter is the mean of n influences of variance
    v = s u^2 / c^2, with s the second moment of the loss gradients' half. With noise of standard
    deviation sigma, its leakage rho_KL is v / ((n - 1) v + n^2 sigma^2). The penalty minimises the
    error plus `leakage_weight` times the leakage, direction by direction, with k at least
    `weight_decay`. Leakage of one direction in another is left out, and so is the sampling error.

    K is a function of all records, and counts as public as principal components do.

    Args:
        x: Features of all records, shape [N, p].
        y: Targets, shape [N].
        size: Records in a training set, n.
        noise_std: Standard deviation sigma of the noise added to parameters, above 0.

    Returns:
        Shape [p, p]; `weight_decay` times the identity without `leakage_weight`.
    """
    identity = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    if leakage_weight == 0:
        return weight_decay * identity
    moment, axes = torch.linalg.eigh(x.T @ x / len(x))
    rotated = x @ axes
    moment = moment.clamp_min(1e-12 * moment[-1])
    coefficient = rotated.T @ y / len(x) / moment
    residual = y - rotated @ (coefficient * moment / (moment + weight_decay))
    gradient = (rotated * residual[:, None]).square().mean(0)
    shares = best_shares(
        *(each.cpu().numpy() for each in (moment, coefficient, gradient)),
        size=size,
        weight_decay=weight_decay,
        leakage_weight=leakage_weight,
        noise_std=noise_std,
    )
    kept = torch.from_numpy(shares).to(moment)
    penalty: Tensor = (axes * (moment * (1 - kept) / kept)) @ axes.T
    return penalty


def best_shares(
    moment: NDArray[np.float64],
    coefficient: NDArray[np.float64],
    gradient: NDArray[np.float64],
    *,
    size: int,
    weight_decay: float,
    leakage_weight: float,
    noise_std: float,
) -> NDArray[np.float64]:
    """Shares u of the coefficients that minimise error plus weighted leakage; see `ridge_penalty`.

    With A = c t^2, g = s / (c n sigma)^2 and h = (n - 1) g, the objective A (1 - u)^2 +
    w g u^2 / (1 + h u^2) is stationary where A (1 - u) (1 + h u^2)^2 = w g u, a polynomial of
    degree 5. Its roots and the ends of the interval are compared.

    Args:
        moment: Second moments c, above 0, shape [p].
        coefficient: Coefficients t, shape [p].
        gradient: Second moments s, shape [p].

    Returns:
        Shape [p], at most c / (c + weight_decay) each.
    """
    signal = moment * coefficient**2
    leak = gradient / (moment * size * noise_std) ** 2
    saturation = (size - 1) * leak
    most = np.maximum(moment / (moment + weight_decay), _LEAST_SHARE)
    shares = np.empty_like(moment)
    for j, (a, g, h) in enumerate(zip(signal, leakage_weight * leak, saturation, strict=True)):
        roots = np.roots([-a * h * h, a * h * h, -2 * a * h, 2 * a * h, -a - g, a])
        real = roots.real[np.abs(roots.imag) < 1e-9]
        candidates = np.clip([*real, _LEAST_SHARE, most[j]], _LEAST_SHARE, most[j])
        value = a * (1 - candidates) ** 2 + g * candidates**2 / (1 + h * candidates**2)
        shares[j] = candidates[value.argmin()]
    return shares


def output_leakage(member: Tensor, reference: Tensor) -> Tensor:
    """Jeffreys divergence of Gaussians fitted to signals of members and of reference records.

    rho_KL of a model's output if the signals of all records have one law (arXiv 2001.10648,
    definition 2, with the corrected formula of remark 3). Gradients flow through the members'
    signals alone, so a model is not trained on reference records.

    Args:
        member: Signals at the training set, shape [S, n].
        reference: Signals at records outside it, shape [S, m].

    Returns:
        Nats, at least 0, shape [S].
    """
    fixed = reference.detach()
    inside, outside = (
        each.var(1, correction=0).clamp_min(_TINY_VARIANCE) for each in (member, fixed)
    )
    shift = (member.mean(1) - fixed.mean(1)).square()
    ratio = inside / outside + outside / inside - 2
    divergence: Tensor = (ratio + shift * (1 / inside + 1 / outside)) / 2
    return divergence
