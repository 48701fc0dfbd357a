"""Means over replicates with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

LEVEL = 0.95
"""Coverage of every interval, unless another is named."""

NORMAL_QUANTILE = 1.959963984540054
"""Half the width of the standard normal's interval at `LEVEL`."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with the ends of its confidence interval; NaN ends where there is none."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """`-0.931 [-0.962, -0.900]`, with two significant digits of the half-width."""
        places = _decimal_places(self.mean, self.half)
        if math.isnan(self.half):
            return f"{_format(self.mean, places)} [no interval]"
        low, high = _format(self.low, places), _format(self.high, places)
        return f"{_format(self.mean, places)} [{low}, {high}]"

    @property
    def half(self) -> float:
        """Half the interval's width."""
        return (self.high - self.low) / 2

    @property
    def plus_minus(self) -> str:
        """`0.931 ± 0.031`; the mean alone without an interval; `undefined` for NaN."""
        if math.isnan(self.mean):
            return "undefined"
        places = _decimal_places(self.mean, self.half)
        mean = _format(self.mean, places)
        return mean if math.isnan(self.half) else f"{mean} ± {_format(self.half, places)}"


def t_interval(values: Sequence[float] | NDArray[np.float64], level: float = LEVEL) -> Interval:
    """Student's t interval of the mean of independent finite values; one value has NaN ends."""
    sample = np.asarray(values, dtype=np.float64)
    mean, count = float(sample.mean()), len(sample)
    if count < 2:
        return Interval(mean, math.nan, math.nan)
    half = float(stdtrit(count - 1, (1 + level) / 2) * sample.std(ddof=1)) / math.sqrt(count)
    return Interval(mean, mean - half, mean + half)


def summarize_replicates(
    metrics: pd.DataFrame, errors: pd.DataFrame, points: NDArray[np.int64], count: int
) -> pd.DataFrame:
    """Mean, standard deviation and 95% interval of each metric over the replicates of a point.

    Several replicates give Student's t interval; a single one gives the normal interval of its
    own standard error. A metric is undefined for a point if one of its replicates lacks it.

    Args:
        metrics: One row per replicate, one column per metric; NaN where undefined.
        errors: Standard error within each replicate, for those metrics that have one.
        points: Position of each replicate's point, shape [replicates].
        count: Number of points.

    Returns:
        One row per point. Columns: each metric, followed by `.std`, `.ci_low` and `.ci_high`.
    """
    groups, positions = metrics.groupby(points), range(count)
    means = groups.mean(skipna=False).reindex(positions)
    deviations = groups.std(skipna=False).reindex(positions)
    sizes = np.bincount(points, minlength=count)[:, None]
    quantiles = stdtrit(np.maximum(sizes - 1, 0), (1 + LEVEL) / 2)
    factors = quantiles / np.sqrt(np.maximum(sizes, 1))
    single = errors.groupby(points).first().reindex(index=positions, columns=metrics.columns)
    halves = np.where(sizes > 1, factors * deviations, NORMAL_QUANTILE * single)
    parts = {"": means, ".std": deviations, ".ci_low": means - halves, ".ci_high": means + halves}
    columns = [name + suffix for name in metrics.columns for suffix in parts]
    summary = pd.concat([part.add_suffix(suffix) for suffix, part in parts.items()], axis=1)
    return summary[columns]


def _decimal_places(mean: float, half: float) -> int | None:
    """Decimals that show two significant digits of the half-width; None for exponents."""
    if not (math.isfinite(mean) and math.isfinite(half) and half > 0):
        return None
    places = 1 - math.floor(math.log10(half))
    return max(places, 0) if places <= 6 and abs(mean) < 1e6 else None


def _format(value: float, places: int | None) -> str:
    return f"{value:.4g}" if places is None else f"{value:.{places}f}"
