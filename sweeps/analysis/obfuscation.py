"""Learned releases beside trivial obfuscation, compared at equal utility."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privnets.statistics.bootstrap import PointSamples
from privnets.statistics.intervals import Array, Interval
from sweeps.analysis.fronts import debiased_interval
from sweeps.analysis.pareto import comparable_points
from sweeps.analysis.results import Result
from sweeps.analysis.tables import OBFUSCATION
from sweeps.analysis.text import metric_label

_LEVELS: Final = 41
"""Utilities, evenly spaced, at which two curves are compared."""


@dataclass(frozen=True, slots=True)
class ObfuscationFinding:
    """Comparison of learned releases with one trivial obfuscation.

    Attributes:
        name: The obfuscation.
        privacy: Metric that is compared, smaller being better.
        utility: Metric at whose equal values it is compared.
        ends: Range of the utility that both curves reach.
        difference: Mean over that range of the learned curve's privacy metric minus the other's,
            with its 95% interval; None if the curves have no utility in common.
    """

    name: str
    privacy: str
    utility: str
    ends: tuple[float, float] = (0.0, 0.0)
    difference: Interval | None = None

    @property
    def sentence(self) -> str:
        """The finding in words."""
        privacy, utility = (
            metric_label(m).partition(", ")[0] for m in (self.privacy, self.utility)
        )
        low, high = (f"{end:.3g}" for end in self.ends)
        if self.difference is None or not np.isfinite(self.difference.half):
            reason = "no error is known" if self.difference else f"no {utility} is common to both"
            return f"Whether the learned release beats {self.name} cannot be told: {reason}."
        verdict = f"Whether the learned release beats {self.name} cannot be told"
        if self.difference.high < 0:
            verdict = f"The learned release beats {self.name}"
        elif self.difference.low > 0:
            verdict = f"The learned release is worse than {self.name}"
        size, half = abs(self.difference.value), self.difference.half
        more = "lower" if self.difference.value < 0 else "higher"
        return (
            f"{verdict}: at equal {utility}, from {low} to {high}, its {privacy} is "
            f"{more} by {size:.3f} ± {half:.3f}."
        )


def is_obfuscated(points: pd.DataFrame) -> pd.Series[bool]:
    """Whether each point is a trivial obfuscation, the baseline of learned releases."""
    if OBFUSCATION not in points:
        return pd.Series(False, index=points.index)
    return points[OBFUSCATION].fillna("none") != "none"


def compare_with_obfuscation(result: Result) -> list[ObfuscationFinding]:
    """Compares a sweep's learned releases with each obfuscation that it has, at equal utility.

    A curve is the lowest privacy metric at each utility or a better one, linear between points:
    releasing records by either of two points at random reaches what lies between. Flagged points
    are left out. Intervals are free of the bias of choosing the best of noisy points.
    """
    privacy = next((m for m in result.objectives if m.startswith("privacy/")), None)
    utility = next((m for m in result.objectives if m.startswith("utility/")), None)
    if privacy is None or utility is None or not is_obfuscated(result.points).any():
        return []
    candidates = result.candidates
    objectives = {m: result.objectives[m] for m in (utility, privacy)}
    rows, _ = comparable_points(candidates, objectives)
    sign = 1.0 if objectives[utility] == "max" else -1.0
    learned = rows.loc[~is_obfuscated(rows)]
    found = []
    for name, points in candidates.loc[is_obfuscated(candidates)].groupby(OBFUSCATION):
        finding = partial(ObfuscationFinding, str(name), privacy, utility)
        others = rows.loc[rows["point_id"].isin(points["point_id"])]
        ends = [_reach(part, sign * part[utility], privacy) for part in (learned, others)]
        low, high = (max(e[0] for e in ends), min(e[1] for e in ends)) if all(ends) else (1.0, 0.0)
        if low >= high:
            found.append(finding())
            continue
        joined = pd.concat([learned, others])["point_id"]
        samples = result.samples([utility, privacy], joined)
        is_learned = np.isin(samples.point_ids, learned["point_id"].to_numpy())
        shown = sorted([sign * low, sign * high])
        difference = _mean_gap(samples, is_learned, np.linspace(low, high, _LEVELS), sign)
        found.append(finding((shown[0], shown[1]), difference))
    return found


def _reach(rows: pd.DataFrame, utility: pd.Series[float], privacy: str) -> tuple[float, ...]:
    """Ends of the utilities of the points that no other point dominates; empty without points."""
    order = utility.sort_values(ascending=False).index
    is_best = rows.loc[order, privacy].cummin().diff().fillna(-1.0) < 0
    best = utility[order][is_best]
    return (float(best.min()), float(best.max())) if len(best) else ()


def _mean_gap(
    samples: PointSamples, is_learned: NDArray[np.bool_], levels: Array, sign: float
) -> Interval:
    def gap(values: Array) -> float:
        utility, privacy = sign * values[:, 0], values[:, 1]
        curves = [_curve(utility[m], privacy[m], levels) for m in (is_learned, ~is_learned)]
        return float((curves[0] - curves[1]).mean())

    draws = np.array([gap(drawn) for drawn in samples.draw(is_student=False)])
    return debiased_interval(gap(samples.summary.mean), draws, samples.typical_freedom)


def _curve(utility: Array, privacy: Array, levels: Array) -> Array:
    """Lowest privacy metric at each level of utility or a higher one."""
    order = np.argsort(utility)
    lowest = np.minimum.accumulate(privacy[order][::-1])[::-1]
    curve: Array = np.interp(levels, utility[order], lowest)
    return curve
