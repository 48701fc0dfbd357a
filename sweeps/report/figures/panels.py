"""What pictures of trade-off curves show: panels, marks and levels in them, and looks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sweeps.analysis.formatting import format_number
from sweeps.analysis.pareto import Objectives
from sweeps.analysis.statistics import Interval
from sweeps.analysis.tables import METRIC_FLOORS, RAW_DATA_VALUES, raw_data_interval, row_interval
from sweeps.report.figures.curves import CurveSet, Row, TradeoffCurve, samples, sign
from sweeps.report.figures.plots import reach, scale, shades, window

STRONGEST = "privacy/attacker_balanced_accuracy"
UNDER_FLOOR = "flag/attacker_below_floor"
REACHED = "first whose interval\nreaches the floor"
UNDER = "attacker under its floor:\nunder-trained"
BASELINE, RING = "#c2255c", "#868e96"

_MOST_PANELS = 4
_PADDING = 0.05
_APART = 0.01
_SYMBOLS = (
    ("circle", "o"),
    ("square", "s"),
    ("diamond", "D"),
    ("triangle-up", "^"),
    ("triangle-down", "v"),
    ("pentagon", "p"),
)
_DASHES = (("solid", "-"), ("dash", "--"), ("dot", ":"), ("dashdot", "-."))


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """One utility against one privacy metric.

    Attributes:
        x: The utility.
        y: The privacy metric.
        points: The finished points that have both.
        ends: What the x axis shows, in its own units.
        heights: What the y axis shows.
    """

    x: str
    y: str
    points: pd.DataFrame
    ends: tuple[float, float]
    heights: tuple[float, float]

    def of(self, curve: TradeoffCurve) -> pd.DataFrame:
        """The curve's points that can be drawn, in order."""
        return curve.points.loc[curve.points["point_id"].isin(self.points["point_id"])]


@dataclass(frozen=True, slots=True)
class Level:
    """A value that many points share.

    Attributes:
        value: Their mean, with the widest of their intervals.
        where: The settings that set them apart from points of another level, in words.
    """

    value: Interval
    where: str

    def named(self, name: str) -> str:
        """The level under a name, with its number."""
        return f"{name}{self.where}: {format_number(self.value.mean)}"


@dataclass(frozen=True, slots=True)
class Look:
    """How a curve is told from others: by colour, and by plotly's and matplotlib's names."""

    color: str
    symbol: tuple[str, str]
    dash: tuple[str, str]


def tradeoff_panels(curves: CurveSet, objectives: Objectives) -> list[Panel]:
    """A panel for each pair of a privacy and a utility objective that can be drawn.

    A privacy metric can be drawn when it has a floor or a raw-data baseline to be read against.
    """
    if not curves.curves:
        return []
    points = pd.concat([curve.points for curve in curves.curves])
    privacy = [
        m
        for m in objectives
        if m.startswith("privacy/") and (m in METRIC_FLOORS or m in RAW_DATA_VALUES)
    ]
    utility = [m for m in objectives if m.startswith("utility/")]
    found = []
    for y, x in itertools.product(privacy, utility):
        if {x, y} <= set(points.columns):
            shown = points.loc[points[[x, y]].map(math.isfinite).all(axis=1)]
            if len(shown):
                found.append(Panel(x, y, shown, _ends(shown, x), _ends(shown, y)))
    return found[:_MOST_PANELS]


def look(curves: CurveSet, curve: TradeoffCurve) -> Look:
    """A curve's looks: a colour of the scale, and a marker and a dash of its style."""
    mark = curve.style if curves.styles > 1 else curve.color
    return Look(
        shades(len(curves.colors))[curve.color],
        _SYMBOLS[mark % len(_SYMBOLS)],
        _DASHES[curve.style % len(_DASHES)],
    )


def floors(panel: Panel, fields: Sequence[str]) -> list[Level]:
    """What attackers reach who never see the release, where it depends on these fields."""
    return _levels(panel, METRIC_FLOORS.get(panel.y, ""), fields)


def baselines(panel: Panel, fields: Sequence[str]) -> list[Level]:
    """What attackers reach on raw data, where it depends on these fields."""
    found = RAW_DATA_VALUES.get(panel.y)
    return _levels(panel, found, fields) if isinstance(found, str) else []


