"""Trade-off curves to print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from sweeps.analysis.formatting import setting_as_number
from sweeps.analysis.pareto import Objectives
from sweeps.analysis.statistics import Interval
from sweeps.report.figures.curves import CurveSet, TradeoffCurve
from sweeps.report.figures.panels import (
    BASELINE,
    REACHED,
    RING,
    UNDER,
    Panel,
    baselines,
    flagged,
    floors,
    look,
    raw_marks,
    reached,
)
from sweeps.report.figures.plots import DOMINATED, reach, said, scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


_FLOOR, _ATTACKED, _RAW = "floor", "attacker on raw data", "raw data"


def draw_tradeoff(curves: CurveSet, panels: Sequence[Panel], objectives: Objectives) -> Figure:
    """The curves with 95% intervals; see `tradeoff_figure`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.8 * len(panels) + 2.6, 4.8), layout="constrained")
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, panel in zip(all_axes, panels, strict=True):
        axes.set_xscale(scale(panel.points, panel.x))
        axes.set_yscale(scale(panel.points, panel.y))
        _draw(axes, curves, panel)
        axes.set(xlim=panel.ends, ylim=panel.heights)
        axes.set_xlabel(said(panel.x, objectives), parse_math=False)
        axes.set_ylabel(said(panel.y, objectives), parse_math=False)
        axes.grid(alpha=0.25)
    named = zip(*all_axes[0].get_legend_handles_labels(), strict=True)
    handles, labels = zip(*sorted(named, key=lambda pair: _rank(pair[1])), strict=True)
    legend = figure.legend(
        handles, labels, loc="outside right upper", frameon=False, fontsize="small"
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def _draw(axes: Axes, curves: CurveSet, panel: Panel) -> None:
    for level in floors(panel, curves.fields):
        value, name = level.value, level.named(_FLOOR)
        if value.high > value.low:
            axes.axhspan(value.low, value.high, color=DOMINATED, alpha=0.22, linewidth=0)
        axes.axhline(value.mean, color=DOMINATED, linestyle=":", linewidth=1.6, label=name)
    for level in baselines(panel, curves.fields):
        value, name = level.value, level.named(_ATTACKED)
        axes.axhline(value.mean, color=BASELINE, linestyle="--", linewidth=1.2, label=name)
    for curve in curves.curves if curves.joined else ():
        _curve(axes, curves, curve, panel)
    if not curves.joined:
        _cloud(axes, panel, curves.along)
    first = reached(curves, panel)
    if len(first):
        marks = _hollow(axes, first, panel, "o", RING)
        marks.set(markersize=13, markeredgewidth=1.6, markerfacecolor="none", label=REACHED)
    _raw(axes, panel)


def _curve(axes: Axes, curves: CurveSet, curve: TradeoffCurve, panel: Panel) -> None:
    points, looks = panel.of(curve), look(curves, curve)
    axes.errorbar(
        points[panel.x],
        points[panel.y],
        xerr=reach(points, panel.x),
        yerr=reach(points, panel.y),
        fmt=looks.symbol[1],
        linestyle=looks.dash[1],
        color=looks.color,
        markersize=5,
        linewidth=1.4,
        elinewidth=0.8,
        capsize=1.5,
        label=curve.label or "release",
    )
    under = points.loc[flagged(points)]
    _hollow(axes, under, panel, looks.symbol[1], looks.color)


def _cloud(axes: Axes, panel: Panel, field: str | None) -> None:
    points = panel.points
    axes.errorbar(
        points[panel.x],
        points[panel.y],
        xerr=reach(points, panel.x),
        yerr=reach(points, panel.y),
        fmt="none",
        ecolor=DOMINATED,
        elinewidth=0.6,
    )
    numbers = np.array(
        [] if field is None else points[f"config/{field}"].map(setting_as_number).tolist()
    )
    name = f"releases ({len(points)})"
    if not len(numbers) or not np.isfinite(numbers).all():
        axes.plot(points[panel.x], points[panel.y], "o", color=DOMINATED, label=name)
        return
    norm = "log" if numbers.min() > 0 and numbers.max() >= 100 * numbers.min() else "linear"
    marks = axes.scatter(
        points[panel.x], points[panel.y], c=numbers, cmap="plasma", norm=norm, zorder=3, label=name
    )
    bar = axes.figure.colorbar(marks, ax=axes)
    bar.set_label(str(field), parse_math=False)


def _raw(axes: Axes, panel: Panel) -> None:
    if flagged(panel.points).any():
        _hollow(axes, panel.points.iloc[:0], panel, "o", DOMINATED).set_label(UNDER)
    for index, (x, y) in enumerate(raw_marks(panel)):
        axes.errorbar(
            x.mean,
            y.mean,
            xerr=_ends(x),
            yerr=_ends(y),
            fmt="*",
            color=BASELINE,
            markersize=11,
            elinewidth=0.8,
            clip_on=False,
            label=_RAW if index == 0 else "_",
        )


def _hollow(axes: Axes, points: pd.DataFrame, panel: Panel, symbol: str, color: str) -> Line2D:
    (marks,) = axes.plot(points[panel.x], points[panel.y], symbol, mec=color, mfc="white", ms=5)
    marks.set(zorder=4)
    return marks


def _rank(label: str) -> int:
    """Levels come first in the legend, then curves, then marks."""
    if label.startswith((_FLOOR, _ATTACKED)):
        return 0
    return 2 if label in (REACHED, UNDER, _RAW) else 1


def _ends(found: Interval) -> list[list[float]]:
    return [
        [float(np.nan_to_num(part))] for part in (found.mean - found.low, found.high - found.mean)
    ]
