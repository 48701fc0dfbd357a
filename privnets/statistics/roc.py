"""Success rates of an attack with intervals in closed form.

A trial is an audited model and a record. Trials of one record, and of one model, are dependent:
variances are clustered by both. Each rate counts as one of `variance / (rate (1 - rate))` fewer
independent trials. Its interval is Wilson's. Intervals of combinations add the squared distances to
their parts' ends, as `Interval.__sub__` does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtrik, betaincinv, ndtri, stdtrit

from privnets.statistics.estimates import Estimate
from privnets.statistics.intervals import Array, Interval, wilson_end

BoolArray = NDArray[np.bool_]

Convention = Literal["at-most", "interpolated", "convex-hull"]
CONVENTIONS: Final[tuple[Convention, ...]] = ("at-most", "interpolated", "convex-hull")
"""Ways to read a true-positive rate at a false-positive rate from a ROC curve."""

RATES: Final = (0.1, 0.01, 0.001)
"""False-positive rates of tables."""

RATE_OF: Final = {f"tpr_at_fpr_{rate:g}": rate for rate in RATES}

METRICS: Final = ("advantage", "auc", *RATE_OF)
"""Metrics with an interval; 0 is the value of guessing, and for `auc` 0.5."""

_ROUNDING = 1e-9
_MAX_THRESHOLDS = 256


class Ranking:
    """Order of scores along the last axis, with ties."""

    def __init__(self, score: Array) -> None:
        """Sorts scores, shape [..., n]; NaN come last."""
        self._order = np.argsort(score, axis=-1)
        self.ordered = np.take_along_axis(score, self._order, -1)
        places = np.arange(score.shape[-1])
        starts = np.ones(score.shape, dtype=bool)
        starts[..., 1:] = self.ordered[..., 1:] != self.ordered[..., :-1]
        ends = np.ones_like(starts)
        ends[..., :-1] = starts[..., 1:]
        last = np.where(ends, places, len(places))[..., ::-1]
        self._first = np.maximum.accumulate(np.where(starts, places, 0), axis=-1)
        self._last = np.minimum.accumulate(last, axis=-1)[..., ::-1] + 1

    def sort(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values [..., n] in the order of the scores."""
        return np.take_along_axis(values, self._order, -1)

    def restore(self, values: Array) -> Array:
        """Values in the order of the scores, back in the order of the records."""
        restored = np.empty_like(values)
        np.put_along_axis(restored, self._order, values, -1)
        return restored

    def sums_below(self, weight: NDArray[Any]) -> tuple[Array, Array]:
        """Sums of sorted weights over lower scores, and over those that are not higher."""
        sums = np.zeros((*weight.shape[:-1], weight.shape[-1] + 1))
        np.cumsum(weight, axis=-1, out=sums[..., 1:])
        return (np.take_along_axis(sums, self._first, -1), np.take_along_axis(sums, self._last, -1))

    def placements(self, positive: BoolArray, negative: BoolArray) -> Array:
        """Share of the other class on the right side of each sorted record, ties counting half.

        That is below a positive record and above a negative one. The mean over either class is the
        area under the ROC curve (Mann-Whitney), and deviations from it, divided by the size of the
        class, are the influences of records (DeLong et al., Biometrics 44, 1988).

        Args:
            positive: Shape [..., n], in the order of the scores.
            negative: Of the other class, likewise.

        Returns:
            Shape [..., n]; of records of neither class, the share above them.
        """
        shares = []
        for rivals in (negative, positive):
            low, high = self.sums_below(rivals)
            shares.append((low + high) / (2 * rivals.sum(-1, keepdims=True)))
        placed: Array = np.where(positive, shares[0], 1 - shares[1])
        return placed


