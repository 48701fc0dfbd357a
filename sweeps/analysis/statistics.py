"""Means over replicates with confidence intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from privnets.summary import summarize_columns
from sweeps.store.reader import ReplicateTable

NORMAL_QUANTILE = 1.959963984540054
"""Half the width of the standard normal's 95% interval."""


_SKEW = 0.1
"""Difference of the distances from the mean to both ends, in half-widths, that is worth showing."""


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
        """`0.931 ± 0.031`, with both ends if they differ by a tenth in distance from the mean.

        The mean alone without an interval; `undefined` for NaN.
        """
        if math.isnan(self.mean):
            return "undefined"
        places = _decimal_places(self.mean, self.half)
        mean = _format(self.mean, places)
        if math.isnan(self.half):
            return mean
        is_skewed = abs(self.low + self.high - 2 * self.mean) > _SKEW * self.half
        return str(self) if is_skewed else f"{mean} ± {_format(self.half, places)}"


def summarize_replicates(replicates: ReplicateTable) -> pd.DataFrame:
    """Mean, standard deviation and 95% interval of each metric over the replicates of a point.

    See `privnets.summary`. A metric is undefined for a point if one of its replicates lacks it.

    Returns:
        One row per point. Columns: each metric, followed by `.std`, `.ci_low` and `.ci_high`.
    """
    metrics = replicates.family("metric")
    keys = [str(key) for key in metrics.columns]
    errors = replicates.family("standard_error").reindex(columns=keys)
    summary = summarize_columns(
        keys,
        metrics.to_numpy(),
        errors.to_numpy(dtype=np.float64),
        replicates.points,
        len(replicates),
        replicates.scored,
    )
    low, high = summary.interval()
    parts = {"": summary.mean, ".std": summary.std, ".ci_low": low, ".ci_high": high}
    columns = [
        (key + suffix, values[:, place])
        for place, key in enumerate(keys)
        for suffix, values in parts.items()
    ]
    return pd.DataFrame(dict(columns), index=pd.RangeIndex(len(replicates)))


def _decimal_places(mean: float, half: float) -> int | None:
    """Decimals that show two significant digits of the half-width; None for exponents."""
    if not (math.isfinite(mean) and math.isfinite(half) and half > 0):
        return None
    places = 1 - math.floor(math.log10(half))
    return max(places, 0) if places <= 6 and abs(mean) < 1e6 else None


def _format(value: float, places: int | None) -> str:
    return f"{value:.4g}" if places is None else f"{value:z.{places}f}"
