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
from privnets.adversarial.evaluation.estimates import Estimate


@dataclass(frozen=True, eq=False)
class Known:
    """What is believed of the secret without the release, which leakage is counted from.

    Attributes:
        validation: Log probabilities, shape [n, C].
        test: The same on test.
    """

    validation: NDArray[np.float64]
    test: NDArray[np.float64]

    @classmethod
    def prior(cls, prior: NDArray[np.float64], validation: Rows, test: Rows) -> Known:
        """The frequencies of the classes, for every row."""
        rows = (len(validation.secret), len(test.secret))
        return cls(*(np.broadcast_to(np.log(prior), (n, len(prior))) for n in rows))


@dataclass(frozen=True, eq=False)
class Assessment:
    """How good an attacker is.

    Attributes:
        name: The attacker's.
        calibrated: What it believes after calibration.
        on_validation: Balanced accuracy on validation, by which the strongest is chosen.
        told_on_validation: `leakage` on validation, by which the most telling is chosen.
        accuracy: Balanced accuracy on test.
        auc: Area under the ROC curve on test.
        leakage: I(S;Q) from below on test, nats.
        converged: Whether training came to rest.
    """

    name: str
    calibrated: Known
    on_validation: Estimate
    told_on_validation: Estimate
    accuracy: Estimate
    auc: Estimate
    leakage: Estimate
    converged: bool


def assess(
    posterior: Posterior,
    validation: Rows,
    test: Rows,
    prior: NDArray[np.float64],
    known: Known | None = None,
) -> Assessment:
    """Decide for balanced accuracy, calibrate on validation for leakage, score on test.

    Decisions are the attacker's own: a threshold fitted anew to validation would follow whatever
    is particular to it, and validation of sequences is a few days.

    Args:
        posterior: The attacker's.
        validation: The truth there; every class occurs.
        test: The truth there; every class occurs.
        prior: Frequencies of the classes in the attack split, shape [C].
        known: What leakage is counted from; the prior if None.
    """
    known = Known.prior(prior, validation, test) if known is None else known
    origins = len(np.unique(validation.cluster))
    calibrated = calibrate(posterior.validation, validation.secret, prior, origins)
    on_validation, on_test = calibrated(posterior.validation), calibrated(posterior.test)
    tuned = balanced_decision(posterior.validation, prior)
    decision = balanced_decision(posterior.test, prior)
    return Assessment(
        name=posterior.name,
        calibrated=Known(on_validation, on_test),
        on_validation=balanced_accuracy(tuned, validation, len(prior)),
        told_on_validation=leakage(on_validation, known.validation, validation),
        accuracy=balanced_accuracy(decision, test, len(prior)),
        auc=area_under_curve(posterior.test, test),
        leakage=leakage(on_test, known.test, test),
        converged=posterior.converged,
    )