@dataclass(frozen=True, eq=False)
class ScoredTrials:
    """Scores of one attack.

    Attributes:
        score: Larger for more likely members, shape [T, R]; NaN for trials that are left out.
        member: Whether the record was in the model's training set, shape [T, R].
        confidence: Coverage of intervals.
        inflation: Factor of variances. It is 2 for scores of two halves that were fitted to each
            other: the mean of two estimates has at most twice the variance that it would have if
            they were independent.
        shared_models: Whether the trials of a row are of one model. If not, records alone are
            independent units.
    """

    score: Array
    member: BoolArray
    confidence: float = 0.95
    inflation: float = 1.0
    shared_models: bool = True

    def select(self, records: BoolArray, inflation: float = 1.0) -> ScoredTrials:
        """Returns the trials of some records, of one half unless `inflation` is given."""
        score, member = self.score[:, records], self.member[:, records]
        return replace(self, score=score, member=member, inflation=inflation)

    @cached_property
    def inside(self) -> BoolArray:
        """Trials of members, shape [T, R]."""
        return self.member & ~np.isnan(self.score)

    @cached_property
    def outside(self) -> BoolArray:
        """Trials of other records, shape [T, R]."""
        return ~self.member & ~np.isnan(self.score)

    @cached_property
    def _ranking(self) -> Ranking:
        return Ranking(self.score.ravel())

    @cached_property
    def members(self) -> Array:
        """Scores of members, ascending."""
        scores: Array = self._ranking.ordered[self._ranking.sort(self.inside.ravel())]
        return scores

    @cached_property
    def others(self) -> Array:
        """Scores of other records, ascending."""
        scores: Array = self._ranking.ordered[self._ranking.sort(self.outside.ravel())]
        return scores

    @cached_property
    def quantile(self) -> float:
        """Two-sided quantile of intervals: normal, or Student's over several audited models."""
        level, models = (1 + self.confidence) / 2, len(self.score)
        return float(ndtri(level) if models == 1 else stdtrit(models - 1, level))

    def success(self, decision: BoolArray) -> dict[str, Interval]:
        """Advantage of decisions, shape [T, R], AUC, and true-positive rates, by metric."""
        powers = {key: self.true_positive_rate(rate) for key, rate in RATE_OF.items()}
        return {"advantage": self.advantage(decision), "auc": self.area(), **powers}

    def estimates(self, decision: BoolArray) -> dict[str, Estimate]:
        """The same with standard errors in place of intervals."""
        powers = {key: self.rate_estimate(rate) for key, rate in RATE_OF.items()}
        advantage = self.advantage_estimate(decision)
        return {"advantage": advantage, "auc": self.area_estimate, **powers}

    def area(self) -> Interval:
        """Area under the ROC curve.

        Near 0 and 1 its variance is too small: it is at least that of Hanley and McNeil.
        """
        area, counts = self.area_estimate.value, (len(self.members), len(self.others))
        # Hanley and McNeil, Radiology 143, 1982.
        first, second = area / (2 - area), 2 * area**2 / (1 + area)
        spread = (counts[0] - 1) * (first - area**2) + (counts[1] - 1) * (second - area**2)
        least = max(0.0, area * (1 - area) + spread) / (counts[0] * counts[1])
        variance = max(self.area_estimate.error**2, self.inflation * least)
        size = area * (1 - area) / variance if variance > 0 else self._independent(min(counts))
        return wilson(area, size, self.quantile)

    @cached_property
    def area_estimate(self) -> Estimate:
        """Area under the ROC curve (Mann-Whitney; ties count half), with DeLong's variance."""
        ranking = self._ranking
        sides = (ranking.sort(side.ravel()) for side in (self.inside, self.outside))
        placed = ranking.restore(ranking.placements(*sides)).reshape(self.score.shape)
        area = float(placed[self.inside].mean())
        influence = np.where(self.inside, placed - area, 0.0) / len(self.members)
        influence += np.where(self.outside, placed - area, 0.0) / len(self.others)
        return Estimate(area, math.sqrt(self._variance(influence)))

    def advantage_estimate(self, decision: BoolArray) -> Estimate:
        """TPR - FPR of decisions, shape [T, R]."""
        value, influence = self._advantage(decision)
        return Estimate(value, math.sqrt(self._variance(influence)))

    def rate_estimate(self, rate: float) -> Estimate:
        """True-positive rate as `true_positive_rate` has it, with its standard error.

        The error holds that of the threshold: its false-positive rate varies, and moves the
        true-positive rate by the slope of the ROC curve. It is at least that of equal scores which
        chance may have put on the wrong side of the rate.
        """
        value, threshold = self._rate_at(rate)
        above = self.score > threshold
        share = float((self.others > threshold).mean())
        false = np.where(self.outside, above - share, 0.0) / len(self.others)
        # The curve is a staircase: its slope is that of a chord over two standard errors.
        reach = max(math.sqrt(self._variance(false)), 1 / len(self.others))
        ends = max(share - reach, 0.0), min(share + reach, 1.0)
        strict, loose = (self._rate_at(end)[0] for end in ends)
        slope = (loose - strict) / (ends[1] - ends[0])
        influence = np.where(self.inside, above - value, 0.0) / len(self.members) - slope * false
        error = math.sqrt(self._variance(influence))
        # An interval holds the largest step around the rate, of members of equal score.
        size = self._effective(above, self.outside, share)
        quantile = float(ndtri((1 + self.confidence) / 2))
        true, rates = self._rates_from(self._distinct)
        is_near = np.abs(rates - rate) <= quantile * math.sqrt(rate * (1 - rate) / size)
        steps = np.where(is_near, -np.diff(true, append=0.0), 0.0)
        if (step := float(steps.max())) > 0:
            tied = self.score == self._distinct[int(steps.argmax())]
            influence = np.where(self.inside, tied - step, 0.0) / len(self.members)
            error = max(error, step / quantile + math.sqrt(self._variance(influence)))
        return Estimate(value, error)

    def advantage(self, decision: BoolArray) -> Interval:
        """TPR - FPR of decisions, shape [T, R]: signed, in [-1, 1]."""
        true, false = (float(decision[side].mean()) for side in (self.inside, self.outside))
        counts = len(self.members), len(self.others)
        _, influence = self._advantage(decision)
        plain = true * (1 - true) / counts[0] + false * (1 - false) / counts[1]
        plain *= self.inflation
        clustering = max(1.0, self._variance(influence) / plain) if plain > 0 else 1.0
        sizes = (self._independent(count) / clustering for count in counts)
        inside, outside = (
            wilson(rate, size, self.quantile)
            for rate, size in zip((true, false), sizes, strict=True)
        )
        return inside - outside

    def _advantage(self, decision: BoolArray) -> tuple[float, Array]:
        """TPR - FPR of decisions, and the influence of each trial, shape [T, R]."""
        true, false = (float(decision[side].mean()) for side in (self.inside, self.outside))
        influence = np.where(self.inside, decision - true, 0.0) / self.inside.sum()
        influence -= np.where(self.outside, decision - false, 0.0) / self.outside.sum()
        return true - false, influence

    def true_positive_rate(self, rate: float) -> Interval:
        """Largest true-positive rate of a threshold with at most this false-positive rate.

        The interval holds the error of the threshold by binomial limits on its number of false
        positives. Where none may be a plausible number, the lower end is 0.
        """
        value, threshold = self._rate_at(rate)
        decision = self.score > threshold
        positives = self._effective(decision, self.inside, value)
        found = wilson(value, positives, self.quantile)
        share = float((self.others > threshold).mean())
        size = self._effective(decision, self.outside, share)
        level = (1 - self.confidence) / 2
        quantiles = bdtrik(np.array([level, 1 - level]), size, rate)
        fewest, most = np.maximum(np.ceil(np.nan_to_num(quantiles) - _ROUNDING), 0).tolist()
        strict = self._rate_at(fewest / size)[0] if fewest > 0 else 0.0
        loose = self._rate_at(most / size)[0]
        low = max(0.0, value - math.hypot(value - found.low, value - strict))
        high = min(1.0, value + math.hypot(found.high - value, loose - value))
        return Interval(value, low, high)

    def read_rate(self, rate: float, convention: Convention = "at-most") -> float:
        """True-positive rate at a false-positive rate, by a convention.

        `at-most`: of a threshold that does not exceed the rate; `interpolated`: linear between
        the points of the ROC curve; `convex-hull`: the same on the curve's upper convex hull.
        """
        if convention == "at-most":
            return self._rate_at(rate)[0]
        true, false = (np.r_[0.0, each[::-1]] for each in self._rates_from(self._distinct))
        corners: list[int] = []
        for point in range(len(false) if convention == "convex-hull" else 0):
            while len(corners) > 1:
                first, middle = corners[-2:]
                rise = (true[middle] - true[first]) * (false[point] - false[first])
                if rise > (true[point] - true[first]) * (false[middle] - false[first]):
                    break
                corners.pop()
            corners.append(point)
        if corners:
            false, true = false[corners], true[corners]
        return float(np.interp(rate, false, true))

    def false_positive_rates(self) -> Array:
        """Share of other records' trials, and the trial itself, that score at least as high.

        Shape [T, R]. Without leakage it is at most r with probability r or less, for each member
        of one model: its rank among the others is uniform.
        """
        above = len(self.others) - np.searchsorted(self.others, self.score, side="left")
        rates: Array = np.where(np.isnan(self.score), np.nan, (1 + above) / (1 + len(self.others)))
        return rates

    def best_threshold(self) -> tuple[float, float]:
        """Largest advantage of calling scores from a threshold on members, and the threshold."""
        true, false = self._rates_from(self._distinct)
        best = int(np.argmax(true - false))
        return float(true[best] - false[best]), float(self._distinct[best])

    def epsilon_threshold(self, delta: float, level: float) -> tuple[float, float]:
        """Largest lower bound on epsilon over up to 512 thresholds, and the threshold.

        It chooses a threshold for other trials, so dependence of trials is left out.
        """
        ordered = self._distinct
        ranks = np.unique(np.geomspace(1, len(ordered), _MAX_THRESHOLDS).astype(int))
        thresholds = np.unique(np.concatenate([ordered[-ranks], ordered[ranks - 1]]))
        true, false = self._rates_from(thresholds)
        bounds = epsilon_bounds(true, false, len(self.members), len(self.others), delta, level)
        best = int(np.argmax(bounds))
        return float(bounds[best]), float(thresholds[best])

    def epsilon_at(self, threshold: float, delta: float, level: float) -> float:
        """Lower bound on epsilon of one threshold that other trials chose."""
        decision = self.score >= threshold
        true, false = (float(decision[side].mean()) for side in (self.inside, self.outside))
        positives = self._effective(decision, self.inside, true)
        negatives = self._effective(decision, self.outside, false)
        return float(epsilon_bounds(true, false, positives, negatives, delta, level))

    @cached_property
    def _distinct(self) -> Array:
        return np.unique(np.concatenate([self.members, self.others]))

    def _rates_from(self, thresholds: Array) -> tuple[Array, Array]:
        """Shares of members and of others whose scores reach thresholds."""
        true, false = (
            1 - np.searchsorted(scores, thresholds) / len(scores)
            for scores in (self.members, self.others)
        )
        return true, false

    def _rate_at(self, rate: float) -> tuple[float, float]:
        """True-positive rate at a false-positive rate, and the score that it exceeds."""
        allowed = math.floor(rate * len(self.others) + _ROUNDING)
        if allowed >= len(self.others):
            return 1.0, -math.inf
        threshold = float(self.others[len(self.others) - 1 - allowed])
        above = len(self.members) - np.searchsorted(self.members, threshold, side="right")
        return float(above / len(self.members)), threshold

    def _effective(self, decision: BoolArray, side: BoolArray, rate: float) -> float:
        """Number of independent trials that a rate over one side counts as."""
        count = float(side.sum())
        if len(self.score) == 1:
            return count / self.inflation
        plain = rate * (1 - rate) / count
        if plain == 0:
            return self._independent(count)
        variance = self._variance(np.where(side, (decision - rate) / count, 0.0))
        return count / max(1.0, variance / plain)

    def _independent(self, count: float) -> float:
        """Number of trials, but at most one for each record."""
        return min(count, float(self.score.shape[1])) / self.inflation

    def _variance(self, influence: Array) -> float:
        """Variance of a sum of influences, clustered by record and by model."""
        records, models = int(influence.shape[1]), len(influence)
        by_record = float(np.square(influence.sum(0)).sum()) * records / (records - 1)
        if models == 1 or not self.shared_models:
            return self.inflation * by_record
        by_model = float(np.square(influence.sum(1)).sum()) * models / (models - 1)
        both = by_record + by_model - float(np.square(influence).sum())
        # By chance, the two-way estimate can be below the one-way estimate.
        return self.inflation * max(by_record, both)


