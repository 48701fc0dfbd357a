"""Leakage of Gaussian parameters about the membership of a record.

arXiv 2001.10648, definitions 1 and 2. Each attacked record has parameters of models trained with
it (side 1) and without it (side 0). Draws come in two folds: moments fitted on one are applied to
the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# A correlation matrix with a smaller eigenvalue has no accurate inverse in float64.
_SMALLEST_EIGENVALUE = 1e-10
# Rounding alone can leave a variance of this size relative to the squared mean.
_ROUNDING = 1e-26


@dataclass(frozen=True)
class Sides:
    """First and second moments of parameters for each record, side and fold.

    Attributes:
        means: Shape [R, 2 sides, 2 folds, p].
        covariances: Unbiased, shape [R, 2 sides, 2 folds, p, p], without added noise.
        counts: Number of draws, shape [R, 2 sides, 2 folds].
        difference: Covariance of the estimate of mean 0 - mean 1 over both folds, estimated on
            each fold, shape [R, 2 folds, p, p].
        noise_variance: Variance of independent Gaussian noise on every parameter.
    """

    means: Tensor
    covariances: Tensor
    counts: Tensor
    difference: Tensor
    noise_variance: float

    @property
    def pooled_means(self) -> Tensor:
        """Means over both folds, shape [R, 2, p]."""
        weight = self.counts / self.counts.sum(-1, keepdim=True)
        return (weight[..., None] * self.means).sum(2)

    @property
    def pooled_covariances(self) -> Tensor:
        """Unbiased covariances over both folds, shape [R, 2, p, p]."""
        centred = self.means - self.pooled_means[:, :, None]
        scatter = (self.counts - 1)[..., None, None] * self.covariances
        between = self.counts[..., None, None] * centred[..., :, None] * centred[..., None, :]
        freedom = self.counts.sum(-1) - 1
        return (scatter + between).sum(2) / freedom[..., None, None]


def paired_sides(values: Tensor, noise_std: float) -> Sides:
    """Computes moments of pairs: draw m of both sides has the same other members.

    Args:
        values: Parameters, shape [R, 2 sides, M, p], M even; the first half is fold 0.
    """
    records, _, draws, p = values.shape
    means, covariances = _moments(values.reshape(records, 2, 2, draws // 2, p))
    differences = (values[:, 0] - values[:, 1]).reshape(records, 2, draws // 2, p)
    counts = torch.full((records, 2, 2), draws / 2, dtype=values.dtype, device=values.device)
    return Sides(means, covariances, counts, _moments(differences)[1] / draws, noise_std**2)


def shared_sides(values: Tensor, member: Tensor, noise_std: float = 0.0) -> Sides:
    """Computes moments of models that serve every record.

    Args:
        values: Parameters [J, p], or outputs at each record [R, J, p]; the first half of the
            models is fold 0.
        member: Whether a record was in a model's training set, shape [R, J].
    """
    folds = torch.arange(member.shape[1], device=member.device) >= member.shape[1] // 2
    sides = torch.stack([~member, member], dim=1)
    weight = torch.stack([sides & ~folds, sides & folds], dim=2).to(values.dtype)
    counts = weight.sum(-1)
    joined = values.ndim == 2
    centre = values.mean(-2)
    shifted = values - (centre if joined else centre[:, None])
    own = "jp" if joined else "rjp"
    mean = torch.einsum(f"rsfj,{own}->rsfp", weight, shifted) / counts[..., None]
    products = shifted[..., :, None] * shifted[..., None, :]
    square = torch.einsum(f"rsfj,{own}q->rsfpq", weight, products)
    scatter = square - counts[..., None, None] * mean[..., :, None] * mean[..., None, :]
    means = mean + (centre if joined else centre[:, None, None])
    covariances = scatter / (counts - 1)[..., None, None]
    total = counts.sum(-1)
    difference = covariances[:, 0] / total[:, 0, None, None, None]
    difference = difference + covariances[:, 1] / total[:, 1, None, None, None]
    return Sides(means, covariances, counts, difference, noise_std**2)


def fold_counts(member: Tensor) -> Tensor:
    """Number of models for each record, side and fold, shape [R, 2, 2], from members [R, J]."""
    inside = torch.stack(member.chunk(2, dim=1), dim=1).sum(-1)
    return torch.stack([member.shape[1] // 2 - inside, inside], dim=1)


def too_few_draws(counts: Tensor, numbers: int) -> str | None:
    """Reason if the draws, shape [R, 2, 2], are too few for covariances of size `numbers`."""
    fewest = int(counts.min())
    if fewest > numbers + 4:
        return None
    return (
        f"a covariance of {numbers} numbers needs more than {numbers + 4} draws on each side of "
        f"each part of the models; there are {fewest}: raise draws"
    )


def why_undefined(sides: Sides) -> str | None:
    """Reason if the Gaussian leakage is not defined by these moments, or None."""
    reason = too_few_draws(sides.counts, sides.means.shape[-1])
    if reason is not None:
        return reason
    means = torch.cat([sides.means, sides.pooled_means[:, :, None]], dim=2)
    estimates = torch.cat([sides.covariances, sides.pooled_covariances[:, :, None]], dim=2)
    noisy = _noisy(estimates, sides.noise_variance)
    variances = torch.diagonal(noisy, dim1=-2, dim2=-1)
    if bool((variances <= _ROUNDING * means.square()).any()):
        return "the covariance is singular: on one side all draws are equal"
    contrast = variances.amin(1) / variances.amax(1)
    if float(contrast.min()) <= _SMALLEST_EIGENVALUE:
        return (
            f"the covariance is all but singular: on one side the draws vary {contrast.min():.0e} "
            "times as much as on the other"
        )
    scale = variances.sqrt()
    correlations = noisy / (scale[..., :, None] * scale[..., None, :])
    smallest = float(torch.linalg.eigvalsh(correlations).amin(-1).min())
    if not smallest > _SMALLEST_EIGENVALUE:
        return f"the covariance is singular (smallest eigenvalue of correlations {smallest:.1e})"
    return None


def jeffreys_plugin(sides: Sides) -> Tensor:
    """Plug-in estimate of D(N1 || N0) + D(N0 || N1), from estimated moments.

    arXiv 2001.10648, definition 2 and remark 3 (corrected). With M draws on each side it is about
    p(p + 3)/M if the true value is 0.

    Returns:
        Nats, shape [R].
    """
    noisy = _noisy(sides.pooled_covariances, sides.noise_variance)
    inverse = torch.linalg.inv(noisy)
    apart = sides.pooled_means[:, 0] - sides.pooled_means[:, 1]
    traces = _trace(inverse[:, 0], noisy[:, 1]) + _trace(inverse[:, 1], noisy[:, 0])
    distance = torch.einsum("ri,rij,rj->r", apart, inverse.sum(1), apart)
    return (traces - 2 * apart.shape[-1] + distance) / 2


def jeffreys(sides: Sides) -> Tensor:
    """Estimate of D(N1 || N0) + D(N0 || N1) without the bias of the plug-in.

    It equals (tr((W0 - W1)(S1 - S0)) + d'(W0 + W1)d) / 2 with inverse covariances W: products of
    two estimates. Taking them from different folds removes the bias of a product, also if the two
    sides share draws. The bias of each inverse is corrected: exactly for Gaussian parameters
    without noise, by (M - p - 2)/(M - 1), and to second order in 1/M with noise. The mean
    difference d is independent of W, and its variance is subtracted.

    Returns:
        Nats, shape [R]; may be negative if the true value is near 0.
    """
    inverse = _unbiased_inverse(sides.covariances, sides.counts, sides.noise_variance)
    swapped = sides.covariances.flip(2)
    spread = _trace(inverse[:, 0] - inverse[:, 1], swapped[:, 1] - swapped[:, 0]).mean(1)
    variance = _trace(inverse.sum(1), sides.difference.flip(1)).mean(1)
    pooled = _unbiased_inverse(
        sides.pooled_covariances, sides.counts.sum(-1), sides.noise_variance
    ).sum(1)
    apart = sides.pooled_means[:, 0] - sides.pooled_means[:, 1]
    distance = torch.einsum("ri,rij,rj->r", apart, pooled, apart)
    return (spread + distance - variance) / 2


def extrapolated_jeffreys(sides: Sides, halves: tuple[Sides, Sides]) -> Tensor:
    """Estimate of D(N1 || N0) + D(N0 || N1) from all draws and from each half of them.

    `jeffreys` is unbiased for Gaussian parameters alone: the bias of an inverse covariance depends
    on the parameters' fourth moments. It is of order 1/M with M draws, so twice the estimate from
    all draws, minus the mean of those from each half, removes it (Richardson).

    Returns:
        Nats, shape [R]; may be negative if the true value is near 0.
    """
    return 2 * jeffreys(sides) - (jeffreys(halves[0]) + jeffreys(halves[1])) / 2


def mutual_information(sides: Sides, prior: float, normals: Tensor) -> Tensor:
    """Mutual information of parameters and membership (definition 1).

    E log p_z/m for two Gaussians and their mixture m, averaged over draws from fitted Gaussians.
    The bias of fitting is of order 1/M: twice the value with all draws, minus the mean value of
    the two folds, removes it.

    Args:
        normals: Standard Gaussian draws, shape [R, G, p]; used with both signs.

    Returns:
        Nats, shape [R].
    """
    means = torch.cat([sides.pooled_means[:, :, None], sides.means], dim=2)
    covariances = torch.cat([sides.pooled_covariances[:, :, None], sides.covariances], dim=2)
    noisy = _noisy(covariances, sides.noise_variance)
    both = torch.cat([normals, -normals], dim=1)
    values = [_gaussian_information(means[:, :, k], noisy[:, :, k], prior, both) for k in range(3)]
    return 2 * values[0] - (values[1] + values[2]) / 2


def _gaussian_information(means: Tensor, covariances: Tensor, prior: float, z: Tensor) -> Tensor:
    """Computes alpha_1 KL(p1 || p0) - KL(m || p0), the second term by draws from both sides.

    Under p0 it subtracts prior (p1/p0 - 1), which has mean 0 and keeps the variance small for a
    small prior. Draws with p1 > p0 come from p1, where they are frequent.
    """
    factor = torch.linalg.cholesky(covariances)
    log_determinant = torch.diagonal(factor, dim1=-2, dim2=-1).log().sum(-1)
    ratios = []
    for side in (0, 1):
        draws = means[:, side, None] + z @ factor[:, side].transpose(-1, -2)
        squares = []
        for k in (0, 1):
            centred = (draws - means[:, k, None]).transpose(-1, -2)
            whitened = torch.linalg.solve_triangular(factor[:, k], centred, upper=False)
            squares.append(whitened.square().sum(-2) / 2)
        gap = (log_determinant[:, 0] - log_determinant[:, 1])[:, None]
        ratios.append(squares[0] - squares[1] + gap)
    mixture = [
        torch.logaddexp(torch.full_like(r, math.log1p(-prior)), math.log(prior) + r) for r in ratios
    ]
    below = ratios[0].clamp_max(0)
    low = torch.where(ratios[0] <= 0, mixture[0] - prior * torch.expm1(below), 0.0)
    rarity = torch.exp(-ratios[1].clamp_min(0))
    high = torch.where(ratios[1] > 0, mixture[1] * rarity + prior * (rarity - 1), 0.0)
    outside = low.mean(1) + high.mean(1)
    inverse, apart = torch.cholesky_inverse(factor[:, 0]), means[:, 1] - means[:, 0]
    distance = torch.einsum("ri,rij,rj->r", apart, inverse, apart)
    traces = _trace(inverse, covariances[:, 1]) - apart.shape[-1]
    divergence = (traces + distance) / 2 + log_determinant[:, 0] - log_determinant[:, 1]
    return prior * (divergence - mixture[1].mean(1)) - (1 - prior) * outside


def _unbiased_inverse(covariance: Tensor, counts: Tensor, noise_variance: float) -> Tensor:
    """Inverse of covariance plus noise, corrected for the bias of inverting a Wishart matrix."""
    inverse: Tensor = torch.linalg.inv(_noisy(covariance, noise_variance))
    ratio = inverse @ covariance
    trace = torch.diagonal(ratio, dim1=-2, dim2=-1).sum(-1)[..., None, None]
    return inverse - (ratio @ ratio + trace * ratio) @ inverse / (counts - 1)[..., None, None]


def _noisy(covariance: Tensor, noise_variance: float) -> Tensor:
    identity = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    return covariance + noise_variance * identity


def _trace(left: Tensor, right: Tensor) -> Tensor:
    return (left * right.transpose(-1, -2)).sum((-1, -2))


def _moments(draws: Tensor) -> tuple[Tensor, Tensor]:
    mean = draws.mean(-2)
    centred = draws - mean[..., None, :]
    return mean, centred.transpose(-1, -2) @ centred / (draws.shape[-2] - 1)
