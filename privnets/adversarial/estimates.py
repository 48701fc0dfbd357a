"""Means with standard errors, over records that may share an origin."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Estimate:
    """A value and its standard error."""

    value: float
    error: float


def mean(values: NDArray[np.float64], group: NDArray[np.int64] | None = None) -> Estimate:
    """The mean of values, shape [n]; clustered by `group` when records share origins."""
    return ratio(values, np.ones_like(values), group)


def ratio(
    over: NDArray[np.float64],
    under: NDArray[np.float64],
    group: NDArray[np.int64] | None = None,
) -> Estimate:
    """A ratio of sums over records, with its linearised (clustered) standard error.

    Args:
        over: What each record adds to the numerator, shape [n].
        under: What it adds to the denominator, shape [n]; its sum is positive.
        group: Records of one origin share a number, shape [n]; None when independent.
    """
    total = float(under.sum())
    value = float(over.sum()) / total
    influence = (over - value * under) / total
    sums = (
        influence
        if group is None
        else np.bincount(np.unique(group, return_inverse=True)[1], influence)
    )
    count = len(sums)
    if count < 2:
        return Estimate(value, math.nan)
    return Estimate(value, math.sqrt(count / (count - 1) * float(np.square(sums).sum())))
