"""Gaussian processes with a Matérn 5/2 kernel, one length scale per parameter and fitted noise.

Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapters 2, 4 and 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from sweeps.planning.frontier.unit_cube import Array

_MAX_FITTED: Final = 192
_MAX_STEPS: Final = 25
_BOUNDS: Final = (-14.0, 8.0)
_JITTER: Final = 1e-6
# Means and standard deviations of the logarithms of a length scale, variance and noise variance.
_SCALE_PRIOR: Final = (math.log(0.5), 0.5)
_VARIANCE_PRIOR: Final = (0.0, 1.0)
_NOISE_PRIOR: Final = (math.log(0.02), 2.0)


@dataclass(frozen=True)
class GaussianProcess:
    """Posterior of one function given noisy values.

    Attributes:
        inputs: Where values were observed, divided by the length scales, shape [N, D].
        scales: Length scale of each column, shape [D].
        shift: Mean of the values.
        unit: Standard deviation of the values; 1 if they are all equal.
        variance: Prior variance of the function, in squared units.
        noise: Noise variance of a value, in squared units.
        factor: Lower Cholesky factor of the values' covariance, shape [N, N].
        weights: Inverse of that covariance times the standardised values, shape [N].
    """

    inputs: Array
    scales: Array
    shift: float
    unit: float
    variance: float
    noise: float
    factor: Array
    weights: Array

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise of a value."""
        return self.unit * math.sqrt(self.noise)

    def predict(self, at: Array) -> tuple[Array, Array]:
        """Returns mean and standard deviation of the function at inputs of shape [M, D]."""
        mean, explained = self._condition(at)
        left = np.maximum(self.variance - (explained**2).sum(axis=0), _JITTER * self.variance)
        return mean, self.unit * np.sqrt(left)

    def sample(self, at: Array, normals: Array) -> Array:
        """Draws the function jointly at several inputs.

        Args:
            at: Inputs, shape [M, D].
            normals: Standard normal draws, shape [S, M].

        Returns:
            Values, shape [S, M]; those of the first inputs do not depend on later ones.
        """
        mean, explained = self._condition(at)
        covariance = self.variance * _matern(at / self.scales, at / self.scales)[0]
        covariance -= explained.T @ explained
        covariance[np.diag_indices_from(covariance)] += _JITTER * self.variance
        return mean + self.unit * (normals @ np.linalg.cholesky(covariance).T)

    def _condition(self, at: Array) -> tuple[Array, Array]:
        """Mean at inputs, and the whitened covariance of the values with them, shape [N, M]."""
        cross = self.variance * _matern(self.inputs, at / self.scales)[0]
        explained = solve_triangular(self.factor, cross, lower=True, check_finite=False)
        return self.shift + self.unit * (self.weights @ cross), explained


def fit_gaussian_process(inputs: Array, values: Array, groups: NDArray[np.intp]) -> GaussianProcess:
    """Fits length scales, variance and noise at the maximum of their posterior density.

    Args:
        inputs: Inputs, shape [N, D]; N is at least 1.
        values: Finite values, shape [N].
        groups: Number of the parameter of each column; its columns share a length scale.

    Returns:
        The posterior given all values. At most 192 of them, evenly spaced, fit the kernel.
    """
    shift, unit = float(values.mean()), float(values.std()) or 1.0
    standard = (values - shift) / unit
    fitted = np.unique(np.linspace(0, len(values) - 1, _MAX_FITTED).astype(int))
    count = int(groups.max()) + 1
    priors = np.array([*[_SCALE_PRIOR] * count, _VARIANCE_PRIOR, _NOISE_PRIOR])
    solution = minimize(
        _loss,
        priors[:, 0],
        args=(inputs[fitted], standard[fitted], groups, priors),
        jac=True,
        method="L-BFGS-B",
        bounds=[_BOUNDS] * len(priors),
        options={"maxiter": _MAX_STEPS},
    )
    scales = np.exp(solution.x[groups])
    variance, noise = np.exp(solution.x[count:]).tolist()
    covariance = variance * _matern(inputs / scales, inputs / scales)[0]
    factor, weights = _solve(covariance, noise + _JITTER * variance, standard)
    return GaussianProcess(inputs / scales, scales, shift, unit, variance, noise, factor, weights)


def _loss(
    logs: Array, inputs: Array, values: Array, groups: NDArray[np.intp], priors: Array
) -> tuple[float, Array]:
    """Negative log posterior density of the kernel, up to a constant, and its gradient."""
    scaled = inputs / np.exp(logs[groups])
    variance, noise = np.exp(logs[-2:])
    correlation, slope = _matern(scaled, scaled)
    factor, weights = _solve(variance * correlation, noise + _JITTER * variance, values)
    inverse = cho_solve((factor, True), np.eye(len(values)), check_finite=False)
    sensitivity = 0.5 * (inverse - np.outer(weights, weights))
    pulls = (logs - priors[:, 0]) / priors[:, 1]
    loss = 0.5 * (values @ weights + pulls @ pulls) + np.log(np.diag(factor)).sum()
    gradient = pulls / priors[:, 1]
    weighted = variance * sensitivity * slope
    # Sums over pairs of the weighted squared differences in each column.
    squares = weighted.sum(axis=1) @ scaled**2 - (scaled * (weighted @ scaled)).sum(axis=0)
    np.add.at(gradient, groups, 2 * squares)
    gradient[-2] += variance * (sensitivity * correlation).sum()
    gradient[-1] += noise * np.trace(sensitivity)
    return float(loss), gradient


def _solve(covariance: Array, noise: float, values: Array) -> tuple[Array, Array]:
    """Cholesky factor of the covariance with noise, and its inverse times the values."""
    covariance[np.diag_indices_from(covariance)] += noise
    factor: Array = cholesky(covariance, lower=True, check_finite=False)
    return factor, cho_solve((factor, True), values, check_finite=False)


def _matern(left: Array, right: Array) -> tuple[Array, Array]:
    """Correlations, and -2 times their derivatives by the squared distance, shape [N, M]."""
    distance = math.sqrt(5) * cdist(left, right)
    decay = np.exp(-distance)
    return (1 + distance + distance**2 / 3) * decay, 5 / 3 * (1 + distance) * decay