def flatten(intervals: Mapping[str, Interval]) -> dict[str, float]:
    """Columns of a table: each value, and its ends as `.ci_low` and `.ci_high`."""
    columns: dict[str, float] = {}
    for key, interval in intervals.items():
        columns |= {key: interval.value}
        columns |= {f"{key}.ci_low": interval.low, f"{key}.ci_high": interval.high}
    return columns


def best_threshold(score: Array, member: BoolArray) -> tuple[float, float]:
    """Largest advantage of calling scores from a threshold on members, and that threshold.

    Advantages are rounded to single precision. The highest threshold counts where several are as
    good.
    """
    order = np.argsort(-score, axis=None, kind="stable")
    ordered, ranked = score.ravel()[order], member.ravel()[order]
    inside = np.cumsum(ranked)
    outside = np.arange(1, len(ranked) + 1) - inside
    true, false = ((each / each[-1]).astype(np.float32) for each in (inside, outside))
    # No threshold separates equal scores, so only the last of a run counts.
    is_last = np.append(ordered[1:] != ordered[:-1], True)
    advantage = np.where(is_last, true - false, np.float32(-1))
    best = int(advantage.argmax())
    return float(advantage[best]), float(ordered[best])


def wilson(rate: float, size: float, quantile: float) -> Interval:
    """Rate over `size` independent trials with Wilson's interval."""
    low, high = wilson_end(rate, 1 / size, np.array([-quantile, quantile])).tolist()
    return Interval(rate, max(0.0, min(low, rate)), min(1.0, max(high, rate)))


