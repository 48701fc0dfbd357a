"""Trade-off curves: groups of a sweep's points, and points of a curve that show its course."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sweeps.analysis.obfuscation import is_obfuscated
from sweeps.analysis.results import Result, is_only_searched
from sweeps.analysis.tables import (
    METRIC_FLOORS,
    STRENGTH,
    PointGroup,
    Row,
    group_by_fields,
    own_fields,
    raw_data_interval,
    row_interval,
    varying_fields,
)
from sweeps.analysis.text import field_label, label_setting, setting_as_number
from sweeps.report.figures.axes import KNOB_RATIO, is_wide
from sweeps.report.figures.traces import Description, color_by
from sweeps.study.search_space import is_shared

CURVE_FIELDS = ("privacy_weight", "tradeoff")
"""Preferred fields along a trade-off curve; otherwise the last swept number."""

MAX_CURVES = 16
"""Largest number of distinguishable curves; more are drawn as single points."""

_TOO_WIDE = 0.25
_OBFUSCATION = "obfuscation"


@dataclass(frozen=True, slots=True, eq=False)
class CurveSet:
    """Finished points of a sweep, by curve.

    Attributes:
        along: Field along the curves; None if no number is swept.
        fields: Swept fields in which points differ.
        curves: In order of their settings; one with all points if there are too many.
        knobs: The field along the curves, and those that the study pairs with it.
        obfuscated: Curve over the strength of each trivial obfuscation, which is not in `curves`.
        joined: Whether a line may join a curve's points, as only the field along it differs.
    """

    along: str | None
    fields: Sequence[str]
    curves: Sequence[PointGroup]
    joined: bool
    obfuscated: Sequence[PointGroup] = ()
    knobs: Sequence[str] = ()

    @property
    def points(self) -> pd.DataFrame:
        """All points, curve by curve."""
        return pd.concat([curve.points for curve in (*self.curves, *self.obfuscated)])


@dataclass(frozen=True, slots=True, eq=False)
class CurveSample:
    """Row of a point chosen for a closer look; the reason has the numbers in its second line."""

    role: Literal["middle", "full privacy", "most private"]
    row: Row
    reason: str

    @property
    def point_id(self) -> str:
        """Id of the point."""
        return str(self.row["point_id"])


def group_curves(result: Result) -> CurveSet:
    """Groups a sweep's finished points into curves, without those that a search did not confirm."""
    points = result.points
    every = points.loc[(points["status"] == "finished") & ~is_only_searched(points)]
    finished = every.loc[~is_obfuscated(every)]
    obfuscated = obfuscation_curves(every)
    differing = varying_fields(finished)
    fields = [field for field in result.study.space if field in differing]
    paired = [field for field in fields if result.study.space[field].along]
    free = [field for field in fields if field not in paired]
    numeric = [field for field in free if not np.isnan(field_numbers(finished, field)).any()]
    last = numeric[-1] if numeric else None
    along = next((field for field in CURVE_FIELDS if field in numeric), last)
    ordered = finished if along is None else sort_along(finished, along)
    # A color scale shows the order of numbers; the field with most values gets it.
    others = [field for field in free if field != along]
    sizes = {field: finished[f"config/{field}"].nunique() for field in others if field in numeric}
    colored = max(sizes, key=sizes.__getitem__, default=None)
    groups = group_by_fields(ordered, sorted(others, key=lambda field: field != colored))
    joined = len(groups) <= MAX_CURVES
    shown = groups if joined else [PointGroup({}, ordered)]
    swept = [field for field in result.study.space if field in varying_fields(every)]
    knobs = [field for field in paired if result.study.space[field].along == along]
    knobs = [] if along is None else [along, *knobs]
    return CurveSet(along, swept if obfuscated else fields, shown, joined, obfuscated, knobs)


