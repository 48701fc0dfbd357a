"""A sweep's points as trade-off curves, and which points of a curve are worth a closer look."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from sweeps.analysis.formatting import format_setting, setting_as_number, shorten
from sweeps.analysis.tables import (
    METRIC_FLOORS,
    raw_data_interval,
    row_config,
    row_interval,
    varying_fields,
)
from sweeps.report.sources import ReportSource

ALONG = ("privacy_weight", "tradeoff")
"""Fields that run along a trade-off curve, the first that differs; else the last swept number."""

MOST_CURVES = 16
"""So many curves can be told apart; beyond, a sweep's points are taken together."""

Row = Mapping[Hashable, Any]
Role = Literal["middle", "full privacy", "most private"]
_TOO_WIDE = 0.25


@dataclass(frozen=True, slots=True, eq=False)
class TradeoffCurve:
    """Points that agree in every swept field but the one that runs along the curve.

    Attributes:
        settings: The fields they agree in, by name, the coloured one first.
        color: Place of its coloured field's value among all of them, from 0.
        style: Place of the other fields' values among all combinations of them, from 0.
        points: Finished points, in order along the curve.
    """

    settings: Mapping[str, Any]
    color: int
    style: int
    points: pd.DataFrame

    @property
    def label(self) -> str:
        """The settings in words; empty when there is but one curve."""
        return labelled(self.settings)


@dataclass(frozen=True, slots=True, eq=False)
class CurveSet:
    """Every finished point of a sweep, by curve.

    Attributes:
        along: The field that runs along the curves; None where no number is swept.
        fields: The swept fields in which points differ.
        colors: Values of the coloured field, in order; one None where there is no such field.
        styles: How many combinations the fields have that are told apart by line and marker.
        curves: In the order of their settings; one of all points where there would be too many.
        joined: Whether a curve's points differ in the field along it alone, so that a line may
            join them.
    """

    along: str | None
    fields: tuple[str, ...]
    colors: tuple[Any, ...]
    styles: int
    curves: tuple[TradeoffCurve, ...]
    joined: bool


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """A point of a curve to look at.

    Attributes:
        role: Why it was chosen.
        row: Its row.
        words: Its role, and in a second line the numbers it rests on.
    """

    role: Role
    row: Row
    words: str

    @property
    def point_id(self) -> str:
        """The point."""
        return str(self.row["point_id"])


def curve_set(data: ReportSource) -> CurveSet:
    """Sort a sweep's finished points into curves."""
    points = data.points
    finished = points.loc[points["status"] == "finished"]
    differing = varying_fields(finished)
    fields = tuple(field for field in data.study.space if field in differing)
    along = _along(finished, fields)
    grouping = _colored_first(finished, [field for field in fields if field != along])
    parts = _parts(finished, grouping)
    joined = len(parts) <= MOST_CURVES
    if not joined:
        parts, grouping = [({}, finished)], []
    colors = _levels(settings.get(grouping[0]) if grouping else None for settings, _ in parts)
    rests = _levels(_rest(settings) for settings, _ in parts)
    curves = [
        TradeoffCurve(
            settings,
            colors.index(settings[grouping[0]] if grouping else None),
            rests.index(_rest(settings)),
            _ordered(part, along),
        )
        for settings, part in parts
    ]
    return CurveSet(along, fields, tuple(colors), len(rests), tuple(curves), joined)


def samples(curve: TradeoffCurve, metric: str) -> list[Sample]:
    """The middle of a curve, and its first point of full privacy or else its most private one.

    Full privacy is reached where the attacker's 95% interval reaches down to the floor, so that
    what is left above it may be chance; an interval that also reaches a quarter of the way up to
    raw data is too wide to say so. The middle is the point nearest to half-way between raw data (or
    the curve's least private point) and the floor (or its most private one).

    Args:
        curve: The curve.
        metric: The privacy metric by which points are judged; smaller is more private.

    Returns:
        At most two, of different points; none where the metric is undefined throughout.
    """
    if metric not in curve.points:
        return []
    defined = curve.points.loc[curve.points[metric].notna()]
    rows = defined.to_dict("records")
    if not rows:
        return []
    private = _private(rows, metric)
    others = [row for row in rows if row["point_id"] != private.row["point_id"]]
    return [*_middle(rows, others, metric), private]


