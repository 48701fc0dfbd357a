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
        metric: The metric.
        direction: Whether the best is the lowest (`min`) or the highest (`max`).
        constraints: Conditions on metrics.
        point_id: The best point by its mean among those whose 95% intervals meet the constraints;
            None if there is none.
        value: The metric at this point; NaN without one.
        shares: Point to the probability that it meets the constraints and is the best that does,
            the likeliest first, without those below 0.01.
        unclear: Points whose 95% intervals do not meet the constraints as a whole.
        none: Probability that no point meets the constraints; NaN with unknown errors.
        extremes: For each constraint, the mean that comes nearest to meeting it, and its point;
            empty without points.
        unknown: Number of points that take no part because an error is unknown.
        names: Point to its swept settings in words; a point without them has its id alone.
    """

    metric: str
    direction: Direction
    constraints: tuple[Constraint, ...]
    point_id: str | None
    value: Interval
    shares: Mapping[str, float]
    unclear: frozenset[str]
    none: float
    extremes: Sequence[tuple[float, str]]
    unknown: int
    names: Mapping[str, str]

    @property
    def probability(self) -> float:
        """Probability that `point_id` is the answer; 0 without a point."""
        return 0.0 if self.point_id is None else self.shares.get(self.point_id, 0.0)

    @property
    def is_certain(self) -> bool:
        """Whether the point is the answer, among all points, with a probability of 0.95 or more."""
        return self.probability >= LEVEL and not self.unknown

    def __str__(self) -> str:
        """The answer in a few sentences; without certainty they say what else may be true."""
        asked = f"{self._best} {self.metric} with {self._limits}"
        if self.none >= LEVEL:
            return (
                f"No point reaches {self._limits}{self._nearest()} (probability {self.none:.3f})."
            )
        if self.point_id is None:
            return f"Cannot tell the {asked}: no whole interval meets it.{self._caveats()}"
        found = f"{self.metric} = {self.value} (95% interval) at {self._name(self.point_id)}"
        if self.is_certain:
            return f"The {asked} is {found} (probability {self.probability:.3f})."
        return (
            f"Cannot tell the {asked}. Among points whose whole interval meets the limit, the "
            f"{self._best} mean is {found}; it is the answer with probability "
            f"{self.probability:.3f}.{self._caveats()}"
        )

    @property
    def _best(self) -> str:
        return "lowest" if self.direction == "min" else "highest"

    @property
    def _limits(self) -> str:
        return " and ".join(map(str, self.constraints))

    def _name(self, point_id: str) -> str:
        settings = self.names.get(point_id)
        return f"point {point_id} ({settings})" if settings else f"point {point_id}"

    def _nearest(self) -> str:
        """The value of each constraint's metric that comes nearest to meeting it."""
        nearest = []
        for constraint, (value, point_id) in zip(self.constraints, self.extremes, strict=False):
            end = "highest" if constraint.comparison == ">=" else "lowest"
            nearest.append(
                f"the {end} {constraint.metric} is {value:.4g} at {self._name(point_id)}"
            )
        return f"; {', and '.join(nearest)}" if nearest else ""

    def _caveats(self) -> str:
        """Sentences that name the other points which may be the answer."""
        # Without a best point it is said already that every interval misses the limit in part.
        unclear = self.unclear if self.point_id is not None else frozenset()
        others = [
            f"{self._name(name)} with probability {p:.3f}"
            + (", though part of its interval misses the limit" if name in unclear else "")
            for name, p in self.shares.items()
            if name != self.point_id
        ]
        more = f"; and {len(others) - _MAX_LISTED} more" if len(others) > _MAX_LISTED else ""
        also = "also " if self.point_id is not None else ""
        listed = "; ".join(others[:_MAX_LISTED])
        text = f" The answer may {also}be {listed}{more}." if others else ""
        if self.unknown:
            text += f" Points left out, as their errors are unknown: {self.unknown}."
        return text


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
    unknown = len(samples.point_ids) - len(known.point_ids)
    sign = 1.0 if direction == "min" else -1.0
    places = [known.metrics.index(constraint.metric) for constraint in constraints]
    draws, summary = known.draw(), known.summary
    low, high = summary.interval()
    extremes = list[tuple[float, str]]()
    meets = np.ones(draws.shape[:2], dtype=bool)
    is_clear = np.ones(len(known.point_ids), dtype=bool)
    for place, constraint in zip(places, constraints, strict=True):
        meets &= constraint.is_met(draws[..., place])
        is_lower = constraint.comparison == ">="
        is_clear &= constraint.is_met((low if is_lower else high)[:, place])
        if len(is_clear):
            means = summary.mean[:, place]
            nearest = int(means.argmax() if is_lower else means.argmin())
            extremes.append((float(means[nearest]), known.point_ids[nearest]))
    shares, none = _answer_shares(np.where(meets, sign * draws[..., 0], math.inf), meets)
    clear = np.flatnonzero(is_clear)
    chosen = clear[(sign * summary.mean[clear, 0]).argmin()] if len(clear) else None
    ends = (math.nan,) * 3 if chosen is None else (a[chosen, 0] for a in (summary.mean, low, high))
    order = [place for place in np.argsort(-shares, kind="stable") if shares[place] >= 0.01]
    return ConstrainedBest(
        metric=known.metrics[0],
        direction=direction,
        constraints=tuple(constraints),
        point_id=None if chosen is None else known.point_ids[chosen],
        value=Interval(*map(float, ends)),
        shares={known.point_ids[place]: float(shares[place]) for place in order},
        unclear=frozenset(known.point_ids[place] for place in np.flatnonzero(~is_clear).tolist()),
        none=math.nan if unknown else none,
        extremes=extremes,
        unknown=unknown,
        names=names,
    )


def _answer_shares(scores: Array, meets: NDArray[np.bool_]) -> tuple[Array, float]:
    """Share of draws in which each point is the answer, and the share without an answer."""
    answered = meets.any(axis=1)
    if not scores.shape[1]:
        return np.zeros(0), 1.0
    counts = np.bincount(scores.argmin(axis=1)[answered], minlength=scores.shape[1])
    return counts / len(scores), float(1 - answered.mean())
