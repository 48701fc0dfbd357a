"""Learned releases beside trivial obfuscation, compared at equal utility or privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from privnets.contract import Direction
from privnets.statistics.intervals import Array, Interval
from sweeps.analysis.fronts import debiased_interval
from sweeps.analysis.pareto import Objectives, comparable_points
from sweeps.analysis.results import Result
from sweeps.analysis.tables import OBFUSCATION, group_by_fields, varying_fields
from sweeps.analysis.text import field_label, label_setting, metric_name
from sweeps.study.search_space import is_shared

_LEVELS: Final = 41
"""Values, evenly spaced, at which two curves are compared."""


@dataclass(frozen=True, slots=True)
class ObfuscationFinding:
    """Comparison of learned releases with one trivial obfuscation.

    Attributes:
        name: The obfuscation.
        settings: Values of the records and the yardstick of both; empty if all points have equal
            ones.
        metric: Metric that is compared, and its direction.
        equal: Metric at whose equal values it is compared.
        ends: Range of that metric, which both curves reach.
        difference: Mean over that range of the learned curve's metric minus the other's, with its
            95% interval; None if the curves have no such value in common.
    """

    name: str
    settings: Mapping[str, object]
    metric: tuple[str, Direction]
    equal: str
    ends: tuple[float, float] = (0.0, 0.0)
    difference: Interval | None = None

    @property
    def sentence(self) -> str:
        """The finding in words."""
        metric, equal = (metric_name(m) for m in (self.metric[0], self.equal))
        where = " and ".join(
            f"{field_label(f)} {label_setting(v)}" for f, v in self.settings.items()
        )
        against = f"{self.name} with {where}" if where else self.name
        verdict = f"Whether the learned release beats {against} cannot be told"
        if self.difference is None:
            return f"{verdict}: no {equal} is common to both."
        if not np.isfinite(self.difference.half):
            return f"{verdict}: no error is known."
        if self.difference.low > 0 or self.difference.high < 0:
            is_better = (self.difference.value < 0) == (self.metric[1] == "min")
            relation = "beats" if is_better else "is worse than"
            verdict = f"The learned release {relation} {against}"
        size, half = abs(self.difference.value), self.difference.half
        more = "lower" if self.difference.value < 0 else "higher"
        low, high = (f"{end:.3g}" for end in self.ends)
        reach = f"from {low} to {high}" if low != high else low
        return (
            f"{verdict}: at equal {equal}, {reach}, its {metric} is "
            f"{more} by {size:.3f} ± {half:.3f}."
        )


def is_obfuscated(points: pd.DataFrame) -> pd.Series[bool]:
    """Whether each point is a trivial obfuscation, the baseline of learned releases."""
    if OBFUSCATION not in points:
        return pd.Series(False, index=points.index)
    return points[OBFUSCATION].fillna("none") != "none"


def compare_with_obfuscation(result: Result) -> list[ObfuscationFinding]:
    """Compares a sweep's learned releases with each obfuscation that it has.

    Privacy is compared at equal utility or utility at equal privacy, whichever the curves share
    over the larger part of their range. A curve is straight between the points that no other of it
    dominates: releasing records by either of two points at random reaches what lies between. Only
    points of equal records and yardstick are compared. Flagged points are left out. Intervals are
    free of the bias of choosing the best of noisy points.
    """
    privacy = next((m for m in result.objectives if m.startswith("privacy/")), None)
    utility = next((m for m in result.objectives if m.startswith("utility/")), None)
    if privacy is None or utility is None or not is_obfuscated(result.points).any():
        return []
    candidates = result.candidates
    objectives = {m: result.objectives[m] for m in (utility, privacy)}
    rows = comparable_points(candidates, objectives)
    findings = []
    shared = [field for field in varying_fields(rows) if is_shared(field)]
    for settings, own in group_by_fields(rows, shared):
        names = sorted(own.loc[is_obfuscated(own), OBFUSCATION].unique())
        findings += [_compare(result, own, str(name), settings, objectives) for name in names]
    return findings


def _compare(
    result: Result,
    rows: pd.DataFrame,
    name: str,
    settings: Mapping[str, object],
    objectives: Objectives,
) -> ObfuscationFinding:
    learned, others = rows.loc[~is_obfuscated(rows)], rows.loc[rows[OBFUSCATION] == name]
    joined = pd.concat([learned, others])["point_id"]
    samples = result.samples(list(objectives), joined)
    is_learned = np.isin(samples.point_ids, learned["point_id"].to_numpy())
    signs = np.array([1.0 if way == "min" else -1.0 for way in objectives.values()])
    means = signs * samples.summary.mean  # smaller is better, as everywhere below
    metrics = [*objectives]
    levels = {}
    for compared in (1, 0):  # values of the other metric that both curves reach, evenly spaced
        reach = [_best(means[own], compared)[0] for own in (is_learned, ~is_learned)]
        low = max(own[0] if len(own) else math.inf for own in reach)
        high = min(own[-1] if len(own) else -math.inf for own in reach)
        count = _LEVELS if low < high else int(low == high)
        levels[compared] = np.linspace(low, high, count) if count else np.empty(0)
    extent = np.maximum(np.ptp(means, axis=0), np.finfo(float).tiny)
    # At equal values of the metric of which the curves have more in common.
    compared = max(
        levels, key=lambda c: np.ptp(levels[c]) / extent[1 - c] if len(levels[c]) else -1.0
    )
    metric = metrics[compared], objectives[metrics[compared]]
    equal = 1 - compared
    if not len(levels[compared]):
        return ObfuscationFinding(name, settings, metric, metrics[equal])

    def gap(values: Array) -> float:
        """Mean difference of the curves, straight between points that no other dominates."""
        own, other = (
            np.interp(levels[compared], *_best(values[w], compared))
            for w in (is_learned, ~is_learned)
        )
        return float(signs[compared] * (own - other).mean())

    draws = np.array([gap(signs * drawn) for drawn in samples.draw(is_student=False)])
    difference = debiased_interval(gap(means), draws, samples.typical_freedom)
    low, high = sorted(signs[equal] * levels[compared][[0, -1]])
    ends = float(low), float(high)
    return ObfuscationFinding(name, settings, metric, metrics[equal], ends, difference)


def _best(values: Array, compared: int) -> tuple[Array, Array]:
    """The other metric, ascending, and the compared one of points that no other dominates."""
    ordered = values[np.lexsort((values[:, compared], values[:, 1 - compared]))]
    lowest = np.minimum.accumulate(ordered[:, compared])
    is_best = np.append(True, lowest[1:] < lowest[:-1])[: len(ordered)]
    return ordered[is_best, 1 - compared], ordered[is_best, compared]
