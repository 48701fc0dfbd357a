"""Reading a table of points: what tells its rows apart, and their intervals."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sweeps.analysis.statistics import Interval

BOUNDS: Mapping[str, str] = {"privacy/membership_advantage": "bound/advantage"}
"""Metric to the one that theory bounds it by."""

FLOORS: Mapping[str, str] = {
    "privacy/attacker_balanced_accuracy": "floor/attacker_balanced_accuracy"
}
"""Attacker's metric to what an attacker reaches who never sees the release."""

RAW: Mapping[str, str | float] = {
    "privacy/attacker_balanced_accuracy": "baseline/attacker_balanced_accuracy",
    "utility/accuracy": "baseline/utility_accuracy",
    "utility/normalized_error": 0.0,
    "utility/censored": 0.0,
}
"""Metric to its value where the data are released as they are: another metric, or a constant."""

UNITS: Mapping[str, str] = {
    "privacy/leakage": "nats",
    "privacy/alpha_leakage": "nats",
    "privacy/rho_kl": "nats",
    "privacy/rho_mi": "nats",
    "privacy/worst_record_rho_kl": "nats",
    "utility/censored": "nats",
}
"""Metric to its unit; shares and relative errors have none."""

_LONGEST = 32

ENDS = (".ci_low", ".ci_high")


def interval(row: Mapping[Hashable, Any], metric: str) -> Interval:
    """A row's mean and 95% interval of a metric; NaN for what the row lacks."""
    mean, low, high = (float(row.get(metric + end, math.nan)) for end in ("", *ENDS))
    return Interval(mean, low, high)


def records(
    points: pd.DataFrame, fields: Sequence[str], metrics: Sequence[str]
) -> list[dict[Hashable, Any]]:
    """Rows as mappings of just these fields and metrics, the latter with their intervals.

    A table of many metrics is a hundred times as wide as what most readers look at.
    """
    wanted = ["point_id", *(f"config/{field}" for field in fields)]
    wanted += [metric + end for metric in metrics for end in ("", *ENDS)]
    there = [column for column in dict.fromkeys(wanted) if column in points]
    return points[there].to_dict("records")


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


def raw_value(row: Mapping[Hashable, Any], metric: str) -> Interval:
    """The metric on raw data, as the row has it; NaN where that is unknown."""
    found = RAW.get(metric, math.nan)
    return interval(row, found) if isinstance(found, str) else Interval(found, found, found)


def size(value: object) -> float:
    """A setting as a number to order and place it by; NaN where it is none."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        return math.nan
    return float(value)


def shortened(text: str) -> str:
    """A text that leaves room for a figure beside it."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def setting(value: object) -> str:
    """A field's value, short and as in study files: null where missing, `.inf` for infinity."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "null"
    if isinstance(value, float):
        return f"{value:.6g}".replace("inf", ".inf")
    return str(value).lower() if isinstance(value, bool | np.bool_) else str(value)
