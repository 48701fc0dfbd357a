"""Description of charts, independent of the library that draws them.

Each figure's data is prepared once as a `Chart`. `plotly_charts` draws it on pages, `png_charts` in
PNG files. All texts are plain: the drawing modules escape them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from plotly.colors import sample_colorscale

from privnets.contract import Direction
from privnets.statistics.replicates import metric_range
from sweeps.analysis.pareto import Objectives
from sweeps.analysis.tables import (
    INTERVAL_SUFFIXES,
    METRIC_BOUNDS,
    row_interval,
    select_records,
)
from sweeps.analysis.text import field_label, format_setting, metric_label

ORANGE, GREY, BLUE, PURPLE, RED = "#e8590c", "#7a848e", "#1c7ed6", "#9c6ade", "#c2255c"
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon")
DASHES = ("solid", "dash", "dot", "dashdot")
MAX_DETAILED_POINTS = 1000
"""A series of more points is drawn without intervals."""

FLOOR, BASELINE, BOUND = "floor: no release", "baseline: raw data", "bound: theory"
TRIVIAL = "floor: trivial model"
"""Names of reference values in every figure."""

SEARCHED = "searching, not confirmed"
"""Name of the points that a search tried, beside those that it confirmed."""

CUT, BEYOND = "interval goes on", "beyond the edge"
"""Names of the arrows at intervals that an edge cuts, and at points that lie beyond it."""

KNOB_RATIO = 10.0
"""Ratio of the ends of a positive knob from which its axis is logarithmic."""

Errors = tuple[NDArray[np.float64], NDArray[np.float64]]
_PADDING = 0.05
_MIN_USUAL, _FAR = 4, 30.0
_BETTER: dict[Direction, str] = {"min": "smaller is better", "max": "larger is better"}


@dataclass(frozen=True, slots=True, eq=False)
class ColorScale:
    """Numbers that color the points of a series, and their label."""

    values: NDArray[np.float64]
    label: str
    log: bool


@dataclass(frozen=True, slots=True, eq=False)
class ChartSeries:
    """Points of one panel that are drawn alike; sizes are in pixels, empty texts draw nothing.

    Attributes:
        x: Horizontal positions; datetimes on a date axis.
        y: Vertical positions; NaN interrupts a line.
        name: Legend entry; equal names have one entry.
        color: As `#rrggbb`.
        scale: Colors of single points; `color` is then that of their intervals.
        line: Dash of the line, by Plotly's name.
        step: Order of horizontal and vertical lines between points; empty for straight lines.
        symbol: Marker, by Plotly's name.
        hollow: Whether markers are hollow, for all or for each point.
        x_errors: Lengths of the interval left and right of each point.
        y_errors: Lengths of the interval below and above each point.
        hover: Text of each point; None shows its position, an empty list nothing.
        texts: Text beside each point; none if empty.
        texts_left: Whether texts stand at the left of points, not below at their right.
        places: Row of each point in the frame of all points, by which pages link figures.
        fill: Filling of the polygon through the points.
        hidden: Whether pages show it only once its name in the legend is clicked, and files never.
    """

    x: Any
    y: Any
    name: str = ""
    color: str = GREY
    scale: ColorScale | None = None
    line: str = ""
    step: Literal["", "hv", "vh"] = ""
    width: float = 1.5
    symbol: str = ""
    hollow: bool | Sequence[bool] = False
    size: float = 8
    x_errors: Errors | None = None
    y_errors: Errors | None = None
    hover: Sequence[str] | None = None
    texts: Sequence[str] = ()
    texts_left: bool = False
    places: Sequence[int] = ()
    fill: Literal["", "shade", "hatch"] = ""
    opacity: float = 1
    hidden: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ChartAxis:
    """Axis of a panel, with limits and ticks (positions, labels) in its own units."""

    label: str
    log: bool = False
    limits: tuple[float, float] | None = None
    ticks: tuple[Sequence[float], Sequence[str]] | None = None
    date: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ChartPanel:
    """Panel of a chart, its series in drawing order; `square` gives both axes one scale."""

    x: ChartAxis
    y: ChartAxis
    series: Sequence[ChartSeries]
    title: str = ""
    square: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Chart:
    """Panels, row by row, with one legend above or at the side; heights in pixels."""

    panels: Sequence[ChartPanel]
    columns: int = 2
    panel_height: int = 380
    side_legend: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        columns = min(self.columns, len(self.panels))
        return -(-len(self.panels) // columns), columns


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
) -> ChartAxis:
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
    return ChartAxis(f"{metric_label(metric)}{better}", log, limits)


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
        logs = [np.log10(part[part > 0]) for part in parts]
        limits = view_limits(logs[0], logs[1], logs[2], logs[3])
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


def interval_errors(points: pd.DataFrame, metric: str) -> Errors | None:
    """Lengths of the metric's 95% interval below and above the mean; 0 where undefined."""
    if not {f"{metric}{suffix}" for suffix in INTERVAL_SUFFIXES} <= set(points.columns):
        return None
    mean, low, high = (
        points[metric + suffix].to_numpy(dtype=np.float64) for suffix in ("", *INTERVAL_SUFFIXES)
    )
    return np.nan_to_num(mean - low), np.nan_to_num(high - mean)


