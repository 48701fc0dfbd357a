"""Intervals over replicates: made, and written for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
NORMAL = 1.959963984540054
"""Half the width of the standard normal's interval at `LEVEL`."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with the ends of its confidence interval; NaN ends where there is none."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """`-0.931 [-0.962, -0.900]`, as many digits as the width deserves."""
        places = _places(self.mean, self.half)
        if math.isnan(self.half):
            return f"{_number(self.mean, places)} [no interval]"
        low, high = _number(self.low, places), _number(self.high, places)
        return f"{_number(self.mean, places)} [{low}, {high}]"

    @property
    def half(self) -> float:
        """Half the interval's width."""
        return (self.high - self.low) / 2

    @property
    def plus_minus(self) -> str:
        """`0.931 ± 0.031`; the mean alone without an interval; `undefined` when NaN."""
        if math.isnan(self.mean):
            return "undefined"
        places = _places(self.mean, self.half)
        mean = _number(self.mean, places)
        return mean if math.isnan(self.half) else f"{mean} ± {_number(self.half, places)}"


def student(values: Sequence[float] | NDArray[np.float64], level: float = LEVEL) -> Interval:
    """Student's t interval of the mean of independent values.

    Args:
        values: Finite numbers, at least one; with one alone the ends are NaN.
        level: Coverage, in (0, 1).
    """
    from scipy.special import stdtrit

    sample = np.asarray(values, dtype=np.float64)
    mean = float(sample.mean())
    if len(sample) < 2:
        return Interval(mean, math.nan, math.nan)
    factor = float(stdtrit(len(sample) - 1, (1 + level) / 2))
    half = factor * float(sample.std(ddof=1)) / math.sqrt(len(sample))
    return Interval(mean, mean - half, mean + half)


def number(value: float) -> str:
    """A number at four significant digits, `undefined` when it is NaN."""
    return "undefined" if math.isnan(value) else f"{value:.4g}"


def _places(mean: float, half: float) -> int | None:
    """Decimals that show two significant digits of the half-width; None for exponents."""
    if not (math.isfinite(mean) and math.isfinite(half) and half > 0):
        return None
    places = 1 - math.floor(math.log10(half))
    return max(places, 0) if places <= 6 and abs(mean) < 1e6 else None


def _number(value: float, places: int | None) -> str:
    return f"{value:.4g}" if places is None else f"{value:.{places}f}"
