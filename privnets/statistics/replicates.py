"""Means over replicates, with standard errors and intervals that hold both variances.

Replicates differ because each is trained again, and because each is scored on a sample of records.
The spread between replicates shows the error of the sample only if each has a sample of its own.
With s the standard deviation between R replicates and e_r the standard error within replicate r,
the squared standard error of their mean is:

- with different test sets s^2 / R, where replicates of one test set count as one cluster;
  its degrees of freedom are those of s^2 times 1 + (mean(e_r^2) / s^2)^2 / 2, as e_r is known
  (so that 95% intervals of three replicates or more held the truth in 94% to 98.5% of simulations);
- with one test set s^2 / R + c * mean(e_r^2), where c is the common share of the test sets. This
  is an upper bound, as replicates need not err at the same records;
- with one replicate e_1^2.

It is at least mean(e_r^2) / R. The degrees of freedom of a sum are Satterthwaite's (Biometrics
Bulletin 2, 1946). Intervals of shares are Wilson's and never leave [0, 1].
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privnets.statistics.intervals import LEVEL, Array, student_quantile, wilson_end

_SHARES: Final = frozenset(
    {"accuracy", "auc", "f1", "precision", "probability", "recall", "verification"}
)
"""Words of a metric's name that make it a share."""

_SHARE_FAMILIES: Final = ("flag/", "floor/")


def metric_range(key: str) -> tuple[float, float]:
    """Range of a metric by its key; infinite for all but shares and advantages.

    Shares are accuracies, recalls, precisions, mean probabilities, areas under ROC curves,
    `tpr_at_fpr_*`, all also of one group (`privacy/attacker_accuracy/observed`), flags, and floors
    of attackers. Advantages lie in [-1, 1].
    """
    name = key.rpartition("/")[2]
    if "advantage" in name:
        return -1.0, 1.0
    is_share = name.startswith("tpr_at_fpr_") or not _SHARES.isdisjoint(re.split("[/_]", key))
    is_utility = key.startswith("floor/utility_") and key != "floor/utility_label"
    is_success = key.startswith(_SHARE_FAMILIES) and not is_utility
    return (0.0, 1.0) if is_share or is_success else (-np.inf, np.inf)


@dataclass(frozen=True, eq=False)
class ScoredColumns:
    """Test sets of replicates, as columns; see `privnets.points.ScoredRecords`.

    Attributes:
        sets: Number of each replicate's test set, shape [n]; -1 for one of its own.
        sizes: Independent records of the test set, shape [n]; NaN if unknown.
        overlaps: Common share of two test sets of one number, in (0, 1], shape [n].
    """

    sets: NDArray[np.int64]
    sizes: Array
    overlaps: Array


