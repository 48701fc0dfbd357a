"""Axes of metrics and swept fields, and points that lie on them with their intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from plotly.colors import sample_colorscale

from privnets.contract import Direction
from privnets.statistics.replicates import metric_range
from sweeps.analysis.pareto import Objectives
from sweeps.analysis.tables import INTERVAL_SUFFIXES, METRIC_BOUNDS, row_interval, select_records
from sweeps.analysis.text import (
    field_label,
    format_setting,
    is_boolean,
    label_setting,
    metric_label,
    shorten,
)
from sweeps.report.figures.traces import Description, Errors, axis, trace

KNOB_RATIO = 10.0
"""Ratio of the ends of a positive knob from which its axis is logarithmic."""

_PADDING = 0.05
_MIN_USUAL, _FAR = 4, 30.0
_MAX_TICKS, _MAX_VALUE_TICKS = 5, 8
_BETTER: dict[Direction, str] = {"min": "smaller is better", "max": "larger is better"}


def axis_pairs(objectives: Objectives) -> list[tuple[str, str]]:
    """Pairs of objectives for the axes x and y: utility lies on x, privacy on y."""
    ordered = sorted(objectives, key=lambda metric: metric.startswith("privacy/"))
    return list(itertools.combinations(ordered, 2))


def metric_axis(
    points: pd.DataFrame,
    metric: str,
    objectives: Objectives,
    levels: Sequence[float] = (),
    pale: Sequence[float] = (),
) -> Description:
    """Axis of a metric that holds all points with their intervals, and other levels.

    Theoretical bounds and the values of `pale` points, which a search did not confirm, may lie far
    from the points; see `view_limits`.
    """
    values = points[metric].to_numpy(dtype=np.float64)
    log = is_wide(_without_outliers(values[np.isfinite(values)]))
    below, above = interval_errors(points, metric) or (np.zeros_like(values),) * 2
    ends = np.concatenate([values - below, values + above])
    bounds = points[points.columns.intersection([METRIC_BOUNDS.get(metric, "")])]
    far = np.concatenate([pale, bounds.to_numpy(dtype=np.float64).ravel()])
    limits = view_limits(values, ends, far, levels, log=log)
    if limits is not None and not log:
        margin, (least, greatest) = _PADDING * (limits[1] - limits[0]), metric_range(metric)
        limits = max(limits[0], least - margin), min(limits[1], greatest + margin)
    better = f"\n({_BETTER[objectives[metric]]})" if metric in objectives else ""
    return axis(f"{metric_label(metric)}{better}", log=log, limits=limits)


def view_limits(
    values: NDArray[np.float64],
    ends: ArrayLike = (),
    far: ArrayLike = (),
    levels: ArrayLike = (),
    *,
    log: bool = False,
) -> tuple[float, float] | None:
    """Limits with padding of an axis; None without a finite value.

    They hold the values but for outliers, and the levels. Ends of intervals and other far
    numbers are shown as far beyond as the values are spread, or twice as far as most ends reach.
    """
    parts = [np.asarray(part, dtype=np.float64) for part in (values, ends, far, levels)]
    if log:
        limits = view_limits(*(np.log10(part[part > 0]) for part in parts))
        return limits and (10 ** limits[0], 10 ** limits[1])
    known, reach, others, lines = (part[np.isfinite(part)] for part in parts)
    if not len(known):
        return None
    known = np.concatenate([_without_outliers(known), lines])
    first, last = float(known.min()), float(known.max())
    beyond = np.sort(np.maximum(first - reach, reach - last).clip(0))
    usual = beyond[(len(beyond) - 1) // 2] if len(beyond) else 0.0
    spread = max(last - first, 2 * float(usual)) or math.inf
    reach = np.concatenate([reach, others])
    low = max(float(reach.min(initial=first)), first - spread)
    high = min(float(reach.max(initial=last)), last + spread)
    padding = _PADDING * (high - low) or 1e-3 * max(1.0, abs(high))
    return low - padding, high + padding


def _without_outliers(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values without a tenth, at least one, if these lie far from all the others."""
    ordered = np.sort(values)
    kept = len(values) - max(1, len(values) // 10)
    if kept < _MIN_USUAL:
        return values
    widths = ordered[kept - 1 :] - ordered[: len(values) - kept + 1]
    start = int(widths.argmin())
    is_far = 0 < _FAR * widths[start] < np.ptp(values)
    return ordered[start : start + kept] if is_far else values


def is_wide(values: NDArray[np.float64], ratio: float = 100.0) -> bool:
    """Whether values are all positive and span a ratio, which needs a logarithmic axis."""
    finite = values[np.isfinite(values)]
    return bool(len(finite) and finite.min() > 0 and finite.max() >= ratio * finite.min())


def field_positions(
    values: pd.Series[Any], name: str, *, log: bool
) -> tuple[pd.Series[float], Description, bool]:
    """Positions of a field's values on an axis, the axis, and whether the values are ordered.

    Numbers lie at their value, or by rank if one is infinite. On a logarithmic axis zeros lie a
    decade left of the smallest positive value. Values that are not all numbers are categories.
    """
    label = field_label(name)
    numbers = pd.to_numeric(values, errors="coerce").astype("float64")
    is_ordered = not (numbers.isna().any() or values.map(is_boolean).any())
    if not is_ordered or np.isinf(numbers).any():
        ordered = list(dict.fromkeys(values.loc[numbers.sort_values().index].map(format_setting)))
        ranks = values.map(format_setting).map(ordered.index).astype("float64")
        labels = [label_setting(math.inf) if one == ".inf" else shorten(one) for one in ordered]
        ends = -0.5, len(labels) - 0.5
        return ranks, axis(label, limits=ends, ticks=(range(len(labels)), labels)), is_ordered
    positive = np.array(numbers[numbers > 0])
    log = (log or is_wide(positive, KNOB_RATIO)) and len(positive) > 0 and not (numbers < 0).any()
    positions, ticks = numbers, None
    if log:
        zero = float(positive.min()) / 10
        positions = numbers.where(numbers > 0, zero)
        if numbers.nunique() <= _MAX_VALUE_TICKS:
            places = [float(position) for position in sorted(positions.unique())]
            ticks = places, [format_setting(value) for value in sorted(numbers.unique())]
        elif len(positive) < len(numbers):
            low, high = math.floor(math.log10(zero * 10)), math.ceil(math.log10(positive.max()))
            step = max(1, math.ceil((high - low) / _MAX_TICKS))
            decades = [10.0**power for power in range(low, high + 1, step)]
            ticks = [zero, *decades], ["0", *(f"{decade:g}" for decade in decades)]
    limits = view_limits(np.array(positions), log=log)
    return positions, axis(label, log=log, limits=limits, ticks=ticks), True


def interval_errors(points: pd.DataFrame, metric: str) -> Errors | None:
    """Lengths of the metric's 95% interval below and above the mean; 0 where undefined."""
    if not {f"{metric}{suffix}" for suffix in INTERVAL_SUFFIXES} <= set(points.columns):
        return None
    mean, low, high = (
        points[metric + suffix].to_numpy(dtype=np.float64) for suffix in ("", *INTERVAL_SUFFIXES)
    )
    return np.nan_to_num(mean - low), np.nan_to_num(high - mean)


def points_trace(
    points: pd.DataFrame, x: str, y: str, hover: Sequence[str] | None, name: str, **style: Any
) -> Description:
    """Points at two columns with the intervals of both, which pages link with other figures."""
    errors = interval_errors(points, x), interval_errors(points, y)
    own = trace(points[x], points[y], name, hover=hover, **{"errors": errors, **style})
    return own | ({"customdata": points.index.tolist()} if len(points) else {})


def hover_texts(points: pd.DataFrame, fields: Sequence[str], metrics: Sequence[str]) -> list[str]:
    """Each point in words: metrics with intervals, configuration, point id."""
    texts = []
    for row in select_records(points, fields, metrics):
        measured = [f"{metric_label(m)}: {row_interval(row, m).plus_minus}" for m in metrics]
        config = [f"{field_label(f)} = {format_setting(row.get(f'config/{f}'))}" for f in fields]
        texts.append("\n".join([*measured, *config, f"point {row['point_id']}"]))
    return texts


def ramp(count: int) -> list[str]:
    """Colors of one scale in order, as `#rrggbb`, legible on light and dark pages."""
    colors = sample_colorscale("Plasma", np.linspace(0.27, 0.82, count), colortype="tuple")
    return ["#" + "".join(f"{round(255 * part):02x}" for part in color) for color in colors]
