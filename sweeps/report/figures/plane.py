"""Information plane of the Gaussian mixture: leakage against censored information.

The axes are I(S;Q) and I(U;X|Q) of "Learning data-derived privacy preserving representations"
(ICLR 2019 submission). Both are known exactly for the Gaussian mixture.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privnets.measures.best_release import release_boundary
from privnets.points import TradeoffPoint
from sweeps.analysis.results import Result
from sweeps.analysis.tables import Row, evenly_spaced, row_interval
from sweeps.analysis.text import field_label, setting_as_number
from sweeps.report.figures.charts import (
    GREY,
    Chart,
    ChartAxis,
    ChartPanel,
    ChartSeries,
    legend_entry,
    points_series,
    ramp,
    view_limits,
)
from sweeps.report.figures.curves import CurveSet, field_numbers, label_point, sort_along

LEAKAGE, CENSORED = "privacy/leakage", "utility/censored"
EXACT = ("exact/leakage", "exact/censored")

_DEPENDENCE, _WEIGHT = "problem.gaussian-mixture.dependence", "tradeoff"
_MAX_PANELS, _MAX_POINTS = 6, 50
_BOUNDARY_STEPS = 2001
_ARC = 0.12
_STYLES: Mapping[str, dict[str, Any]] = {
    "in training": {"line": "solid", "width": 1, "opacity": 0.6},
    "loss of the best linear filter": {"line": "solid", "width": 2.5},
    "best release of any kind": {"symbol": "x", "size": 10},
    "learned, exact": {"symbol": "circle", "size": 8},
    "learned, estimated": {"symbol": "circle", "size": 12, "hollow": True},
}

_Line = tuple[NDArray[np.float64], NDArray[np.float64]]


def information_plane(result: Result, curves: CurveSet) -> Chart | None:
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
    panels = [
        _panel(float(str(key)), part, len(whole), stored, fields, along, colors)
        for (key, whole), part in zip(groups, parts, strict=True)
    ]
    return Chart(panels, columns=3, panel_height=400)


def _panel(
    dependence: float,
    part: pd.DataFrame,
    total: int,
    stored: Mapping[str, TradeoffPoint],
    fields: Sequence[str],
    along: str | None,
    colors: Mapping[float, str],
) -> ChartPanel:
    rows = part.to_dict("records")
    bound = max(row_interval(rows[0], "bound/release").value, 0.0)
    boundary = release_boundary(dependence, _BOUNDARY_STEPS) if 0 <= dependence <= 2 else None
    series = list(_limits(bound, boundary))
    for row in rows:
        color = colors.get(setting_as_number(row.get(f"config/{along}")), GREY)
        point = stored.get(str(row["point_id"]))
        series += _point_series(row, label_point(row, fields), color, point, boundary)
    series += [legend_entry(name, color=GREY, **style) for name, style in _STYLES.items()]
    for value, color in colors.items():
        name = f"{field_label(along or '')} = {value:g}"
        series.append(legend_entry(name, symbol="square", color=color, size=10))
    limits = _limits_of_view(part, bound, boundary)
    x_axis, y_axis = (
        ChartAxis(f"{name}, nats\n(smaller is better)", limits=limits)
        for name in ("censored utility I(U;X|Q)", "leakage I(S;Q)")
    )
    hidden = f" ({len(part)} of {total:,} points)" if len(part) < total else ""
    title = f"dependence = {dependence:g}{hidden}"
    return ChartPanel(x_axis, y_axis, [_transpose(each) for each in series], title, square=True)


def _transpose(series: ChartSeries) -> ChartSeries:
    """The series with utility on x; everything else here is computed with leakage first."""
    x_errors, y_errors = series.y_errors, series.x_errors
    return replace(series, x=series.y, y=series.x, x_errors=x_errors, y_errors=y_errors)


def _limits(bound: float, boundary: _Line | None) -> Iterator[ChartSeries]:
    """The impossible area below the bound, and the boundary of possible releases."""
    yield ChartSeries([0, bound, 0], [0, 0, bound], hover=[], fill="shade")
    name, hover = "bound: leakage + censored = K", [f"K = {bound:.4g} nats"] * 2
    yield ChartSeries([0, bound], [bound, 0], name, line="dot", width=2, hover=hover)
    if boundary is not None:
        name = "least that any release censors"
        yield ChartSeries(*boundary, name, line="solid", width=2, hover=[])


def _point_series(
    row: Row, label: str, color: str, point: TradeoffPoint | None, boundary: _Line | None
) -> Iterator[ChartSeries]:
    """One point: its path in training, the optima, exact and estimated information."""
    exact = tuple(float(row[key]) for key in EXACT)
    weight = setting_as_number(row.get(f"config/{_WEIGHT}"))
    if row.get("config/objective") != "squared-kl" or not 0 <= weight <= 1:
        weight = math.nan
    if point is not None and (path := training_path(point)) is not None:
        yield ChartSeries(*path, color=color, hover=[], **_STYLES["in training"])
    loss = row_interval(row, "optimum/linear_loss").value
    if loss > 0 and not math.isnan(weight):
        arc = equal_loss_arc(loss, weight, math.atan2(exact[1], exact[0]))
        style = _STYLES["loss of the best linear filter"]
        yield ChartSeries(*arc, color=color, hover=[], **style)
    if boundary is not None and not math.isnan(weight):
        best = best_on_boundary(boundary, weight)
        yield _mark(label, best, color, "best release of any kind")
    yield _mark(label, exact, color, "learned, exact")
    leakage, censored = row_interval(row, LEAKAGE), row_interval(row, CENSORED)
    hover = [f"{label}\nestimated: leaks {leakage}, censors {censored} nats"]
    frame, style = pd.DataFrame([row]), _STYLES["learned, estimated"]
    yield points_series(frame, LEAKAGE, CENSORED, hover, color=color, **style)


def _mark(label: str, position: Sequence[float], color: str, kind: str) -> ChartSeries:
    x, y = position
    hover = [f"{label}\n{kind}: leaks {x:.4f}, censors {y:.4f} nats"]
    return ChartSeries([x], [y], color=color, hover=hover, **_STYLES[kind])


def _limits_of_view(
    part: pd.DataFrame, bound: float, boundary: _Line | None
) -> tuple[float, float] | None:
    """Limits of both axes, which may cut the beginnings of paths."""
    metrics = [*EXACT, LEAKAGE, CENSORED]
    values = [0.0, bound, *part[metrics].to_numpy(dtype=np.float64).ravel()]
    values += [float(line.max()) for line in boundary or ()]
    columns = [m + s for m in (LEAKAGE, CENSORED) for s in (".ci_low", ".ci_high")]
    ends = part.reindex(columns=columns).to_numpy(dtype=np.float64).ravel()
    return view_limits(np.array(values), ends)


def training_path(point: TradeoffPoint) -> _Line | None:
    """Exact information during training; None if it was not recorded."""
    across, up = (point.curves.get(key) for key in EXACT)
    if across is None or up is None or across.steps != up.steps:
        return None
    return np.array(across.values), np.array(up.values)


def best_on_boundary(boundary: _Line, weight: float) -> tuple[float, float]:
    """The release on the boundary with the least loss (1 - a) B^2 + a A^2."""
    leakage, censored = boundary
    least = int(np.argmin((1 - weight) * censored**2 + weight * leakage**2))
    return float(leakage[least]), float(censored[least])


def equal_loss_arc(loss: float, weight: float, direction: float) -> _Line:
    """Short arc of equal loss around a direction from the origin."""
    angles = np.linspace(direction - _ARC, direction + _ARC, 21).clip(0, math.pi / 2)
    curvature = (1 - weight) * np.sin(angles) ** 2 + weight * np.cos(angles) ** 2
    radius = np.sqrt(loss / np.maximum(curvature, 1e-12))
    return radius * np.cos(angles), radius * np.sin(angles)
