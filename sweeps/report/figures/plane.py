"""Information plane of the Gaussian mixture: leakage against censored information.

The axes are I(S;Q) and I(U;X|Q) of "Learning data-derived privacy preserving representations"
(ICLR 2019 submission). Both are known exactly for the Gaussian mixture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privnets.measures.best_release import release_boundary
from privnets.points import TradeoffPoint
from sweeps.analysis.results import Result
from sweeps.analysis.tables import INTERVAL_SUFFIXES, Row, evenly_spaced, row_interval
from sweeps.analysis.text import field_label, setting_as_number
from sweeps.report.figures.axes import points_trace, ramp, view_limits
from sweeps.report.figures.curves import CurveSet, field_numbers, label_point, sort_along
from sweeps.report.figures.traces import (
    GREY,
    Description,
    Plot,
    axis,
    legend_entry,
    panel_figure,
    trace,
)

LEAKAGE, CENSORED = "privacy/leakage", "utility/censored"
EXACT = ("exact/leakage", "exact/censored")

_DEPENDENCE, _WEIGHT = "problem.gaussian-mixture.dependence", "tradeoff"
_MAX_PANELS, _MAX_POINTS = 6, 50
_BOUNDARY_STEPS = 2001
_STYLES: Mapping[str, dict[str, Any]] = {
    "in training": {"line": "solid", "width": 1, "opacity": 0.6},
    "best release of any kind": {"symbol": "x", "size": 10},
    "learned, exact": {"symbol": "circle", "size": 8},
    "learned, estimated": {"symbol": "circle", "size": 12, "hollow": True},
}

_Line = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Leakage and censored information along a line."""


def information_plane(result: Result, curves: CurveSet) -> Description | None:
    """A panel for each dependence between the bits, at most six; None without exact information.

    A panel shows at most 50 points, evenly spaced over the field along curves.
    """
    points = result.points.loc[result.points["status"] == "finished"]
    if not {*EXACT, LEAKAGE, CENSORED, f"config/{_DEPENDENCE}"} <= set(points.columns):
        return None
    known = points.loc[np.isfinite(points[list(EXACT)].to_numpy(dtype=np.float64)).all(axis=1)]
    along = None if curves.along == _DEPENDENCE else curves.along
    ordered = known if along is None else sort_along(known, along)
    groups = list(ordered.groupby(f"config/{_DEPENDENCE}"))[:_MAX_PANELS]
    if not groups:
        return None
    parts = [whole.iloc[evenly_spaced(len(whole), _MAX_POINTS)] for _, whole in groups]
    shown = pd.concat(parts)
    stored = result.select_points(shown["point_id"].tolist())
    values = [] if along is None else np.unique(field_numbers(shown, along)).tolist()
    colors = dict(zip(values, ramp(len(values)), strict=True))
    fields = [field for field in curves.fields if field != _DEPENDENCE]
    legend = [legend_entry(name, **style) for name, style in _STYLES.items()]
    for value, color in colors.items():
        name = f"{field_label(along or '')} = {value:g}"
        legend.append(legend_entry(name, symbol="square", color=color, size=10))
    panels = []
    for (key, whole), part in zip(groups, parts, strict=True):
        dependence = float(str(key))
        bound = max(row_interval(part.iloc[0], "bound/release").value, 0.0)
        boundary = release_boundary(dependence, _BOUNDARY_STEPS) if 0 <= dependence <= 2 else None
        traces = list(_limits(bound, boundary))
        for place, row in enumerate(part.to_dict("records")):
            color = colors.get(setting_as_number(row.get(f"config/{along}")), GREY)
            label, point = label_point(row, fields), stored.get(str(row["point_id"]))
            traces += _point_traces(row, label, color, point, boundary)
            hover = [
                f"{label}\nestimated: leaks {row_interval(row, LEAKAGE)}, "
                f"censors {row_interval(row, CENSORED)} nats"
            ]
            style = {"color": color, **_STYLES["learned, estimated"]}
            traces.append(points_trace(part.iloc[[place]], CENSORED, LEAKAGE, hover, "", **style))
        # Both axes have the same limits, which may cut the beginnings of paths.
        ends = [m + suffix for m in (LEAKAGE, CENSORED) for suffix in INTERVAL_SUFFIXES]
        inside = part[[*EXACT, LEAKAGE, CENSORED]].to_numpy(dtype=np.float64).ravel()
        inside = np.append(inside, [0.0, bound, *(line.max() for line in boundary or ())])
        intervals = part.reindex(columns=ends).to_numpy(dtype=np.float64).ravel()
        limits = view_limits(inside, intervals)
        x_axis, y_axis = (
            axis(f"{name}, nats\n(smaller is better)", limits=limits)
            for name in ("censored utility I(U;X|Q)", "leakage I(S;Q)")
        )
        hidden = f" ({len(part)} of {len(whole):,} points)" if len(part) < len(whole) else ""
        title = f"dependence = {dependence:g}{hidden}"
        panels.append(Plot(x_axis, y_axis, [*traces, *legend], title, square=True))
    return panel_figure(panels, columns=3, panel_height=400)


def _limits(bound: float, boundary: _Line | None) -> Iterator[Description]:
    """The impossible area below the bound, and the boundary of possible releases."""
    yield trace([0, 0, bound], [0, bound, 0], hover=[], shade=True)
    name, hover = "bound: leakage + censored = K", [f"K = {bound:.4g} nats"] * 2
    yield trace([bound, 0], [0, bound], name, line="dot", width=2, hover=hover)
    if boundary is not None:
        name = "least that any release censors"
        yield trace(boundary[1], boundary[0], name, line="solid", width=2, hover=[])


def _point_traces(
    row: Row, label: str, color: str, point: TradeoffPoint | None, boundary: _Line | None
) -> Iterator[Description]:
    """One point: its path in training, the optimum, and its exact information."""
    paths = [] if point is None else [point.curves.get(key) for key in EXACT]
    if len({path.steps for path in paths if path}) == 1 and all(paths):
        leakage, censored = (np.array(path.values) for path in paths if path)
        yield trace(censored, leakage, color=color, hover=[], **_STYLES["in training"])
    shown = {"learned, exact": (float(row[EXACT[0]]), float(row[EXACT[1]]))}
    weight = setting_as_number(row.get(f"config/{_WEIGHT}"))
    if boundary is not None and row.get("config/objective") == "squared-kl" and 0 <= weight <= 1:
        shown = {"best release of any kind": best_on_boundary(boundary, weight), **shown}
    for kind, (leaked, lost) in shown.items():
        hover = [f"{label}\n{kind}: leaks {leaked:.4f}, censors {lost:.4f} nats"]
        yield trace([lost], [leaked], color=color, hover=hover, **_STYLES[kind])


def best_on_boundary(boundary: _Line, weight: float) -> tuple[float, float]:
    """The release on the boundary with the least loss (1 - a) B^2 + a A^2."""
    leakage, censored = boundary
    least = int(np.argmin((1 - weight) * censored**2 + weight * leakage**2))
    return float(leakage[least]), float(censored[least])
