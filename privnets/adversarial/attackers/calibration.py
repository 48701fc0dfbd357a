"""Posteriors that mean what they say: slope, shifts and a floor fitted on validation.

An attacker that is sure of itself and wrong makes an estimate of leakage absurd. Of a posterior q
only the evidence log q(s|z) / p(s) is kept; it is multiplied by one slope and shifted by one number
per class, both found by cross-entropy on validation (Platt, 1999, with the prior as a base), held
near "as it is" by a Gaussian prior. Slope 0 is an attacker that knows the prior alone. Last, a
share of 1 / (n + 2) of the prior is mixed in, for n records cannot show more certainty than that.
Steps of overlapping sequences count as so many records as there are independent origins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

_MOST_EVIDENCE = 30.0
_SLOPE_SPREAD = 1.0
_SHIFT_SPREAD = 1.0


@dataclass(frozen=True, eq=False)
class Calibration:
    """A map from an attacker's posterior to one that validation supports.

    Attributes:
        log_prior: Log frequencies of the classes, shape [C].
        slope: At least 0.
        shift: Shape [C].
        mixed: Share of the prior, in (0, 1).
    """

    log_prior: NDArray[np.float64]
    slope: float
    shift: NDArray[np.float64]
    mixed: float

    def __call__(self, log_posterior: NDArray[np.float64]) -> NDArray[np.float64]:
        """Calibrated log probabilities, shape [n, C]."""
        raised = self.slope * _evidence(log_posterior, self.log_prior) + self.shift
        log_p = log_softmax(self.log_prior + raised, axis=1)
        mixed: NDArray[np.float64] = np.logaddexp(
            log_p + np.log1p(-self.mixed), self.log_prior + np.log(self.mixed)
        )
        return mixed


def calibrate(
    log_posterior: NDArray[np.float64],
    secret: NDArray[np.int64],
    prior: NDArray[np.float64],
    origins: int,
) -> Calibration:
    """Fit a calibration on validation.

    Args:
        log_posterior: Natural logarithms, shape [n, C]; -inf is allowed.
        secret: The truth, shape [n].
        prior: Frequencies of the classes where the attacker learned, positive, shape [C].
        origins: How many independent ones the n rows have.
    """
    from scipy.optimize import minimize

    log_prior = np.log(prior)
    evidence = _evidence(log_posterior, log_prior)
    truth = np.eye(len(prior))[secret]
    weight = origins / len(secret)

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        slope, shift = weights[0], weights[1:]
        log_p = log_softmax(log_prior + slope * evidence + shift, axis=1)
        excess = np.exp(log_p) - truth
        value = -weight * (truth * log_p).sum()
        value += ((slope - 1) / _SLOPE_SPREAD) ** 2 / 2 + (shift**2).sum() / _SHIFT_SPREAD**2 / 2
        of_slope = weight * (excess * evidence).sum() + (slope - 1) / _SLOPE_SPREAD**2
        of_shift = weight * excess.sum(0) + shift / _SHIFT_SPREAD**2
        return value / origins, np.array([of_slope, *of_shift]) / origins

    bounds = [(0.0, None), *[(None, None)] * len(prior)]
    start = np.array([1.0, *np.zeros(len(prior))])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return Calibration(log_prior, float(found[0]), found[1:], 1 / (origins + 2))


def _evidence(
    log_posterior: NDArray[np.float64], log_prior: NDArray[np.float64]
) -> NDArray[np.float64]:
    clipped: NDArray[np.float64] = np.clip(
        log_posterior - log_prior, -_MOST_EVIDENCE, _MOST_EVIDENCE
    )
    return clipped