def raw_marks(panel: Panel) -> list[tuple[Interval, Interval]]:
    """Where raw data lie: utility and privacy, those that look alike once."""
    log = scale(panel.points, panel.x) == "log"
    found: dict[tuple[str, str], tuple[Interval, Interval]] = {}
    for row in panel.points.to_dict("records"):
        x, y = raw_data_interval(row, panel.x), raw_data_interval(row, panel.y)
        if math.isfinite(x.mean + y.mean) and (x.mean > 0 or not log):
            found.setdefault((f"{x.mean:.2g}", f"{y.mean:.2g}"), (x, y))
    return list(found.values())


def reached(curves: CurveSet, panel: Panel) -> pd.DataFrame:
    """The first point of full privacy of each curve that has one."""
    names = [
        sample.point_id
        for curve in curves.curves
        for sample in samples(curve, panel.y)
        if sample.role == "full privacy"
    ]
    return panel.points.loc[panel.points["point_id"].isin(names)]


def flagged(points: pd.DataFrame) -> pd.Series[bool]:
    """Whether a point's strongest attacker stayed under the floor by more than chance.

    At full privacy he is under it in every other replicate, which says nothing of his training.
    """
    found = [under_floor(row) for row in points.to_dict("records")]
    return pd.Series(found, index=points.index, dtype=bool)


def under_floor(row: Row) -> bool:
    """Whether a replicate is flagged, and the interval, if any, lies under the floor."""
    raised = float(row.get(UNDER_FLOOR, 0.0)) > 0
    attacked, floor = row_interval(row, STRONGEST), row_interval(row, METRIC_FLOORS[STRONGEST]).mean
    return raised and not attacked.high >= floor


def _levels(panel: Panel, metric: str, fields: Sequence[str]) -> list[Level]:
    """Values of a metric, those too close to be told apart as one, with the widest interval."""
    if metric not in panel.points:
        return []
    values = panel.points[panel.y]
    apart = _APART * (float(values.max() - values.min()) or abs(float(values.iloc[0])))
    rows = [row for row in panel.points.to_dict("records") if math.isfinite(row[metric])]
    groups: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: float(row[metric])):
        if groups and row[metric] - groups[-1][0][metric] <= apart:
            groups[-1].append(row)
        else:
            groups.append([row])
    return [
        Level(_widest([row_interval(row, metric) for row in group]), where)
        for group, where in zip(groups, _wheres(groups, fields), strict=True)
    ]


def _wheres(groups: Sequence[Sequence[Row]], fields: Sequence[str]) -> list[str]:
    """What tells groups of points apart: one field whose values no two groups share, if any."""
    for field in fields:
        values = [sorted({sign(row[f"config/{field}"]) for row in group}) for group in groups]
        every = [value for own in values for value in own]
        if len(groups) > 1 and len(every) == len(set(every)):
            return [f", {field} = {' or '.join(own)}" for own in values]
    return [""] * len(groups)


def _widest(group: Sequence[Interval]) -> Interval:
    known = [one for one in group if math.isfinite(one.half)]
    return Interval(
        float(np.mean([one.mean for one in group])),
        min((one.low for one in known), default=math.nan),
        max((one.high for one in known), default=math.nan),
    )


def _ends(shown: pd.DataFrame, metric: str) -> tuple[float, float]:
    """What an axis shows: values with intervals, the floor, raw data, and a little air."""
    log = scale(shown, metric) == "log"
    values = shown[metric].to_numpy(dtype=np.float64)
    down, up = reach(shown, metric) or (np.zeros_like(values), np.zeros_like(values))
    rows = shown.to_dict("records")
    levels = [raw_data_interval(row, metric).mean for row in rows]
    levels += [row_interval(row, METRIC_FLOORS.get(metric, "")).mean for row in rows]
    found = np.concatenate([values - down, values + up, levels])
    if not log and (view := window(np.concatenate([values, levels]), found)) is not None:
        found = np.array(view)
    found = found[np.isfinite(found) & ((found > 0) | (not log))]
    if metric.endswith("accuracy"):
        found = found.clip(0, 1)  # intervals of few replicates know no limits
    if log:
        found = np.log10(found)
    air = max(_PADDING * float(np.ptp(found)), 1e-3 * max(1.0, float(abs(found).max())))
    low, high = float(found.min()) - air, float(found.max()) + air
    return (10**low, 10**high) if log else (low, high)
