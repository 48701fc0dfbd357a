"""Charts and images drawn by Matplotlib, for PNG, SVG and PDF files.

No text is parsed as a formula. Texts of SVG and PDF files stay texts, to be searched and edited.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.dates import DateFormatter, DayLocator
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sweeps.report.figures.charts import (
    MAX_DETAILED_POINTS,
    Chart,
    ChartPanel,
    ChartSeries,
    ColorScale,
    cut_ends,
    is_in_view,
)

ImageRow = tuple[str, NDArray[np.float64], Sequence[str], float]
"""Caption, images in [0, 1] of shape [m, h, w], labels above, and space above in inches."""

ImageKind = Literal["png", "svg", "pdf"]

IMAGE_KINDS: Mapping[str, ImageKind] = {".png": "png", ".svg": "svg", ".pdf": "pdf"}

_DOTS_PER_INCH, _PIXELS_PER_INCH = 150, 90
_PANEL_WIDTH, _SIDE_LEGEND_WIDTH, _LEGEND_LETTERS = 5.6, 2.6, 32
_IMAGE_SIZE, _LETTER_WIDTH, _IMAGE_PIXELS = 0.48, 0.053, 84
_MARKERS = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "triangle-up": "^",
    "triangle-down": "v",
    "triangle-left": "<",
    "triangle-right": ">",
    "pentagon": "p",
    "star": "*",
    "x": "x",
    "cross": "P",
    "": "",
}
_LINES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-.", "": "none"}
_STEPS = {"": "default", "hv": "steps-post", "vh": "steps-pre"}


def figure_png(figure: Figure) -> bytes:
    """A Matplotlib figure as the bytes of a PNG file."""
    return figure_file(figure, "png")


@rc_context({"svg.fonttype": "none", "pdf.fonttype": 42, "svg.hashsalt": "sweeps"})
def figure_file(figure: Figure, kind: ImageKind) -> bytes:
    """A Matplotlib figure as the bytes of a file; equal figures give equal files."""
    buffer = io.BytesIO()
    dates = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    figure.savefig(buffer, format=kind, dpi=_DOTS_PER_INCH, metadata=dates[kind])
    return buffer.getvalue()


@rc_context({"text.parse_math": False})
def draw_chart(chart: Chart) -> Figure:
    """A chart as a Matplotlib figure with one legend."""
    rows, columns = chart.shape
    height = chart.panel_height / _PIXELS_PER_INCH
    width = height if chart.panels[0].square else _PANEL_WIDTH * (2 if chart.columns == 1 else 1)
    side = _SIDE_LEGEND_WIDTH if chart.side_legend else 0.0
    figure = Figure(figsize=(columns * width + side, rows * height + 0.9), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    legend: dict[str, Any] = {}
    for panel, panel_axes in zip(chart.panels, axes, strict=False):
        _draw_panel(panel_axes, panel, legend)
    for unused in axes[len(chart.panels) :]:
        unused.set_visible(False)
    figure.legend(
        list(legend.values()),
        [textwrap.fill(name, _LEGEND_LETTERS) if chart.side_legend else name for name in legend],
        loc="outside right upper" if chart.side_legend else "outside upper center",
        ncols=1 if chart.side_legend else max(2, 2 * columns),
        frameon=False,
        fontsize="small",
    )
    return figure


@rc_context({"text.parse_math": False})
def draw_image_rows(rows: Sequence[ImageRow]) -> Figure:
    """Rows of grey images, dark ink on white, with captions at the left."""
    margin = 0.3 + _LETTER_WIDTH * max(len(line) for row in rows for line in row[0].splitlines())
    width = margin + _IMAGE_SIZE * max(len(images) for _, images, _, _ in rows) + 0.1
    height = _IMAGE_SIZE * len(rows) + sum(space for *_, space in rows) + 0.1
    figure, top = Figure(figsize=(width, height)), height
    for caption, images, labels, space in rows:
        top -= space + _IMAGE_SIZE
        extent = (_IMAGE_SIZE * len(images) / width, 0.96 * _IMAGE_SIZE / height)
        _draw_images(figure.add_axes((margin / width, top / height, *extent)), images, labels)
        position = ((margin - 0.1) / width, (top + _IMAGE_SIZE / 2) / height)
        figure.text(*position, caption, ha="right", va="center", fontsize=6.5)
    return figure


def _draw_panel(axes: Axes, panel: ChartPanel, legend: dict[str, Any]) -> None:
    """Draws a panel and enters its series into the legend."""
    axes.set(xlabel=panel.x.label, ylabel=panel.y.label)
    axes.set_title(panel.title, fontsize="small")
    for axis, name in ((panel.x, "x"), (panel.y, "y")):
        if axis.log:
            axes.set(**{f"{name}scale": "log"})
        if axis.limits is not None:
            axes.set(**{f"{name}lim": axis.limits})
    for series in (*panel.series, *cut_ends(panel)):
        if series.hidden:
            continue
        handle = _draw_polygons(axes, series) if series.fill else _draw_points(axes, series)
        if series.name and is_in_view(panel, series):
            legend.setdefault(series.name, handle)
    for axis, set_ticks in ((panel.x, axes.set_xticks), (panel.y, axes.set_yticks)):
        if axis.ticks is not None:
            set_ticks(list(axis.ticks[0]), list(axis.ticks[1]), parse_math=False)
            axes.minorticks_off()
    if panel.x.date:
        axes.xaxis.set_major_locator(DayLocator())  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_formatter(DateFormatter("%a %d %b"))  # type: ignore[no-untyped-call]
    if panel.square:
        axes.set_aspect("equal", adjustable="datalim" if panel.x.limits is None else "box")
    axes.grid(alpha=0.25)


def _draw_points(axes: Axes, series: ChartSeries) -> Any:
    detailed = len(series.x) <= MAX_DETAILED_POINTS
    handle = axes.errorbar(
        series.x,
        series.y,
        xerr=series.x_errors if detailed else None,
        yerr=series.y_errors if detailed else None,
        fmt=_MARKERS[series.symbol],
        linestyle=_LINES[series.line],
        drawstyle=_STEPS[series.step],
        color=series.color,
        markersize=0.65 * series.size,
        markerfacecolor="none" if series.hollow is True else series.color,
        linewidth=0.8 * series.width,
        elinewidth=0.8,
        alpha=series.opacity,
    )
    style: dict[str, Any] = {"ha": "right", "va": "center"} if series.texts_left else {"va": "top"}
    place = (-6, 0) if series.texts_left else (4, -4)
    for x, y, text in zip(series.x, series.y, series.texts, strict=False):
        style |= {"fontsize": 7, "color": series.color, "textcoords": "offset points"}
        axes.annotate(text, (x, y), place, **style)
    if series.scale is not None:
        _draw_color_scale(axes, series, series.scale)
    elif not isinstance(series.hollow, bool):
        x, y = (np.asarray(values)[list(series.hollow)] for values in (series.x, series.y))
        size = 0.65 * series.size
        axes.plot(x, y, _MARKERS[series.symbol], mec=series.color, mfc="white", ms=size, zorder=4)
    return handle


def _draw_polygons(axes: Axes, series: ChartSeries) -> Any:
    x, y = np.asarray(series.x), np.asarray(series.y, dtype=np.float64)
    style: dict[str, Any] = {"color": series.color, "alpha": 0.25, "linewidth": 0}
    if series.fill == "hatch":
        style = {"facecolor": "none", "edgecolor": series.color, "hatch": "////", "linewidth": 0}
    patches = []
    for part in np.split(np.arange(len(y)), np.flatnonzero(np.isnan(y))):
        corners = part[~np.isnan(y[part])]
        patches += axes.fill(x[corners], y[corners], **style)
    return patches[0]


def _draw_color_scale(axes: Axes, series: ChartSeries, scale: ColorScale) -> None:
    ends = scale.values.min(), scale.values.max()
    norm = LogNorm(*ends) if scale.log else Normalize(*ends)
    marks = axes.scatter(series.x, series.y, c=scale.values, cmap="plasma", norm=norm, zorder=3)
    axes.figure.colorbar(marks, ax=axes).set_label(scale.label)


def _draw_images(axes: Axes, images: NDArray[np.float64], labels: Sequence[str]) -> None:
    factor = max(1, -(-_IMAGE_PIXELS // max(images.shape[1:])))
    large = images.repeat(factor, axis=1).repeat(factor, axis=2)
    # Undefined pixels are drawn as a thin frame.
    large[:, [0, -1], :] = large[:, :, [0, -1]] = np.nan
    shades = colormaps["gray_r"].with_extremes(bad="#adb5bd")
    row = np.concatenate(list(large), axis=1)
    image = axes.imshow(row, cmap=shades, vmin=0, vmax=1, aspect="auto")
    image.set(extent=(0, len(images), 0, 1), interpolation="nearest")
    axes.set_axis_off()
    for column, label in enumerate(labels):
        axes.text(column + 0.5, 1.06, label, fontsize=7, ha="center", va="bottom")