def epsilon_bounds(
    true: ArrayLike, false: ArrayLike, members: float, others: float, delta: float, level: float
) -> Array:
    """Lower bounds on epsilon from Clopper-Pearson limits of true- and false-positive rates.

    Each rate has a one-sided limit that errs with probability (1 - level) / 2. Training that is
    (epsilon, delta)-private has TPR <= exp(epsilon) FPR + delta, and the same with both classes
    exchanged (Jagielski et al., NeurIPS 2020, arXiv 2006.07709).

    Args:
        true: True-positive rates over `members` independent trials.
        false: False-positive rates over `others` independent trials.
    """
    tail = (1 - level) / 2
    least = 1 - clopper_pearson_upper((1 - np.asarray(true)) * members, members, tail)
    most = clopper_pearson_upper(np.asarray(false) * others, others, tail)
    bounds = np.zeros(np.shape(least))
    for top, base in ((least, most), (1 - most, 1 - least)):
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log(np.maximum(top - delta, 0)) - np.log(base)
        bounds = np.maximum(bounds, np.nan_to_num(ratio, neginf=0.0))
    return bounds


def clopper_pearson_upper(successes: ArrayLike, size: float, tail: float) -> Array:
    """One-sided upper limit of a rate that errs with probability `tail` at most."""
    failures = size - np.asarray(successes, dtype=float)
    limit = betaincinv(size - failures + 1, np.maximum(failures, _ROUNDING), 1 - tail)
    return np.where(failures > _ROUNDING, limit, 1.0)
