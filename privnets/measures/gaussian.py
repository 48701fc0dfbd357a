"""Divergences between Gaussian distributions, in closed form.

arXiv 2001.10648, remark 3 (trace term and transpose corrected).
"""

from __future__ import annotations

import torch
from torch import Tensor

from privnets.measures.arrays import Array, as_given, batch_shape, finite


def gaussian_kl(mean0: Array, cov0: Array, mean1: Array, cov1: Array) -> Array:
    """Kullback-Leibler divergence D(N(mean0, cov0) || N(mean1, cov1)).

    Args:
        mean0: Shape [..., p].
        cov0: Symmetric and positive definite, shape [..., p, p].
        mean1: Shape [..., p].
        cov1: Symmetric and positive definite, shape [..., p, p].

    Returns:
        Nats, at least 0; leading dimensions are broadcast.
    """
    difference, factor0, factor1 = _prepare(mean0, cov0, mean1, cov1)
    return as_given(_kl(difference, factor0, factor1), mean0, cov0, mean1, cov1)


def gaussian_jeffreys(mean0: Array, cov0: Array, mean1: Array, cov1: Array) -> Array:
    """Jeffreys divergence D(N0 || N1) + D(N1 || N0): rho_KL of one record for Gaussians.

    With moments estimated from M draws on each side it is about p(p + 3)/M if the true value is 0.

    Args:
        mean0: Shape [..., p].
        cov0: Symmetric and positive definite, shape [..., p, p].
        mean1: Shape [..., p].
        cov1: Symmetric and positive definite, shape [..., p, p].

    Returns:
        Nats, at least 0; leading dimensions are broadcast.
    """
    difference, factor0, factor1 = _prepare(mean0, cov0, mean1, cov1)
    total = _kl(difference, factor0, factor1) + _kl(difference, factor1, factor0)
    return as_given(total, mean0, cov0, mean1, cov1)


def _kl(difference: Tensor, factor0: Tensor, factor1: Tensor) -> Tensor:
    """Computes D(N0 || N1) from Cholesky factors, as a sum of non-negative terms.

    W = factor1^-1 factor0 is lower triangular, so trace, dimension and determinants combine on
    its diagonal: w^2 - 1 - 2 log w.
    """
    both = torch.cat([factor0, difference.unsqueeze(-1)], dim=-1)
    solved = torch.linalg.solve_triangular(factor1, both, upper=False)
    ratio, shift = solved[..., :-1].tril(), solved[..., -1]
    excess = torch.diagonal(ratio, dim1=-2, dim2=-1) - 1
    on_diagonal = (excess**2 + 2 * (excess - torch.log1p(excess))).sum(-1)
    below = ratio.tril(-1).square().sum((-2, -1))
    divergence: Tensor = (below + on_diagonal + shift.square().sum(-1)) / 2
    return divergence


def _prepare(mean0: Array, cov0: Array, mean1: Array, cov1: Array) -> tuple[Tensor, Tensor, Tensor]:
    """Validates, and returns the difference of means [..., p] and Cholesky factors [..., p, p]."""
    first, second = finite(mean0, "mean0"), finite(mean1, "mean1")
    factor0, factor1 = _cholesky(cov0, "cov0"), _cholesky(cov1, "cov1")
    p = factor0.shape[-1]
    if first.ndim < 1 or second.ndim < 1 or {first.shape[-1], second.shape[-1]} != {p}:
        shapes = f"{list(first.shape)} and {list(second.shape)}"
        raise ValueError(f"mean0 and mean1 must have shape [..., {p}], as cov0; got {shapes}.")
    if factor1.shape[-1] != p:
        raise ValueError(
            f"cov1 must have shape [..., {p}, {p}], as cov0; got {list(factor1.shape)}."
        )
    batch: torch.Size = batch_shape(
        mean0=first.shape[:-1],
        cov0=factor0.shape[:-2],
        mean1=second.shape[:-1],
        cov1=factor1.shape[:-2],
    )
    square = (*batch, p, p)
    difference = (first - second).expand(*batch, p)
    return difference, factor0.expand(square), factor1.expand(square)


def _cholesky(cov: Array, name: str) -> Tensor:
    matrix = finite(cov, name)
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(f"{name} must have shape [..., p, p]; got {list(matrix.shape)}.")
    skew = (matrix - matrix.mT).abs()
    scale = torch.diagonal(matrix, dim1=-2, dim2=-1).abs().sqrt()
    if (skew > 1e-6 * scale.unsqueeze(-1) * scale.unsqueeze(-2)).any():
        raise ValueError(f"{name} must be symmetric; got entries {float(skew.max()):g} difference.")
    lower: Tensor
    lower, failed = torch.linalg.cholesky_ex((matrix + matrix.mT) / 2)
    if (failed > 0).any() or _singular(lower):
        raise ValueError(f"{name} must be positive definite; got a singular or indefinite matrix.")
    return lower


def _singular(factor: Tensor) -> bool:
    """Whether a conditional variance is below the rounding error."""
    conditional = torch.diagonal(factor, dim1=-2, dim2=-1).square() / factor.square().sum(-1)
    rounding = 4 * factor.shape[-1] * torch.finfo(factor.dtype).eps
    return bool((conditional <= rounding).any())