def obfuscation_curves(points: pd.DataFrame) -> list[PointGroup]:
    """Curves of each trivial obfuscation of equal records and yardstick, over its strength."""
    trivial = points.loc[is_obfuscated(points)]
    if trivial.empty:
        return []
    shared = [field for field in varying_fields(trivial) if is_shared(field)]
    return group_by_fields(sort_along(trivial, STRENGTH), [_OBFUSCATION, *shared])


def curve_samples(curve: PointGroup, metric: str) -> list[CurveSample]:
    """The middle of a curve, and its first point of full privacy or else its most private one.

    Full privacy is reached where the attacker's 95% interval reaches the floor, so that the rest
    may be chance. An interval that also reaches a quarter of the way up to raw data is too wide for
    that. The middle is the point nearest to half-way between raw data (or the curve's least private
    point) and the floor (or its most private point). Points without the metric are not chosen.
    """
    points = curve.points
    rows = points[points[metric].notna()].to_dict("records") if metric in points else []
    if not rows:
        return []
    floor_name, private = METRIC_FLOORS.get(metric, ""), None
    for row in rows:
        attacked, floor = row_interval(row, metric), row_interval(row, floor_name).value
        too_high = floor + _TOO_WIDE * (raw_data_interval(row, metric).value - floor)
        if attacked.low <= floor and not attacked.high >= too_high:
            relation = "lies under" if attacked.high < floor else "reaches"
            reason = f"first full-privacy point:\n{attacked} {relation} the floor, {floor:.3g}"
            private = CurveSample("full privacy", row, reason)
            break
    if private is None:
        row = min(rows, key=lambda row: float(row[metric]))
        reason = f"most private point:\n{row_interval(row, metric)}"
        private = CurveSample("most private", row, reason)
    others = [row for row in rows if row["point_id"] != private.point_id]
    if not others:
        return [private]
    values = points[metric].dropna()
    top = raw_data_interval(rows[0], metric).value
    bottom = row_interval(rows[0], floor_name).value
    top = values.max() if math.isnan(top) else top
    bottom = values.min() if math.isnan(bottom) else bottom
    middle = min(others, key=lambda row: abs(float(row[metric]) - (top + bottom) / 2))
    reason = f"middle of the curve:\n{row_interval(middle, metric)}"
    return [CurveSample("middle", middle, reason), private]


def label_settings(settings: Mapping[str, Any]) -> str:
    """Settings as `field = value`, for a figure."""
    words = []
    for field, value in settings.items():
        is_trivial = field == _OBFUSCATION
        name = "learned" if value == "none" else str(value)
        words.append(name if is_trivial else f"{field_label(field)} = {label_setting(value)}")
    return ", ".join(words)


def label_point(row: Row, fields: Sequence[str]) -> str:
    """A point's values of some fields, for a figure."""
    return label_settings({f: row.get(f"config/{f}") for f in own_fields(row, fields)})


def sort_along(points: pd.DataFrame, field: str) -> pd.DataFrame:
    """Rows in order of a numeric field."""
    return points.iloc[np.argsort(field_numbers(points, field), kind="stable")]


def field_numbers(points: pd.DataFrame, field: str) -> NDArray[np.float64]:
    """A field's values as numbers; NaN for others."""
    return np.array([setting_as_number(value) for value in points[f"config/{field}"]])


def most_varied(points: pd.DataFrame, fields: Sequence[str]) -> str:
    """The numeric field with most values, those along curves first; empty without one."""
    counts = {field: points[f"config/{field}"].nunique() for field in fields}
    numeric = [
        field
        for field, count in counts.items()
        if count > 1 and not np.isnan(field_numbers(points, field)).any()
    ]
    return max(numeric, key=lambda field: (counts[field], field in CURVE_FIELDS), default="")


def color_by_field(own: Description, points: pd.DataFrame, fields: Sequence[str]) -> Description:
    """The trace colored by the first of the fields that is a number at every point, if any is."""
    for field in fields:
        numbers = field_numbers(points, field)
        if np.isfinite(numbers).all():
            return color_by(own, numbers, field_label(field), log=is_wide(numbers, KNOB_RATIO))
    return own
