"""One attacker, calibrated on validation and judged on test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privnets.adversarial.attackers.calibration import calibrate
from privnets.adversarial.attackers.posterior import Posterior
from privnets.adversarial.attackers.rows import Rows
from privnets.adversarial.attackers.scoring import (
    area_under_curve,
    balanced_accuracy,
    balanced_decision,
    leakage,
)
from privnets.adversarial.estimates import Estimate


@dataclass(frozen=True, eq=False)
class Assessment:
    """How good an attacker is.

    Attributes:
        name: The attacker's.
        log_posterior: Calibrated log probabilities on test, shape [n, C].
        on_validation: Balanced accuracy on validation, by which attackers are chosen.
        accuracy: Balanced accuracy on test.
        auc: Area under the ROC curve on test.
        leakage: I(S;Q) from below on test, nats.
        converged: Whether training came to rest.
    """

    name: str
    log_posterior: NDArray[np.float64]
    on_validation: Estimate
    accuracy: Estimate
    auc: Estimate
    leakage: Estimate
    converged: bool


def assess(
    posterior: Posterior, validation: Rows, test: Rows, prior: NDArray[np.float64]
) -> Assessment:
    """Calibrate on validation, decide for balanced accuracy, score on test.

    Args:
        posterior: The attacker's.
        validation: The truth there; every class occurs.
        test: The truth there; every class occurs.
        prior: Frequencies of the classes in the attack split, shape [C].
    """
    calibrated = calibrate(posterior.validation, validation.secret, prior)
    log_posterior = calibrated(posterior.test)
    tuned = balanced_decision(calibrated(posterior.validation), prior)
    decision = balanced_decision(log_posterior, prior)
    return Assessment(
        name=posterior.name,
        log_posterior=log_posterior,
        on_validation=balanced_accuracy(tuned, validation, len(prior)),
        accuracy=balanced_accuracy(decision, test, len(prior)),
        auc=area_under_curve(log_posterior, test),
        leakage=leakage(log_posterior, prior, test),
        converged=posterior.converged,
    )
