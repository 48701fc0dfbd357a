"""Intervals: a value with two ends, Wilson's formula, and quantiles of Student's distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEVEL: Final = 0.95
"""Coverage of every interval, unless another is named."""

# Difference of the distances from the value to both ends, in half-widths, that is worth showing.
_SKEW = 0.1


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with the ends of its confidence interval; NaN ends where there is none."""

    value: float
    low: float
    high: float

    def __sub__(self, other: Interval) -> Interval:
        """Difference of two independent values.

        Squared distances to the ends add up (MOVER: Newcombe, Statist. Med. 17, 1998; Zou and
        Donner, Statist. Med. 27, 2008).
        """
        value = self.value - other.value
        low = value - math.hypot(self.value - self.low, other.high - other.value)
        return Interval(
            value, low, value + math.hypot(self.high - self.value, other.value - other.low)
        )

    def __str__(self) -> str:
        """`-0.931 [-0.962, -0.900]`, with two significant digits of the half-width."""
        places = _decimal_places(self.value, self.half)
        if math.isnan(self.half):
            return f"{_format(self.value, places)} [no interval]"
        low, high = _format(self.low, places), _format(self.high, places)
        return f"{_format(self.value, places)} [{low}, {high}]"

    @property
    def half(self) -> float:
        """Half the interval's width."""
        return (self.high - self.low) / 2

    @property
    def plus_minus(self) -> str:
        """`0.931 ± 0.031`, with both ends if they differ by a tenth in distance from the value.

        The value alone without an interval; `undefined` for NaN.
        """
        if math.isnan(self.value):
            return "undefined"
        places = _decimal_places(self.value, self.half)
        value = _format(self.value, places)
        if math.isnan(self.half):
            return value
        is_skewed = abs(self.low + self.high - 2 * self.value) > _SKEW * self.half
        return str(self) if is_skewed else f"{value} ± {_format(self.half, places)}"


def student_quantile(freedom: Array | float, probability: float) -> Any:
    """Quantile of Student's distribution, of the normal one for infinite degrees of freedom."""
    # Scipy takes a while to load, which processes that only plan need not wait for.
    from scipy.special import ndtri, stdtrit

    levels, places = np.unique(freedom, return_inverse=True)  # mostly few
    finite = np.where(np.isfinite(levels), levels, 1.0)
    quantiles = np.where(np.isinf(levels), ndtri(probability), stdtrit(finite, probability))
    return quantiles[places.reshape(np.shape(freedom))]


def wilson_end(share: Array | float, inverse_size: Array | float, deviation: Array) -> Array:
    """End of Wilson's interval of a share p over 1 / u records (JASA 22, 1927).

    (p + d^2 u / 2 + d sqrt(p (1 - p) u + d^2 u^2 / 4)) / (1 + d^2 u), d standard errors away.

    Args:
        share: In [0, 1]; all arguments broadcast.
        inverse_size: Inverse number u of independent records, at least 0.
        deviation: Signed number d of standard errors.

    Returns:
        In [0, 1] up to rounding.
    """
    half = deviation * (inverse_size / 2)
    square = deviation * half  # d^2 u / 2
    root = np.sqrt(half * half + share * (1 - share) * inverse_size)
    end: Array = (share + square + deviation * root) / (1 + 2 * square)
    return end


def _decimal_places(value: float, half: float) -> int | None:
    """Decimals that show two significant digits of the half-width; None for exponents."""
    if not (math.isfinite(value) and math.isfinite(half) and half > 0):
        return None
    places = 1 - math.floor(math.log10(half))
    return max(places, 0) if places <= 6 and abs(value) < 1e6 else None


def _format(value: float, places: int | None) -> str:
    return f"{value:.4g}" if places is None else f"{value:z.{places}f}"
