"""What every attacker hands back, whatever it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from privnets.adversarial.records import Evidence


@dataclass(frozen=True, eq=False)
class Posterior:
    """One fitted attacker's belief about the secret on validation and test.

    Rows are records, or for sequences the known steps of records in order (`Evidence` rows
    flattened to [n * T] with missing secrets and absent steps left out).

    Attributes:
        name: The attacker's.
        validation: Log probabilities before calibration, shape [n_validation, C].
        test: The same on test, shape [n_test, C].
        converged: Whether its training came to rest before its steps ran out.
    """

    name: str
    validation: NDArray[np.float64]
    test: NDArray[np.float64]
    converged: bool = True


class Attacker(Protocol):
    """An attacker that is fitted to one release at a time.

    Attributes:
        names: Of the posteriors that `fit` gives, in their order.
    """

    names: tuple[str, ...]

    def fit(self, evidence: Evidence, seed: int) -> Sequence[Posterior]:
        """Train on `evidence.attack`, tune on validation, and tell of validation and test."""
