"""Estimates with standard errors, of records that may share an origin."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privnets.statistics.intervals import Array


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its standard error.

    Attributes:
        value: The estimate.
        error: Standard error, at least 0; NaN if unknown.
        influence: Contribution of each record to the error, summing to about 0, shape [n]; None
            where it is not kept.
        cluster: Common origin of records, shape [n], beside `influence`.
    """

    value: float
    error: float
    influence: Array | None = field(default=None, compare=False, repr=False)
    cluster: NDArray[np.int64] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of_records(
        cls, value: float, influence: Array, cluster: NDArray[np.int64] | None = None
    ) -> Estimate:
        """Statistic of records, with an error by linearisation; NaN for records of one origin.

        Args:
            influence: As above.
            cluster: Equal numbers for records of one origin, shape [n]; None if all are
                independent.
        """
        origins = np.arange(len(influence)) if cluster is None else cluster
        totals = np.bincount(np.unique(origins, return_inverse=True)[1], weights=influence)
        count, error = len(totals), math.nan
        if count > 1:
            error = math.sqrt((totals**2).sum() * count / (count - 1))
        return cls(value, error, influence, origins)

    def __sub__(self, other: Estimate) -> Estimate:
        """Difference: of statistics of the same records without their common error.

        Estimates without influences count as independent.
        """
        value = self.value - other.value
        if self.influence is None or other.influence is None:
            return Estimate(value, math.hypot(self.error, other.error))
        return Estimate.of_records(value, self.influence - other.influence, self.cluster)


def mean(values: Array, cluster: NDArray[np.int64] | None = None) -> Estimate:
    """Mean over records of values [n]; see `Estimate.of_records` for `cluster`."""
    return ratio(values, np.ones_like(values), cluster)


def ratio(
    numerator: Array, denominator: Array, cluster: NDArray[np.int64] | None = None
) -> Estimate:
    """Ratio of sums over records, to each of which they contribute the entries of arrays [n]."""
    total = float(denominator.sum())
    value = float(numerator.sum()) / total
    return Estimate.of_records(value, (numerator - value * denominator) / total, cluster)
