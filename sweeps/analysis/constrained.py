"""The best point under constraints, with the probability that it is.

A point of the lowest mean that just meets a constraint owes both to chance more often than not. So
the answer is a point whose whole interval meets the constraints, and the draws of
`privnets.statistics.bootstrap` show whether another point may be better.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privnets.contract import Direction
from privnets.statistics.bootstrap import PointSamples
from privnets.statistics.intervals import LEVEL, Array, Interval
from sweeps.errors import InputError, percentage_hint

_MAX_LISTED = 5
_NO_NAMES: Final[Mapping[str, str]] = {}
_COMPARISONS: Final[Mapping[str, Callable[[Array, float], NDArray[np.bool_]]]] = {
    ">=": operator.ge,
    "<=": operator.le,
}
_CONSTRAINT = re.compile(r"\s*(?P<metric>[^\s<>=]+)\s*(?P<comparison>>=|<=)\s*(?P<limit>\S+)\s*")


@dataclass(frozen=True, slots=True)
class Constraint:
    """Condition on a metric, such as `utility/accuracy >= 0.95`."""

    metric: str
    comparison: str
    limit: float

    def __str__(self) -> str:
        """The condition as it is written."""
        return f"{self.metric} {self.comparison} {self.limit:g}"

    @classmethod
    def parse(cls, text: str) -> Constraint:
        """Parses `METRIC >= NUMBER` or `METRIC <= NUMBER`.

        Raises:
            InputError: If the text is something else.
        """
        match = _CONSTRAINT.fullmatch(text)
        try:
            limit = math.nan if match is None else float(match["limit"])
        except ValueError:
            limit = math.nan
        if match is None or math.isnan(limit):
            raise InputError(
                f"a constraint must be METRIC >= NUMBER or METRIC <= NUMBER; got {text!r}"
                f"{percentage_hint(text)}"
            )
        return cls(match["metric"], match["comparison"], limit)

    def is_met(self, values: Array) -> NDArray[np.bool_]:
        """Whether each value meets the condition."""
        return _COMPARISONS[self.comparison](values, self.limit)


@dataclass(frozen=True)
class ConstrainedBest:
    """Answer to the question which point is the best in one metric under constraints.

    Attributes:
        point_id: The best point by its mean among those whose 95% intervals meet the constraints;
            None if there is none.
        value: The metric at this point; NaN without one.
        shares: Point to the probability that it meets the constraints and is the best that does,
            the likeliest first, without those below 0.01.
        unknown: Number of points that take no part because an error is unknown.
        text: The answer in a few sentences; without certainty they say what else may be true.
    """

    point_id: str | None
    value: Interval
    shares: Mapping[str, float]
    unknown: int
    text: str

    @property
    def probability(self) -> float:
        """Probability that `point_id` is the answer; 0 without a point."""
        return self.shares.get(self.point_id or "", 0.0)

    @property
    def is_certain(self) -> bool:
        """Whether the point is the answer, among all points, with a probability of 0.95 or more."""
        return self.probability >= LEVEL and not self.unknown

    def __str__(self) -> str:
        """The answer in a few sentences."""
        return self.text


def best_under_constraints(
    samples: PointSamples,
    direction: Direction,
    constraints: Sequence[Constraint],
    names: Mapping[str, str] = _NO_NAMES,
) -> ConstrainedBest:
    """The best point in the first metric of `samples` under constraints on its metrics.

    Points with unknown errors or an undefined metric take no part; the former are counted. `names`
    has the settings of points in words.
    """
    known = samples.select(np.flatnonzero(samples.has_errors))
    ids, metric, unknown = known.point_ids, known.metrics[0], int((~samples.has_errors).sum())
    sign, best = (1.0, "lowest") if direction == "min" else (-1.0, "highest")
    limits = " and ".join(map(str, constraints))

    def name(point_id: str) -> str:
        settings = names.get(point_id)
        return f"point {point_id} ({settings})" if settings else f"point {point_id}"

    draws, (low, high) = known.draw(), known.summary.interval()
    meets, is_clear = np.ones(draws.shape[:2], dtype=bool), np.ones(len(ids), dtype=bool)
    nearest = []
    for constraint in constraints:
        place, is_lower = known.metrics.index(constraint.metric), constraint.comparison == ">="
        meets &= constraint.is_met(draws[..., place])
        is_clear &= constraint.is_met((low if is_lower else high)[:, place])
        if len(ids):
            means = known.summary.mean[:, place]
            end, at = (
                "highest" if is_lower else "lowest",
                int((-means if is_lower else means).argmin()),
            )
            nearest.append(f"the {end} {constraint.metric} is {means[at]:.4g} at {name(ids[at])}")
    # The share of draws in which each point is the best of those that meet the constraints.
    scores, answered = np.where(meets, sign * draws[..., 0], math.inf), meets.any(axis=1)
    winners = scores.argmin(axis=1)[answered] if len(ids) else np.zeros(0, dtype=np.int64)
    odds = np.bincount(winners, minlength=len(ids)) / len(draws)
    order = [place for place in np.argsort(-odds, kind="stable") if odds[place] >= 0.01]
    shares = {ids[place]: float(odds[place]) for place in order}
    none = math.nan if unknown else 1 - float(answered.mean())
    clear, point_id, value = np.flatnonzero(is_clear), None, Interval(*(math.nan,) * 3)
    if len(clear):
        chosen = int(clear[(sign * known.summary.mean[clear, 0]).argmin()])
        point_id = ids[chosen]
        value = Interval(*(float(ends[chosen, 0]) for ends in (known.summary.mean, low, high)))
    asked = f"{best} {metric} with {limits}"
    if none >= LEVEL:
        ends = f"; {', and '.join(nearest)}" if nearest else ""
        text = f"No point reaches {limits}{ends} (probability {none:.3f})."
        return ConstrainedBest(point_id, value, shares, unknown, text)
    others = [f"{name(i)} with probability {p:.3f}" for i, p in shares.items() if i != point_id]
    if point_id is None:
        text, may = f"Cannot tell the {asked}: no whole interval meets it.", "may"
    else:
        found, probability = f"{metric} = {value} (95% interval)", shares.get(point_id, 0.0)
        if probability >= LEVEL and not unknown:
            text = f"The {asked} is {found} at {name(point_id)} (probability {probability:.3f})."
            return ConstrainedBest(point_id, value, shares, unknown, text)
        text, may = (
            (
                f"Cannot tell the {asked}. Among points whose whole interval meets the limit, the "
                f"{best} mean is {found} at {name(point_id)}; it is the answer with probability "
                f"{probability:.3f}."
            ),
            "may also",
        )
        unclear = {ids[place] for place in np.flatnonzero(~is_clear).tolist()}
        misses = [i in unclear for i in shares if i != point_id]
        others = [
            f"{other}, though part of its interval misses the limit" if is_missed else other
            for other, is_missed in zip(others, misses, strict=True)
        ]
    if others:
        more = f"; and {len(others) - _MAX_LISTED} more" if len(others) > _MAX_LISTED else ""
        text += f" The answer {may} be {'; '.join(others[:_MAX_LISTED])}{more}."
    if unknown:
        text += f" Points left out, as their errors are unknown: {unknown}."
    return ConstrainedBest(point_id, value, shares, unknown, text)
