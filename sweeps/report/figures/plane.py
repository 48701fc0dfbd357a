"""The information plane: what releases leak against what they censor, and what is possible at all.

The axes are I(S;Q) and I(U;X|Q) of "Learning data-derived privacy preserving representations"
(ICLR 2019 submission), for the Gaussian mixture, where both are known exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privnets.points import TradeoffPoint
from sweeps.analysis.formatting import setting_as_number
from sweeps.analysis.statistics import Interval
from sweeps.analysis.tables import evenly_spaced_rows, row_interval
from sweeps.report.figures.curves import CurveSet, Row, placed
from sweeps.report.sources import ReportSource

LEAKAGE, CENSORED = "privacy/leakage", "utility/censored"
EXACT = ("exact/leakage", "exact/censored")
BOUND = "bound/release"

_DEPENDENCE, _TRADEOFF, _LINEAR_LOSS = "dependence", "tradeoff", "optimum/linear_loss"
_MOST_PANELS = 6
_MOST_POINTS = 50
_FINE = 2001
_ARC = 0.12

Line = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """A point in the plane.

    Attributes:
        name: Its swept settings in words.
        shade: Its value of the field that runs along the curves; NaN where there is none.
        leakage: Its estimate, with its interval.
        censored: Its estimate, with its interval.
        exact: Exact leakage and censored information of the learned filter.
        path: The same in training, step by step; None where it was not followed.
        best: Those of the release of least loss; None where that is not known.
        linear: Near the learned filter, where the loss is the best linear filter's; None likewise.
    """

    name: str
    shade: float
    leakage: Interval
    censored: Interval
    exact: tuple[float, float]
    path: Line | None
    best: tuple[float, float] | None
    linear: Line | None


@dataclass(frozen=True, slots=True, eq=False)
class Plane:
    """The plane of one dependence between the bits.

    Attributes:
        title: Which.
        bound: K, which leakage and censored information together never fall below.
        boundary: The least that any release censors at each leakage; None where unknown.
        points: What was learned, in order of their shades.
    """

    title: str
    bound: float
    boundary: Line | None
    points: tuple[Learned, ...]


def planes(data: ReportSource, curves: CurveSet) -> list[Plane]:
    """A plane for each dependence, at most six; none unless exact information is known.

    Of many points a plane shows some, evenly spread over the field that runs along curves.
    """
    points = data.points.loc[data.points["status"] == "finished"]
    if not {*EXACT, LEAKAGE, CENSORED, f"config/{_DEPENDENCE}"} <= set(points.columns):
        return []
    defined = points.loc[points[list(EXACT)].map(math.isfinite).all(axis=1)]
    parts = list(defined.groupby(f"config/{_DEPENDENCE}"))[:_MOST_PANELS]
    fields = [field for field in curves.fields if field != _DEPENDENCE]
    shown = [evenly_spaced_rows(_along(part, curves.along), _MOST_POINTS) for _, part in parts]
    by_id = data.select_points([name for part in shown for name in part["point_id"]])
    found = [
        _plane(float(str(key)), some, by_id, fields, curves.along)
        for (key, _), some in zip(parts, shown, strict=True)
    ]
    totals = [len(part) for _, part in parts]
    return [_counted(plane, total) for plane, total in zip(found, totals, strict=True)]


def _counted(plane: Plane, total: int) -> Plane:
    """Entitled with how many points it shows, where these are not all."""
    if len(plane.points) == total:
        return plane
    return replace(plane, title=f"{plane.title} ({len(plane.points)} of {total:,} points)")


def _along(part: pd.DataFrame, field: str | None) -> pd.DataFrame:
    if field is None:
        return part
    return part.loc[part[f"config/{field}"].map(setting_as_number).sort_values(kind="stable").index]


def _plane(
    dependence: float,
    part: pd.DataFrame,
    by_id: Mapping[str, TradeoffPoint],
    fields: Sequence[str],
    along: str | None,
) -> Plane:
    from privnets.measures.best_release import release_boundary

    rows = part.to_dict("records")
    boundary = release_boundary(dependence, _FINE) if 0 <= dependence <= 2 else None
    points = []
    for row in rows:
        shade = setting_as_number(row.get(f"config/{along}")) if along in fields else math.nan
        point = by_id.get(str(row["point_id"]))
        points.append(_learned(placed(row, fields), shade, row, point, boundary))
    bound = row_interval(rows[0], BOUND).mean
    return Plane(f"{_DEPENDENCE} = {dependence:g}", max(bound, 0.0), boundary, tuple(points))


def _learned(
    name: str, shade: float, row: Row, point: TradeoffPoint | None, boundary: Line | None
) -> Learned:
    leakage, censored = (float(row[key]) for key in EXACT)
    squared = row.get("config/objective") == "squared-kl"
    weight = setting_as_number(row.get(f"config/{_TRADEOFF}")) if squared else math.nan
    return Learned(
        name=name,
        shade=shade,
        leakage=row_interval(row, LEAKAGE),
        censored=row_interval(row, CENSORED),
        exact=(leakage, censored),
        path=_path(point),
        best=_best(boundary, weight),
        linear=_arc(row_interval(row, _LINEAR_LOSS).mean, weight, math.atan2(censored, leakage)),
    )


def _path(point: TradeoffPoint | None) -> Line | None:
    if point is None:
        return None
    across, up = (point.curves.get(key) for key in EXACT)
    if across is None or up is None or across.steps != up.steps:
        return None
    return np.array(across.values), np.array(up.values)


def _best(boundary: Line | None, weight: float) -> tuple[float, float] | None:
    """Where on the boundary the loss (1 - a) B^2 + a A^2 is least."""
    if boundary is None or not 0 <= weight <= 1:
        return None
    leakage, censored = boundary
    least = int(np.argmin((1 - weight) * censored**2 + weight * leakage**2))
    return float(leakage[least]), float(censored[least])


def _arc(loss: float, weight: float, direction: float) -> Line | None:
    """A short stretch of equal loss around a direction from the origin."""
    if not (loss > 0 and 0 <= weight <= 1):
        return None
    angles = np.linspace(direction - _ARC, direction + _ARC, 21).clip(0, math.pi / 2)
    curvature = (1 - weight) * np.sin(angles) ** 2 + weight * np.cos(angles) ** 2
    radius = np.sqrt(loss / np.maximum(curvature, 1e-12))
    return radius * np.cos(angles), radius * np.sin(angles)
