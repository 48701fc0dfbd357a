"""Estimates of means over records, from the few records that are attacked."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from privnets.statistics.estimates import Estimate

# Fewer records than this for each coefficient would fit the regression to noise.
_RECORDS_PER_COEFFICIENT = 10
_LARGEST_SQUARED_DISTANCE = 20.0


def mean_over(values: Tensor) -> Estimate:
    """Mean of independent values, shape [R]."""
    return Estimate(float(values.mean()), float(values.std() / math.sqrt(len(values))))


def two_way_mean(
    by_model: Tensor, influence: Tensor, counted: Tensor, unseen_share: float
) -> Estimate:
    """Mean of a statistic over J models, each measured at some of the same K records.

    Args:
        by_model: Values, shape [J].
        influence: Influence of each record on each value, summing to 0 over records, [J, K].
        counted: Records at which a model is measured, shape [J, K].
        unseen_share: Share of all records that is not among the K. If it is 0, the choice of
            records adds no error.
    """
    mean = by_model.mean()
    own = ((by_model - mean) / counted.sum(1))[:, None]
    influence = torch.where(counted, influence + own, influence) / len(by_model)
    flat = influence.flatten()
    models = influence.sum(1).square().sum()
    records = (influence.sum(0).square().sum() - flat @ flat).clamp_min(0)
    return Estimate(float(mean), float((models + unseen_share * records).sqrt()))


@dataclass(frozen=True)
class ControlVariate:
    """Covariates known for every record, which predict a value measured at few of them.

    Attributes:
        asked: Covariates of the attacked records, the first of them 1, shape [R, k].
        population: Mean of the covariates over all records, shape [k].
    """

    asked: Tensor
    population: Tensor

    @classmethod
    def of(cls, covariates: Tensor, asked: Tensor) -> ControlVariate:
        """Keeps what is needed of covariates of all records, shape [N, k].

        Args:
            asked: Indices of the attacked records, shape [R].
        """
        return cls(covariates[asked], covariates.mean(0))

    def mean(self, values: Tensor) -> Estimate:
        """Mean over all records of a value measured at the attacked ones, shape [R].

        It is the mean over all records of a least-squares fit, whose residuals have mean 0 over
        the attacked records and supply the standard error. With fewer than ten records for each
        coefficient it is the plain mean over the attacked records.
        """
        count, coefficients = self.asked.shape
        if count < _RECORDS_PER_COEFFICIENT * coefficients:
            return mean_over(values)
        scale = self.asked.square().mean(0).sqrt().clamp_min(1e-300)
        design = self.asked / scale
        # The driver `gelsd` serves covariates that are linearly dependent, as at p = 1.
        solution = torch.linalg.lstsq(design.cpu(), values[:, None].cpu(), driver="gelsd").solution
        fitted = design @ solution[:, 0].to(design)
        variance = (values - fitted).square().sum() / (count - coefficients)
        prediction = (self.population / scale) @ solution[:, 0].to(design)
        return Estimate(float(prediction), math.sqrt(float(variance) / count))


def influence_covariates(
    x: Tensor, y: Tensor, size: int, penalty: Tensor, noise_std: float
) -> Tensor:
    """Computes functions of leverage and influence that predict rho_KL of ridge regression.

    With H = X'X/N + K, residuals r of the fit to all records, influences
    psi_i = H^-1 (x_i r_i - K theta), their covariance S, leverages l_i = x_i'H^-1 x_i and
    g_i = psi_i'(S + n sigma^2 I)^-1 psi_i, the divergence of record i is to first order
    (p + (2n - 1) g_i) / (2n(n - 1)) without noise. The other functions follow the departures of
    small training sets from it.

    Args:
        x: Features of all records, shape [N, p].
        y: Targets, shape [N].
        size: Records in a training set, n.
        penalty: Matrix K of the penalty theta'K theta, shape [p, p].
        noise_std: Standard deviation sigma of the noise added to parameters.

    Returns:
        1, g, l, l^2, g l, min(g, 20)^2, ln(1 + l), ln(1 + g), sqrt(g), sqrt(l): shape [N, 10].
    """
    identity = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    curvature = x.T @ x / len(x) + penalty
    inverse = torch.linalg.pinv(curvature, hermitian=True)
    parameters = inverse @ (x.T @ y) / len(x)
    residual = y - x @ parameters
    influence = (x * residual[:, None]) @ inverse
    influence = influence - influence.mean(0)
    spread = influence.T @ influence / len(x) + size * noise_std**2 * identity
    leverage = torch.einsum("np,pq,nq->n", x, inverse, x).clamp_min(0)
    precision = torch.linalg.pinv(spread, hermitian=True)
    distance = torch.einsum("np,pq,nq->n", influence, precision, influence).clamp_min(0)
    columns = (
        torch.ones_like(distance),
        distance,
        leverage,
        leverage**2,
        distance * leverage,
        distance.clamp_max(_LARGEST_SQUARED_DISTANCE) ** 2,
        torch.log1p(leverage),
        torch.log1p(distance),
        distance.sqrt(),
        leverage.sqrt(),
    )
    return torch.stack(columns, dim=1)
