"""Resampling of points over their replicates: draws of where the true means may lie.

A draw gives each seed (or each cluster of seeds that share a test set) one random weight, the same
at every point and metric: a multiplier bootstrap (Wu, Annals of Statistics 14, 1986). So points
that share seeds stay paired. The error of a test set that all replicates share is added as a normal
variable, independent between points, as its correlation is not recorded; this makes differences
less certain. The sum of the two deviations is divided by the root of a chi-squared variable.
So each mean has Student's distribution, from which its interval comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privnets.frames import ERROR_SUFFIX
from privnets.statistics.intervals import Array
from privnets.statistics.replicates import (
    ScoredColumns,
    Summary,
    independent_units,
    sum_groups,
    summarize_columns,
)

_SEED = 0
_MAX_DRAWS = 1000
_MIN_FOR_SHARES = 625  # the standard error of a share is at most 0.02
_MIN_FOR_MOMENTS = 200  # the standard error of a standard deviation is about 5% of it
_MAX_NUMBERS = 2**22  # of all draws together, where these are more than the least number
_BLOCK_NUMBERS = 2**17  # drawn at once, 1 MiB, which stays in the processor's cache
_ROUNDING = 1e-6  # of a standard error
_MAX_FREEDOM, _STEP_OF_LOG = 200.0, 0.05


@dataclass(frozen=True, eq=False)
class PointSamples:
    """Points with what is known of their means, for K metrics.

    Attributes:
        point_ids: Id of each point, length P.
        metrics: Keys of the metrics, length K.
        summary: Means and errors.
        weights: Deviation of a mean for a unit weight of each source, shape [sources, P, K]. A
            source is a seed, or a test set that several replicates share.
    """

    point_ids: Sequence[str]
    metrics: Sequence[str]
    summary: Summary
    weights: Array

    @property
    def has_errors(self) -> NDArray[np.bool_]:
        """Whether the errors of all metrics of a point are known, shape [P]."""
        return np.asarray(~np.isnan(self.summary.error).any(axis=1))

    def select(self, places: NDArray[np.int64]) -> PointSamples:
        """The points at some places, in this order."""
        old = self.summary
        summary = Summary(
            old.mean[places], old.std[places], old.error[places], old.freedom[places], old.ranges
        )
        point_ids = [self.point_ids[place] for place in places.tolist()]
        return PointSamples(point_ids, self.metrics, summary, self.weights[:, places])

    @property
    def typical_freedom(self) -> float:
        """Median of the degrees of freedom of the means; infinite without points."""
        freedom = self.summary.freedom
        return float(np.median(freedom)) if freedom.size else np.inf

    def draw(self, groups: NDArray[np.int64] | None = None, *, is_student: bool = True) -> Array:
        """All draws of the true means at once, shape [draws, P, K]; see `draw_blocks`."""
        return np.concatenate(list(self.draw_blocks(groups, is_student=is_student)))

    def draw_blocks(
        self, groups: NDArray[np.int64] | None = None, *, is_student: bool = True
    ) -> Iterator[Array]:
        """Yields draws of the true means, NaN for a mean without a known error.

        There are 1,000 draws in all; of more than 4,000 means fewer, but at least 625, or 200
        without heavy tails.

        Args:
            groups: Number of the group of each point, shape [P]; points of a group share the error
                of their test set. Each point is alone by default.
            is_student: Whether draws have the heavy tails of estimated errors. They should not
                where a bias or a deviation is estimated from the draws.

        Yields:
            Blocks of about 1 MiB, shape [draws of the block, P, K].
        """
        from scipy.special import chdtri  # slow to import

        mean, error = self.summary.mean, np.nan_to_num(self.summary.error)
        size = max(mean.size, 1)
        least = _MIN_FOR_SHARES if is_student else _MIN_FOR_MOMENTS
        count = int(np.clip(_MAX_NUMBERS // size, least, _MAX_DRAWS))
        places = np.arange(len(mean)) if groups is None else groups
        group_count = int(places.max(initial=-1)) + 1
        rest = np.sqrt(np.maximum(error**2 - (self.weights**2).sum(axis=0), 0.0))
        inverse = np.divide(1.0, error, out=np.zeros_like(error), where=error > 0)
        weights, rest = self.weights * inverse, rest * inverse
        has_rest = bool((rest > _ROUNDING).any())
        random, step = np.random.default_rng(_SEED), max(1, _BLOCK_NUMBERS // size)
        # Factors sqrt(v / chi^2_v) of each draw, one chi-squared quantile for all points; degrees
        # of freedom v are rounded by at most 2.5%.
        freedom = np.clip(self.summary.freedom, 1.0, _MAX_FREEDOM)
        freedom = np.nan_to_num(freedom, nan=_MAX_FREEDOM)
        steps, levels = np.unique(np.round(np.log(freedom) / _STEP_OF_LOG), return_inverse=True)
        rounded, levels = np.exp(steps * _STEP_OF_LOG), levels.reshape(freedom.shape)
        scale = np.sqrt(rounded / chdtri(rounded, random.uniform(size=count)[:, None]))
        for start in range(0, count, step):
            drawn = min(step, count - start)
            sources = random.standard_normal((drawn, len(weights)))
            # Einsum starts no threads of BLAS, which would keep waiting for work of this size.
            deviation = np.einsum("ds,sn->dn", sources, weights.reshape(len(weights), mean.size))
            deviation = deviation.reshape(drawn, *mean.shape)
            if has_rest:
                common = random.standard_normal((drawn, group_count, mean.shape[1]))
                deviation += rest * (common if groups is None else common[:, places])
            if is_student:
                deviation *= scale[start : start + drawn, levels]
            yield self.summary.at(deviation)


def build_samples(replicates: pd.DataFrame, metrics: Sequence[str]) -> PointSamples:
    """The points of a table of replicates, as `Result.replicates`, in order of appearance.

    Replicates that did not finish count as undefined. `point_id` may be any text.
    """
    point_codes, point_ids = pd.factorize(replicates["point_id"])
    order = np.argsort(point_codes, kind="stable")
    table, points = replicates.iloc[order], point_codes[order].astype(np.int64)
    finished = (table["status"] == "finished").to_numpy(dtype=bool)
    values = _numbers(table, metrics)
    values[~finished] = np.nan
    sets = pd.factorize(table["test_set"])[0].astype(np.int64)
    sizes, overlaps = (_numbers(table, [name])[:, 0] for name in ("test_size", "test_overlap"))
    scored = ScoredColumns(sets, sizes, np.nan_to_num(overlaps, nan=1.0))
    errors = _numbers(table, [metric + ERROR_SUFFIX for metric in metrics])
    count = len(point_ids)
    summary = summarize_columns(metrics, values, errors, points, count, scored)
    weights = _source_weights(values, points, count, sets, table["seed"].to_numpy(dtype=np.int64))
    return PointSamples(point_ids.tolist(), list(metrics), summary, weights)


def _source_weights(
    values: Array,
    points: NDArray[np.int64],
    count: int,
    sets: NDArray[np.int64],
    seeds: NDArray[np.int64],
) -> Array:
    """Weights of `PointSamples`; their squares sum to the squared spread of the mean."""
    units, unit_points, _ = independent_units(points, count, sets)
    sizes = np.bincount(points, minlength=count)
    units_of_point = np.bincount(unit_points, minlength=count)
    mean = sum_groups(values, points, count) / np.maximum(sizes, 1)[:, None]
    totals = sum_groups(values - mean[points], units, len(unit_points))
    factor = np.sqrt(units_of_point / np.maximum(units_of_point - 1, 1)) / np.maximum(sizes, 1)
    totals *= factor[unit_points][:, None]
    # A unit of several replicates is a test set; a unit of one is a seed.
    is_set = np.bincount(units, minlength=len(unit_points))[units] > 1
    labels = np.where(is_set, -1 - sets, seeds)
    names, sources = np.unique(labels, return_inverse=True)
    unit_sources = np.zeros(len(unit_points), dtype=np.int64)
    unit_sources[units] = sources
    weights = np.zeros((len(names), count, values.shape[1]))
    weights[unit_sources, unit_points] = np.nan_to_num(totals)
    return weights


def _numbers(table: pd.DataFrame, columns: Sequence[str]) -> Array:
    """Columns as floats, NaN for those that are missing, shape [rows, columns]."""
    numbers: Array = table.reindex(columns=list(columns)).to_numpy(dtype=np.float64, copy=True)
    return numbers
