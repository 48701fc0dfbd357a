"""Description of charts, independent of the library that draws them.

Each figure's data is prepared once as a `Chart`. `plotly_charts` draws it on pages, `png_charts` in
PNG files. All texts are plain: the drawing modules escape them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from plotly.colors import sample_colorscale

from sweeps.analysis.formatting import format_setting
from sweeps.analysis.pareto import Direction, Objectives
from sweeps.analysis.tables import (
    INTERVAL_SUFFIXES,
    METRIC_UNITS,
    Row,
    row_interval,
    select_records,
)

ORANGE, GREY, BLUE, PURPLE, RED = "#e8590c", "#7a848e", "#1c7ed6", "#9c6ade", "#c2255c"
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon")
DASHES = ("solid", "dash", "dot", "dashdot")
MAX_DETAILED_POINTS = 1000
"""A series of more points is drawn by WebGL and without intervals."""

Errors = tuple[NDArray[np.float64], NDArray[np.float64]]
_LOG_RATIO = 100.0
_PADDING = 0.05
_BETTER: dict[Direction, str] = {"min": "smaller is better", "max": "larger is better"}


@dataclass(frozen=True, slots=True, eq=False)
class ColorScale:
    """Numbers that color the points of a series.

    Attributes:
        values: A number per point.
        label: Name of the numbers.
        log: Whether colors follow the logarithm.
    """

    values: NDArray[np.float64]
    label: str
    log: bool


@dataclass(frozen=True, slots=True, eq=False)
class ChartSeries:
    """Points of one panel that are drawn alike.

    Attributes:
        x: Horizontal positions; datetimes on a date axis.
        y: Vertical positions; NaN interrupts a line.
        name: Legend entry; empty for none. Equal names have one entry.
        color: As `#rrggbb`.
        scale: Colors of single points in place of `color`.
        line: Dash of the line; empty for points only.
        step: Shape of a line in steps: `hv` or `vh`; empty for straight.
        width: Line width in pixels.
        symbol: Marker by Plotly's name; empty for a line only.
        hollow: Whether markers are hollow, for all or for each point.
        size: Marker size in pixels.
        x_errors: Lengths of the interval left and right of each point.
        y_errors: Lengths of the interval below and above each point.
        hover: Text of each point; None shows its position, an empty list nothing.
        fill: Fills the polygon through the points, with a shade or a hatch.
        opacity: In (0, 1].
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
    fill: Literal["", "shade", "hatch"] = ""
    opacity: float = 1