def spread_curves(curves: Sequence[TradeoffCurve], most: int) -> list[TradeoffCurve]:
    """At most so many curves, evenly spread, the first and the last among them."""
    if len(curves) <= most:
        return list(curves)
    if most == 1:
        return [curves[0]]
    return [curves[round(place * (len(curves) - 1) / (most - 1))] for place in range(most)]


def labelled(settings: Mapping[str, Any]) -> str:
    """Settings as `field = value`, infinity by its sign."""
    return ", ".join(f"{field} = {sign(value)}" for field, value in settings.items())


def sign(value: object) -> str:
    """A format_setting, infinity by its sign and a long text shortened."""
    return "∞" if setting_as_number(value) == math.inf else shorten(format_setting(value))


def placed(row: Row, fields: Sequence[str]) -> str:
    """A row's settings of some fields in words."""
    config = row_config(row)
    return labelled({field: config.get(field) for field in fields})


def _along(finished: pd.DataFrame, fields: Sequence[str]) -> str | None:
    numbers = [field for field in fields if _numeric(finished, field)]
    return next((field for field in ALONG if field in numbers), numbers[-1] if numbers else None)


def _numeric(finished: pd.DataFrame, field: str) -> bool:
    return not any(math.isnan(setting_as_number(value)) for value in finished[f"config/{field}"])


def _colored_first(finished: pd.DataFrame, grouping: list[str]) -> list[str]:
    """Numbers have an order that a scale of colours shows; the one of most values gets it."""
    numbers = [field for field in grouping if _numeric(finished, field)]
    if not numbers:
        return grouping
    chosen = max(numbers, key=lambda field: finished[f"config/{field}"].nunique())
    return [chosen, *(field for field in grouping if field != chosen)]


def _parts(
    finished: pd.DataFrame, grouping: Sequence[str]
) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """Rows by their settings, in the order of these."""
    columns = [f"config/{field}" for field in grouping]
    found: dict[tuple[str, ...], list[Any]] = {}
    values: dict[tuple[str, ...], dict[str, Any]] = {}
    for index, row in zip(finished.index, finished[columns].to_dict("records"), strict=True):
        key = tuple(format_setting(row[column]) for column in columns)
        found.setdefault(key, []).append(index)
        values.setdefault(key, {f: row[c] for f, c in zip(grouping, columns, strict=True)})
    order = sorted(found, key=lambda key: [_place(value) for value in values[key].values()])
    return [(values[key], finished.loc[found[key]]) for key in order]


def _rest(settings: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(format_setting(value) for value in list(settings.values())[1:])


def _levels(values: Iterator[Any]) -> list[Any]:
    found = {
        format_setting(value) if not isinstance(value, tuple) else value: value for value in values
    }
    return sorted(found.values(), key=_place)


def _place(value: object) -> tuple[int, float, str]:
    """Numbers by setting_as_number, then all else by name."""
    number = setting_as_number(value)
    return (1, 0.0, str(value)) if math.isnan(number) else (0, number, "")


def _ordered(part: pd.DataFrame, along: str | None) -> pd.DataFrame:
    if along is None:
        return part
    return part.loc[part[f"config/{along}"].map(setting_as_number).sort_values(kind="stable").index]


def _private(rows: Sequence[Row], metric: str) -> Sample:
    floor = METRIC_FLOORS.get(metric, "")
    for row in rows:
        limit, attacked = row_interval(row, floor).mean, row_interval(row, metric)
        too_far = limit + _TOO_WIDE * (raw_data_interval(row, metric).mean - limit)
        if attacked.low <= limit and not attacked.high >= too_far:
            reach = "lies under" if attacked.high < limit else "reaches"
            words = f"first full-privacy point:\n{attacked} {reach} the floor, {limit:.3g}"
            return Sample("full privacy", row, words)
    row = min(rows, key=lambda row: float(row[metric]))
    return Sample("most private", row, f"most private point:\n{row_interval(row, metric)}")


def _middle(rows: Sequence[Row], others: Sequence[Row], metric: str) -> Iterator[Sample]:
    if not others:
        return
    values = [float(row[metric]) for row in rows]
    top = _known(raw_data_interval(rows[0], metric).mean, max(values))
    bottom = _known(row_interval(rows[0], METRIC_FLOORS.get(metric, "")).mean, min(values))
    row = min(others, key=lambda row: abs(float(row[metric]) - (top + bottom) / 2))
    yield Sample("middle", row, f"middle of the curve:\n{row_interval(row, metric)}")


def _known(value: float, otherwise: float) -> float:
    return otherwise if math.isnan(value) else value
