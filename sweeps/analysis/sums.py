"""Means over replicates with their spread, for many points at once.

The same numbers as `TradeoffPoint.metrics`, which adds up exactly: sums are made in twice the
working precision (Sum2 of Ogita, Rump and Oishi, SIAM J. Sci. Comput. 26 (2005), algorithm 4.4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sweeps.analysis.statistics import LEVEL, NORMAL_QUANTILE

SUFFIXES: Final = ("", ".std", ".ci_low", ".ci_high")

Floats = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Alike:
    """Points with equally many replicates to sum up.

    Attributes:
        points: Their places, shape [points].
        replicates: The places of their replicates, shape [replicates of each, points].
    """

    points: Places
    replicates: Places


class Sums:
    """Sums up replicates by the point that they are of."""

    def __init__(self, points: Places, count: int) -> None:
        """Note which replicate is of which point.

        Args:
            points: Each replicate's point, never falling, shape [replicates].
            count: How many points there are.
        """
        self._count = count
        sizes = np.bincount(points, minlength=count)
        starts = np.cumsum(sizes) - sizes
        self._groups = [
            Alike(chosen, starts[chosen] + np.arange(size)[:, None])
            for size in np.unique(sizes[sizes > 0]).tolist()
            for chosen in [np.flatnonzero(sizes == size)]
        ]

    def summary(self, values: Floats, errors: Floats | None) -> tuple[Floats, ...]:
        """Mean, standard deviation and both ends of the 95% interval of each point.

        Args:
            values: Of each replicate; NaN where it is undefined.
            errors: Standard error within each replicate; None if none has one.

        Returns:
            In the order of `SUFFIXES`, NaN for a point without replicates, shape [points] each.
        """
        found = np.full((len(SUFFIXES), self._count), math.nan)
        with np.errstate(invalid="ignore", over="ignore"):
            for group in self._groups:
                own = None if errors is None else errors[group.replicates[0]]
                found[:, group.points] = _summary(values[group.replicates], own)
        return tuple(found)


def _summary(values: Floats, errors: Floats | None) -> tuple[Floats, ...]:
    """Of values [replicates, points]."""
    count = len(values)
    mean = _sum(values) / count
    if count == 1:
        std = np.full_like(mean, math.nan)
        half = NORMAL_QUANTILE * (std if errors is None else errors)
    else:
        std = np.sqrt(_sum(np.float_power(values - mean, 2.0)) / (count - 1))
        half = _student_t(count - 1) * std / math.sqrt(count)
    return mean, std, mean - half, mean + half


def _sum(values: Floats) -> Floats:
    """Over the first axis, as if in twice the precision and rounded once."""
    total, rest = values[0], np.zeros_like(values[0])
    for value in values[1:]:
        rounded = total + value
        part = rounded - total
        rest += (total - (rounded - part)) + (value - part)
        total = rounded
    return np.asarray(np.where(np.isfinite(total), total + rest, total))


def _student_t(degrees: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + LEVEL) / 2))
