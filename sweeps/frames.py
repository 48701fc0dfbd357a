"""Reading a table of points: what tells its rows apart, and their intervals."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd

from sweeps.intervals import Interval

BOUNDS: Mapping[str, str] = {"privacy/membership_advantage": "bound/advantage"}
"""Metric to the one that theory bounds it by."""

ENDS = (".ci_low", ".ci_high")


def interval(row: Mapping[Hashable, Any], metric: str) -> Interval:
    """A row's mean and 95% interval of a metric; NaN for what the row lacks."""
    mean, low, high = (float(row.get(metric + end, math.nan)) for end in ("", *ENDS))
    return Interval(mean, low, high)


def varying(points: pd.DataFrame) -> list[str]:
    """The configuration fields that differ between points."""
    fields = [str(column) for column in points.columns if str(column).startswith("config/")]
    different = [field for field in fields if points[field].nunique(dropna=False) > 1]
    return [field.removeprefix("config/") for field in different]


def config_of(row: Mapping[Hashable, Any]) -> dict[str, Any]:
    """A row's configuration, by field."""
    return {
        str(column).removeprefix("config/"): value
        for column, value in row.items()
        if str(column).startswith("config/")
    }


def setting(value: object) -> str:
    """A field's value, short and as in study files: null where missing, `.inf` for infinity."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "null"
    if isinstance(value, float):
        return f"{value:.6g}".replace("inf", ".inf")
    return str(value)