@dataclass(frozen=True, slots=True, eq=False)
class ChartAxis:
    """Axis of a panel.

    Attributes:
        label: Title.
        log: Whether it is logarithmic.
        limits: Range in the axis's own units; None to fit the data.
        ticks: Positions and labels of ticks; None for the library's own.
        date: Whether positions are datetimes.
    """

    label: str
    log: bool = False
    limits: tuple[float, float] | None = None
    ticks: tuple[Sequence[float], Sequence[str]] | None = None
    date: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ChartPanel:
    """Panel of a chart.

    Attributes:
        x: Horizontal axis.
        y: Vertical axis.
        series: In drawing order.
        title: Text above the panel.
        square: Whether both axes have one scale.
    """

    x: ChartAxis
    y: ChartAxis
    series: Sequence[ChartSeries]
    title: str = ""
    square: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Chart:
    """Panels with one legend.

    Attributes:
        panels: Row by row.
        columns: Panels per row.
        panel_height: Height of a panel in pixels.
        side_legend: Whether the legend is at the right, not above.
    """

    panels: Sequence[ChartPanel]
    columns: int = 2
    panel_height: int = 380
    side_legend: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        columns = min(self.columns, len(self.panels))
        return -(-len(self.panels) // columns), columns


def metric_axis(
    points: pd.DataFrame,
    metric: str,
    objectives: Objectives,
    levels: Sequence[float] = (),
) -> ChartAxis:
    """Axis of a metric that shows all points, and intervals up to the points' own range.

    Intervals of few replicates may be much wider than the range of the points.

    Args:
        points: Points to show.
        metric: Metric of the axis.
        objectives: Metric to `min` or `max`, for the title.
        levels: Other values of the metric to show.
    """
    values = points[metric].to_numpy(dtype=np.float64)
    log = is_wide(values)
    below, above = interval_errors(points, metric) or (np.zeros_like(values),) * 2
    visible = _visible(np.append(values, levels), log=log)
    ends = _visible(np.concatenate([values - below, values + above]), log=log)
    limits = view_limits(visible, ends, log=log)
    if limits is not None and metric.endswith("accuracy"):
        margin = _PADDING * (limits[1] - limits[0])
        limits = max(limits[0], -margin), min(limits[1], 1 + margin)
    return ChartAxis(metric_label(metric, objectives), log, limits)


def _visible(values: NDArray[np.float64], *, log: bool) -> NDArray[np.float64]:
    finite = values[np.isfinite(values)]
    return finite[finite > 0] if log else finite


def view_limits(
    values: NDArray[np.float64], ends: NDArray[np.float64], *, log: bool = False
) -> tuple[float, float] | None:
    """Limits of an axis: every value, and ends of intervals up to the values' range beyond them.

    Args:
        values: Finite numbers to show, positive on a logarithmic axis.
        ends: Finite ends of their intervals.
        log: Whether the axis is logarithmic.

    Returns:
        Limits with padding; None without a value.
    """
    if not len(values):
        return None
    if log:
        low, high = view_limits(np.log10(values), np.log10(ends)) or (0.0, 0.0)
        return 10**low, 10**high
    first, last = float(values.min()), float(values.max())
    spread = last - first or math.inf
    low = max(min(first, ends.min(initial=first)), first - spread)
    high = min(max(last, ends.max(initial=last)), last + spread)
    padding = max(_PADDING * (high - low), 1e-3 * max(1.0, abs(high)) if high == low else 0.0)
    return low - padding, high + padding


def is_wide(values: NDArray[np.float64]) -> bool:
    """Whether values are all positive and span two decades, which needs a logarithmic axis."""
    finite = values[np.isfinite(values)]
    return bool(len(finite) and finite.min() > 0 and finite.max() >= _LOG_RATIO * finite.min())


def metric_label(metric: str, objectives: Objectives) -> str:
    """A metric with its unit, and the better direction of an objective in a second line."""
    unit = METRIC_UNITS.get(metric)
    name = f"{metric}, {unit}" if unit else metric
    direction = objectives.get(metric)
    return f"{name}\n({_BETTER[direction]})" if direction else name


def interval_errors(points: pd.DataFrame, metric: str) -> Errors | None:
    """Lengths of the metric's 95% interval below and above the mean; None without intervals.

    An undefined interval has length 0.
    """
    if not {f"{metric}{suffix}" for suffix in INTERVAL_SUFFIXES} <= set(points.columns):
        return None
    mean = points[metric].to_numpy(dtype=np.float64)
    low, high = (points[metric + s].to_numpy(dtype=np.float64) for s in INTERVAL_SUFFIXES)
    return np.nan_to_num(mean - low), np.nan_to_num(high - mean)


def points_series(
    points: pd.DataFrame, x: str, y: str, hover: Sequence[str] | None, **style: Any
) -> ChartSeries:
    """Points at two columns, with the intervals of both."""
    x_errors, y_errors = interval_errors(points, x), interval_errors(points, y)
    return ChartSeries(
        points[x], points[y], x_errors=x_errors, y_errors=y_errors, hover=hover, **style
    )


def hover_texts(points: pd.DataFrame, fields: Sequence[str], metrics: Sequence[str]) -> list[str]:
    """Each point in words: metrics with intervals, configuration, point id."""
    return [_hover_text(row, fields, metrics) for row in select_records(points, fields, metrics)]


def _hover_text(row: Row, fields: Sequence[str], metrics: Sequence[str]) -> str:
    measured = [f"{metric}: {row_interval(row, metric).plus_minus}" for metric in metrics]
    config = [f"{name} = {format_setting(row.get(f'config/{name}'))}" for name in fields]
    return "\n".join([*measured, *config, f"point {row['point_id']}"])


def ramp(count: int) -> list[str]:
    """Colors of one scale in order, as `#rrggbb`, legible on light and dark pages."""
    shares = np.linspace(0.27, 0.82, count) if count > 1 else [0.27]
    colors = sample_colorscale("Plasma", shares, colortype="tuple")
    return ["#" + "".join(f"{round(255 * part):02x}" for part in color) for color in colors]


def legend_entry(name: str, **style: Any) -> ChartSeries:
    """A series without points that explains a symbol in the legend."""
    return ChartSeries([math.nan], [math.nan], name, hover=[], **style)
