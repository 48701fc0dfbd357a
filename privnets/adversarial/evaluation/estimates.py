"""Statistics of test records, with standard errors clustered by the records' origin."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from privnets.adversarial.records import KnownRows


@dataclass(frozen=True, eq=False)
class Estimate:
    """A statistic of test records.

    Attributes:
        value: Value of the statistic.
        influence: Contribution of each record to its error, summing to about 0, shape [n].
        cluster: Common origin of records, shape [n].
    """

    value: float
    influence: NDArray[np.float64]
    cluster: NDArray[np.int64]

    @property
    def error(self) -> float:
        """Standard error by linearisation, with clusters as independent units; NaN for one."""
        _, place = np.unique(self.cluster, return_inverse=True)
        totals = np.bincount(place, weights=self.influence)
        if len(totals) < 2:
            return math.nan
        return math.sqrt((totals**2).sum() * len(totals) / (len(totals) - 1))

    def __sub__(self, other: Estimate) -> Estimate:
        """Difference of two statistics of the same records, with their common error removed."""
        return Estimate(self.value - other.value, self.influence - other.influence, self.cluster)


def mean(values: NDArray[np.float64], cluster: NDArray[np.int64] | None = None) -> Estimate:
    """Mean over records of values [n]; see `ratio` for `cluster`."""
    return ratio(values, np.ones_like(values), cluster)


def ratio(
    numerator: NDArray[np.float64],
    denominator: NDArray[np.float64],
    cluster: NDArray[np.int64] | None = None,
) -> Estimate:
    """Ratio of sums over records, to each of which they contribute the entries of arrays [n].

    `cluster` [n] has equal numbers for records of one origin; None if all are independent.
    """
    total = float(denominator.sum())
    value = float(numerator.sum()) / total
    origins = np.arange(len(numerator)) if cluster is None else cluster
    return Estimate(value, (numerator - value * denominator) / total, origins)


def balanced_accuracy(decision: NDArray[np.int64], rows: KnownRows, classes: int) -> Estimate:
    """Mean over classes of the share of their records that decisions [n] recognise, in [0, 1]."""
    right = (decision == rows.secret).astype(np.float64)
    counts = np.bincount(rows.secret, minlength=classes)
    recall = np.bincount(rows.secret, weights=right, minlength=classes) / counts
    influence = (right - recall[rows.secret]) / (classes * counts[rows.secret])
    return Estimate(float(recall.mean()), influence, rows.cluster)