def points_series(
    points: pd.DataFrame, x: str, y: str, hover: Sequence[str] | None, **style: Any
) -> ChartSeries:
    """Points at two columns, with the intervals of both."""
    x_errors, y_errors = interval_errors(points, x), interval_errors(points, y)
    return ChartSeries(
        points[x],
        points[y],
        x_errors=x_errors,
        y_errors=y_errors,
        hover=hover,
        places=points.index.tolist(),
        **style,
    )


def cut_ends(panel: ChartPanel) -> Iterator[ChartSeries]:
    """Arrows at the edges of a panel where intervals go on beyond its limits."""
    for series in panel.series:
        if len(series.x) > MAX_DETAILED_POINTS:
            continue
        yield from _points_beyond(panel, series)
        for is_across, errors, axis in (
            (True, series.x_errors, panel.x),
            (False, series.y_errors, panel.y),
        ):
            if errors is None or axis.limits is None:
                continue
            means = np.asarray(series.x if is_across else series.y, dtype=np.float64)
            others = np.asarray(series.y if is_across else series.x)
            for end, edge, symbol in zip(
                (means - errors[0] < axis.limits[0], means + errors[1] > axis.limits[1]),
                axis.limits,
                ("triangle-left", "triangle-right")
                if is_across
                else ("triangle-down", "triangle-up"),
                strict=True,
            ):
                edges, places = np.full(end.sum(), edge), others[end]
                x, y = (edges, places) if is_across else (places, edges)
                if len(edges):
                    style: dict[str, Any] = {"symbol": symbol, "size": 7, "hover": []}
                    yield ChartSeries(x, y, CUT, series.color, **style)


def _points_beyond(panel: ChartPanel, series: ChartSeries) -> Iterator[ChartSeries]:
    """Arrows at the edge for markers beyond it; points that were only searched have none."""
    if not series.symbol or series.name.startswith(SEARCHED) or panel.x.date:
        return
    x, y = (np.asarray(each, dtype=np.float64) for each in (series.x, series.y))
    edges = [axis.limits or (-math.inf, math.inf) for axis in (panel.x, panel.y)]
    for is_beyond, symbol in (
        (x < edges[0][0], "triangle-left"),
        (x > edges[0][1], "triangle-right"),
        (y < edges[1][0], "triangle-down"),
        (y > edges[1][1], "triangle-up"),
    ):
        if is_beyond.any():
            yield ChartSeries(
                x[is_beyond].clip(*edges[0]),
                y[is_beyond].clip(*edges[1]),
                BEYOND,
                series.color,
                symbol=symbol,
                hollow=True,
                hover=list(itertools.compress(series.hover or (), is_beyond)),
            )


def is_in_view(panel: ChartPanel, series: ChartSeries) -> bool:
    """Whether some point of a series, or of a line through it, may lie within a panel's axes."""
    for axis, values in ((panel.x, series.x), (panel.y, series.y)):
        if axis.limits is not None and not axis.date:
            known = np.asarray(values, dtype=np.float64)
            known = known[np.isfinite(known)]
            if len(known) and (known.max() < axis.limits[0] or known.min() > axis.limits[1]):
                return False
    return True


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


def obfuscation_color(place: int) -> str:
    """Color of a trivial obfuscation's curve, which differs from those of learned ones."""
    return (BLUE, "#2b8a3e", "#0b7285")[place % 3]


def legend_entry(name: str, **style: Any) -> ChartSeries:
    """A series without points that explains a symbol in the legend."""
    return ChartSeries([math.nan], [math.nan], name, **{"hover": [], **style})
