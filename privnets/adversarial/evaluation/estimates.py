"""Statistics of test records with standard errors that respect where the records come from."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Estimate:
    """A statistic of test records.

    Attributes:
        value: Of the statistic.
        influence: How far each record moves it, summing to about 0, shape [n].
        cluster: What records share an origin, shape [n].
    """

    value: float
    influence: NDArray[np.float64]
    cluster: NDArray[np.int64]

    @property
    def error(self) -> float:
        """Standard error by linearisation, with clusters as the independent units."""
        _, place = np.unique(self.cluster, return_inverse=True)
        totals = np.bincount(place, weights=self.influence)
        if len(totals) < 2:
            return math.nan
        return math.sqrt((totals**2).sum() * len(totals) / (len(totals) - 1))

    def __sub__(self, other: Estimate) -> Estimate:
        """A difference on the same records, whose error counts what the two share."""
        return Estimate(self.value - other.value, self.influence - other.influence, self.cluster)


def mean(values: NDArray[np.float64], cluster: NDArray[np.int64] | None = None) -> Estimate:
    """The mean of values, shape [n].

    Args:
        values: Of the records.
        cluster: Records of one origin share a number, shape [n]; None when all are independent.
    """
    return ratio(values, np.ones_like(values), cluster)


def ratio(
    over: NDArray[np.float64],
    under: NDArray[np.float64],
    cluster: NDArray[np.int64] | None = None,
) -> Estimate:
    """A ratio of sums over records.

    Args:
        over: What each record adds to the numerator, shape [n].
        under: What it adds to the denominator, shape [n]; its sum is positive.
        cluster: As of `mean`.
    """
    total = float(under.sum())
    value = float(over.sum()) / total
    independent = np.arange(len(over)) if cluster is None else cluster
    return Estimate(value, (over - value * under) / total, independent)
