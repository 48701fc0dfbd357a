"""Figures and images drawn by Matplotlib, for PNG, SVG and PDF files.

No text is parsed as a formula. Texts of SVG and PDF files stay texts, to be searched and edited.
"""

from __future__ import annotations

import html
import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.dates import DateFormatter, DayLocator
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sweeps.report.figures.traces import Description, axis_limits

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
}
_LINES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
_STEPS = {"linear": "default", "hv": "steps-post", "vh": "steps-pre"}


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
def draw_figure(figure: Description) -> Figure:
    """A figure of `panel_figure`, drawn by Matplotlib with one legend."""
    layout = figure["layout"]
    names = [key.removeprefix("xaxis") for key in layout if key.startswith("xaxis")]
    columns = len({layout[f"xaxis{name}"]["domain"][0] for name in names})
    rows, has_side_legend = -(-len(names) // columns), layout["legend"]["orientation"] == "v"
    inner = layout["height"] - layout["margin"]["t"] - layout["margin"]["b"]
    height = inner / rows / _PIXELS_PER_INCH
    is_square = "scaleanchor" in layout["yaxis"]
    is_date = layout["xaxis"].get("type") == "date"
    width = height if is_square else _PANEL_WIDTH * (2 if is_date else 1)
    size = columns * width + _SIDE_LEGEND_WIDTH * has_side_legend, rows * height + 0.9
    drawn = Figure(figsize=size, layout="constrained")
    grid = list(drawn.subplots(rows, columns, squeeze=False).flat)
    legend: dict[str, Any] = {}
    for place, (axes, name) in enumerate(zip(grid, names, strict=False)):
        x, y = layout[f"xaxis{name}"], layout[f"yaxis{name}"]
        for key, own in (("x", x), ("y", y)):
            axes.set(**{f"{key}label": _plain(own["title"]["text"])})
            if own.get("type") == "log":
                axes.set(**{f"{key}scale": "log"})
            if (limits := axis_limits(own)) is not None:
                axes.set(**{f"{key}lim": limits})
        for trace in figure["data"]:
            if trace["xaxis"] == f"x{name}" and "visible" not in trace:
                handle = (_draw_polygons if "fill" in trace else _draw_points)(axes, trace)
                if trace["showlegend"]:
                    legend[_plain(trace["name"])] = handle
        for own, set_ticks in ((x, axes.set_xticks), (y, axes.set_yticks)):
            if "tickvals" in own:
                set_ticks(own["tickvals"], [*map(_plain, own["ticktext"])], parse_math=False)
                axes.minorticks_off()
        if is_date:
            axes.xaxis.set_major_locator(DayLocator())  # type: ignore[no-untyped-call]
            axes.xaxis.set_major_formatter(DateFormatter("%a %d %b"))  # type: ignore[no-untyped-call]
        if is_square:
            axes.set_aspect("equal", adjustable="box" if "range" in x else "datalim")
        if "annotations" in layout:
            axes.set_title(_plain(layout["annotations"][place]["text"]), fontsize="small")
        axes.grid(alpha=0.25)
    for unused in grid[len(names) :]:
        unused.set_visible(False)
    drawn.legend(
        list(legend.values()),
        [textwrap.fill(name, _LEGEND_LETTERS) if has_side_legend else name for name in legend],
        loc="outside right upper" if has_side_legend else "outside upper center",
        ncols=1 if has_side_legend else max(2, 2 * columns),
        frameon=False,
        fontsize="small",
    )
    return drawn


def _plain(text: str) -> str:
    return html.unescape(text.replace("<br>", "\n"))


def _draw_points(axes: Axes, trace: Description) -> Any:
    marker, line = trace.get("marker", {}), trace["line"]
    size, color = 0.65 * marker.get("size", 0), line["color"]
    symbols = np.broadcast_to(np.array(marker.get("symbol", ""), str), len(trace["x"]))
    hollow = np.char.endswith(symbols, "-open")
    symbol = _MARKERS.get(str(symbols[0]).removesuffix("-open"), "") if len(symbols) else ""
    x, y = np.asarray(trace["x"]), np.asarray(trace["y"])
    x_errors, y_errors = (
        (own["arrayminus"], own["array"]) if (own := trace.get(key)) is not None else None
        for key in ("error_x", "error_y")
    )
    handle = axes.errorbar(
        x,
        y,
        xerr=x_errors,
        yerr=y_errors,
        fmt=symbol,
        linestyle=_LINES[line["dash"]] if line["width"] else "none",
        drawstyle=_STEPS[line["shape"]],
        color=color,
        markersize=size,
        markerfacecolor="none" if len(hollow) and hollow.all() else color,
        linewidth=0.8 * line["width"],
        elinewidth=0.8,
        alpha=trace.get("opacity"),
    )
    if "colorscale" in marker:
        marks = axes.scatter(x, y, c=marker["color"], cmap="plasma", zorder=3)
        title = _plain(marker["colorbar"]["title"]["text"])
        axes.figure.colorbar(marks, ax=axes).set_label(title)
    elif isinstance(marker.get("symbol"), list) and hollow.any():
        axes.plot(x[hollow], y[hollow], symbol, mec=color, mfc="white", ms=size, zorder=4)
    is_left = trace.get("textposition") == "middle left"
    align = {"ha": "right", "va": "center"} if is_left else {"va": "top"}
    for across, up, text in zip(x, y, trace.get("text", ()), strict=False):
        style = {"fontsize": 7, "color": color, "textcoords": "offset points", **align}
        axes.annotate(_plain(text), (across, up), (-6, 0) if is_left else (4, -4), **style)
    return handle


def _draw_polygons(axes: Axes, trace: Description) -> Any:
    x, y = np.asarray(trace["x"]), np.asarray(trace["y"], dtype=np.float64)
    is_known = ~np.isnan(y)
    parts = np.split(np.arange(len(y)), np.flatnonzero(~is_known))
    corners = [part[is_known[part]] for part in parts]
    style = {"color": trace["line"]["color"], "alpha": 0.25, "linewidth": 0}
    patches = [patch for own in corners for patch in axes.fill(x[own], y[own], **style)]
    return patches[0]


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
        axes = figure.add_axes((margin / width, top / height, *extent))
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
        position = ((margin - 0.1) / width, (top + _IMAGE_SIZE / 2) / height)
        figure.text(*position, caption, ha="right", va="center", fontsize=6.5)
    return figure
