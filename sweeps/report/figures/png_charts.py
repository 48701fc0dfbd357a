"""Charts and images drawn by Matplotlib, for PNG files.

Names and values are shown as they are: no text is parsed as a formula.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.dates import DateFormatter, DayLocator
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sweeps.report.figures.charts import (
    GREY,
    MAX_DETAILED_POINTS,
    Chart,
    ChartAxis,
    ChartPanel,
    ChartSeries,
)

_DOTS_PER_INCH = 150
_PIXELS_PER_INCH = 90
_PANEL_WIDTH = 5.6
_SIDE_LEGEND_WIDTH = 2.6
_MARKERS = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "triangle-up": "^",
    "triangle-down": "v",
    "pentagon": "p",
    "star": "*",
    "x": "x",
    "cross": "P",
}
_LINES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-.", "": "none"}
_STEPS = {"": "default", "hv": "steps-post", "vh": "steps-pre"}


ImageRow = tuple[str, NDArray[np.float64], Sequence[str], float]


def chart_png(chart: Chart) -> bytes:
    """A chart as the bytes of a PNG file."""
    return figure_png(draw_chart(chart))


def figure_png(figure: Figure) -> bytes:
    """A Matplotlib figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DOTS_PER_INCH)
    return buffer.getvalue()


def draw_chart(chart: Chart) -> Figure:
    """A chart as a Matplotlib figure with one legend."""
    rows, columns = chart.shape
    height = chart.panel_height / _PIXELS_PER_INCH
    width = height if chart.panels[0].square else _PANEL_WIDTH
    if chart.columns == 1:
        width = 2 * _PANEL_WIDTH
    side = _SIDE_LEGEND_WIDTH if chart.side_legend else 0.0
    size = (columns * width + side, rows * height + 0.9)
    figure = Figure(figsize=size, layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    legend: dict[str, Any] = {}
    for panel, panel_axes in zip(chart.panels, axes, strict=False):
        _draw_panel(panel_axes, panel, legend)
    for unused in axes[len(chart.panels) :]:
        unused.set_visible(False)
    box = figure.legend(
        list(legend.values()),
        list(legend),
        loc="outside right upper" if chart.side_legend else "outside upper center",
        ncols=1 if chart.side_legend else max(2, 2 * columns),
        frameon=False,
        fontsize="small",
    )
    for text in box.get_texts():
        text.set_parse_math(False)
    return figure


def draw_image_rows(rows: Sequence[ImageRow]) -> Figure:
    """Rows of grey images, dark ink on white.

    Args:
        rows: Caption, images in [0, 1] of shape [m, h, w], labels above them, and space above the
            row in inches.
    """
    cell, letter, margin_right = 0.48, 0.053, 0.1
    longest = max(len(line) for caption, *_ in rows for line in caption.splitlines())
    margin = 0.3 + letter * longest
    width = margin + cell * max(len(images) for _, images, _, _ in rows) + margin_right
    height = cell * len(rows) + sum(gap for *_, gap in rows) + margin_right
    figure, top = Figure(figsize=(width, height)), height
    for caption, images, labels, gap in rows:
        top -= gap + cell
        extent = (cell * len(images) / width, 0.96 * cell / height)
        _draw_images(figure.add_axes((margin / width, top / height, *extent)), images, labels)
        position = ((margin - 0.1) / width, (top + cell / 2) / height)
        figure.text(*position, caption, ha="right", va="center", fontsize=6.5, parse_math=False)
    return figure


def _draw_panel(axes: Axes, panel: ChartPanel, legend: dict[str, Any]) -> None:
    for axis, set_scale, set_limits, set_label in (
        (panel.x, axes.set_xscale, axes.set_xlim, axes.set_xlabel),
        (panel.y, axes.set_yscale, axes.set_ylim, axes.set_ylabel),
    ):
        if axis.log:
            set_scale("log")
        if axis.limits is not None:
            set_limits(*axis.limits)
        set_label(axis.label, parse_math=False)
    for series in panel.series:
        handle = _draw_series(axes, series)
        if series.name and handle is not None:
            legend.setdefault(series.name, handle)
    _set_ticks(axes, panel.x)
    axes.set_title(panel.title, fontsize="small", parse_math=False)
    if panel.square:
        axes.set_aspect("equal", adjustable="datalim" if panel.x.limits is None else "box")
    axes.grid(alpha=0.25)


def _set_ticks(axes: Axes, axis: ChartAxis) -> None:
    if axis.ticks is not None:
        axes.set_xticks(list(axis.ticks[0]), list(axis.ticks[1]), parse_math=False)
        axes.minorticks_off()
    if axis.date:
        axes.xaxis.set_major_locator(DayLocator())  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_formatter(DateFormatter("%a %d %b"))  # type: ignore[no-untyped-call]


def _draw_series(axes: Axes, series: ChartSeries) -> Any:
    if series.fill:
        return _draw_polygons(axes, series)
    points = axes.errorbar(
        series.x,
        series.y,
        xerr=series.x_errors if len(series.x) <= MAX_DETAILED_POINTS else None,
        yerr=series.y_errors if len(series.x) <= MAX_DETAILED_POINTS else None,
        fmt=_MARKERS.get(series.symbol, "none") if series.symbol else "",
        linestyle=_LINES[series.line],
        drawstyle=_STEPS[series.step],
        color=series.color,
        ecolor=GREY if series.scale is not None else series.color,
        markersize=0.65 * series.size,
        markerfacecolor="none" if series.hollow is True else series.color,
        linewidth=0.8 * series.width,
        elinewidth=0.8,
        alpha=series.opacity,
    )
    if series.scale is not None:
        _draw_color_scale(axes, series)
    elif not isinstance(series.hollow, bool):
        _draw_hollow(axes, series, list(series.hollow))
    return points


def _draw_polygons(axes: Axes, series: ChartSeries) -> Any:
    x, y = np.asarray(series.x), np.asarray(series.y, dtype=np.float64)
    style: dict[str, Any] = {"color": series.color, "alpha": 0.25, "linewidth": 0}
    if series.fill == "hatch":
        style = {"facecolor": "none", "edgecolor": series.color, "hatch": "////", "linewidth": 0}
    parts = np.split(np.arange(len(y)), np.flatnonzero(np.isnan(y)))
    corners = [part[~np.isnan(y[part])] for part in parts]
    patches = [axes.fill(x[c], y[c], **style)[0] for c in corners if len(c)]
    return patches[0] if patches else None


def _draw_color_scale(axes: Axes, series: ChartSeries) -> None:
    scale = series.scale
    assert scale is not None
    ends = scale.values.min(), scale.values.max()
    norm = LogNorm(*ends) if scale.log else Normalize(*ends)
    marks = axes.scatter(series.x, series.y, c=scale.values, cmap="plasma", norm=norm, zorder=3)
    axes.figure.colorbar(marks, ax=axes).set_label(scale.label, parse_math=False)


def _draw_hollow(axes: Axes, series: ChartSeries, hollow: list[bool]) -> None:
    x, y = np.asarray(series.x)[hollow], np.asarray(series.y)[hollow]
    style: dict[str, Any] = {
        "mec": series.color,
        "mfc": "white",
        "ms": 0.65 * series.size,
        "zorder": 4,
    }
    axes.plot(x, y, _MARKERS[series.symbol], **style)


def _draw_images(axes: Axes, images: NDArray[np.float64], labels: Sequence[str]) -> None:
    shades = colormaps["gray_r"].with_extremes(bad="#adb5bd")
    image = axes.imshow(framed_row(images), cmap=shades, vmin=0, vmax=1, aspect="auto")
    image.set(extent=(0, len(images), 0, 1), interpolation="nearest")
    axes.set_axis_off()
    for column, label in enumerate(labels):
        axes.text(column + 0.5, 1.06, label, fontsize=7, ha="center", va="bottom")


def framed_row(images: NDArray[np.float64], pixels: int = 84) -> NDArray[np.float64]:
    """Images of shape [m, h, w] side by side, enlarged, each in a thin frame of NaN."""
    factor = max(1, -(-pixels // max(images.shape[1:])))
    large = images.repeat(factor, axis=1).repeat(factor, axis=2)
    large[:, [0, -1], :] = np.nan
    large[:, :, [0, -1]] = np.nan
    return np.concatenate(list(large), axis=1)