@dataclass(frozen=True, eq=False)
class Summary:
    """Means of P points over their replicates, for K metrics; arrays have the shape [P, K].

    Attributes:
        mean: NaN if a replicate is undefined, or there is none.
        std: Standard deviation between replicates; NaN for one replicate.
        error: Standard error of the mean; NaN if unknown.
        freedom: Degrees of freedom of `error`; infinite for one replicate.
        ranges: Ends of each metric's range, shape [K, 2].
    """

    mean: Array
    std: Array
    error: Array
    freedom: Array
    ranges: Array

    def interval(self, level: float = LEVEL) -> tuple[Array, Array]:
        """Ends of the interval of each mean; NaN where the error is unknown."""
        quantile = student_quantile(self.freedom, (1 + level) / 2)
        return self.at(-quantile), self.at(quantile)

    def at(self, deviation: Array) -> Array:
        """Values a number of standard errors from the means; within the range of a metric.

        Args:
            deviation: Signed number of standard errors, of a shape that broadcasts with [P, K].

        Returns:
            Ends of one-sided intervals; those of shares are Wilson's.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            values: Array = self.mean + deviation * self.error
            is_scored = self._is_bounded & (self.error != 0)
            for column in np.flatnonzero(is_scored.any(axis=0)).tolist():
                low, high = self.ranges[column]
                share, inverse = self._position[:, column], self._inverse_size[:, column]
                end = low + (high - low) * wilson_end(share, inverse, deviation[..., column])
                end = np.clip(end, low, high)
                values[..., column] = np.where(is_scored[:, column], end, values[..., column])
        return values

    @cached_property
    def _is_bounded(self) -> NDArray[np.bool_]:
        """Whether the mean lies in a finite range."""
        low, high = self.ranges.T
        inside: NDArray[np.bool_] = (self.mean >= low) & (self.mean <= high) & np.isfinite(high)
        return inside

    @cached_property
    def _position(self) -> Array:
        """Position of the mean in its range, in [0, 1]; 0 without a range."""
        low, high = self.ranges.T
        with np.errstate(invalid="ignore"):
            return np.where(self._is_bounded, (self.mean - low) / (high - low), 0.0)

    @cached_property
    def _inverse_size(self) -> Array:
        """Solution u of e^2 = p (1 - p) u + (p^2 + (1 - p)^2) u^2, with e as a share of the range.

        So a share p with the standard error e counts as that of 1 / u records, also for p = 0.
        """
        low, high = self.ranges.T
        share = self._position
        single, both = share * (1 - share), share**2 + (1 - share) ** 2
        square = (self.error / (high - low)) ** 2
        with np.errstate(invalid="ignore"):  # 0 / 0 for a share without any error
            inverse = 2 * square / (single + np.sqrt(single**2 + 4 * both * square))
        return np.where(square == 0, 0.0, inverse)


def summarize_columns(
    keys: Sequence[str],
    values: Array,
    errors: Array,
    points: NDArray[np.int64],
    count: int,
    scored: ScoredColumns,
) -> Summary:
    """Summarises the replicates of each point.

    Args:
        keys: Metric keys, length K.
        values: Metrics of each replicate, NaN where undefined, shape [n, K].
        errors: Standard errors within each replicate, NaN without one, shape [n, K].
        points: Position of each replicate's point, ascending, shape [n].
        count: Number of points, P; some may have no replicate.
        scored: Test sets of the replicates.
    """
    ranges = np.array([metric_range(key) for key in keys]).reshape(-1, 2)
    sizes = np.bincount(points, minlength=count)[:, None]
    units, unit_points, is_shared = independent_units(points, count, scored.sets)
    units_of_point = np.bincount(unit_points, minlength=count).astype(np.float64)
    freedom = units_of_point[:, None] - 1
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        squares = errors**2
        # Without a failure among n records, their share is still uncertain by about 1 / n.
        has_size, has_range = np.isfinite(scored.sizes), np.isfinite(ranges[:, 1])
        if has_size.any():
            low, high = ranges[has_range].T
            above, below = values[:, has_range] - low, high - values[:, has_range]
            is_inside = (above >= 0) & (below >= 0) & has_size[:, None]
            added = (above**2 + below**2) / scored.sizes[:, None] ** 2
            squares[:, has_range] += np.where(is_inside, added, 0.0)
        mean = sum_groups(values, points, count) / sizes
        # A second pass removes the rounding of the first, so that equal values have no spread.
        rest = sum_groups(values - mean[points], points, count) / sizes
        mean = np.where(np.isfinite(rest), mean + rest, mean)
        deviations = values - mean[points]
        square_sums = sum_groups(deviations**2, points, count)
        std = np.sqrt(square_sums / np.where(sizes > 1, sizes - 1, np.nan))
        if len(unit_points) < len(points):  # clusters of several replicates
            totals = sum_groups(deviations, units, len(unit_points))
            square_sums = sum_groups(totals**2, unit_points, count)
        spread = square_sums * (freedom + 1) / np.maximum(freedom, 1) / sizes**2
        within = sum_groups(squares, points, count) / sizes
        known = np.nan_to_num(within)
        overlap = np.zeros((count, 1))
        overlap[points, 0] = np.where(is_shared[points], scored.overlaps, 0.0)
        common = overlap * known
        error = np.sqrt(np.where(sizes > 1, np.maximum(spread + common, known / sizes), within))
        ratio = np.where(common > 0, common / spread, 0.0)
        # Part of the spread between test sets is known from the errors within them.
        part = np.where((common == 0) & (known > 0), known / sizes / spread, 0.0)
        freedom = np.where(sizes > 1, freedom * (1 + ratio) ** 2 * (1 + part**2 / 2), np.inf)
    error = np.where(np.isnan(mean), np.nan, error)
    return Summary(mean, std, error, freedom, ranges)


def independent_units(
    points: NDArray[np.int64], count: int, sets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Units of each point whose spread shows its error: replicates, or clusters of test sets.

    Args:
        points: Position of each replicate's point, ascending, shape [n].
        count: Number of points.
        sets: Number of each replicate's test set, -1 for one of its own, shape [n].

    Returns:
        Unit of each replicate, ascending by point, shape [n]; the point of each unit; and whether
        a point's two or more replicates share one test set, shape [points].
    """
    rows = np.arange(len(points))
    if (sets < 0).all():
        return rows, points, np.zeros(count, dtype=bool)
    own = sets.max(initial=-1) + 1 + rows
    clusters = np.where(sets < 0, own, sets)
    stride = len(points) + int(sets.max(initial=-1)) + 1
    cluster_points = np.unique(points * stride + clusters) // max(stride, 1)
    cluster_counts = np.bincount(cluster_points, minlength=count)
    is_shared = (cluster_counts == 1) & (np.bincount(points, minlength=count) > 1)
    keys = points * stride + np.where(is_shared[points], own, clusters)
    unique, units = np.unique(keys, return_inverse=True)
    return units, unique // max(stride, 1), is_shared


def sum_groups(values: Array, groups: NDArray[np.int64], count: int) -> Array:
    """Sums of the rows [n, K] of each group, 0 for an empty one, shape [count, K]."""
    sums = np.zeros((count, values.shape[1]))
    if len(values):
        if (np.diff(groups) < 0).any():
            order = np.argsort(groups, kind="stable")
            values, groups = values[order], groups[order]
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        sums[groups[starts]] = np.add.reduceat(values, starts, axis=0)
    return sums
