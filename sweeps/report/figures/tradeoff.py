"""Trade-off curves: the strongest attacker against utility, with floor and raw data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from privnets.statistics.intervals import Interval
from sweeps.analysis.flags import is_flagged
from sweeps.analysis.obfuscation import is_obfuscated
from sweeps.analysis.pareto import Objectives
from sweeps.analysis.tables import (
    INTERVAL_SUFFIXES,
    METRIC_FLOORS,
    RAW_DATA_VALUES,
    STRENGTH,
    Row,
    floor_of,
    raw_data_interval,
    row_interval,
)
from sweeps.analysis.text import (
    field_label,
    format_number,
    format_setting,
    label_setting,
    metric_label,
)
from sweeps.report.figures.charts import (
    BASELINE,
    DASHES,
    FLOOR,
    GREY,
    RED,
    SYMBOLS,
    TRIVIAL,
    Chart,
    ChartPanel,
    ChartSeries,
    Errors,
    hover_texts,
    legend_entry,
    metric_axis,
    obfuscation_color,
    points_series,
    ramp,
)
from sweeps.report.figures.curves import (
    CurveSet,
    TradeoffCurve,
    curve_samples,
    field_scale,
    label_settings,
)

FIRST_AT_FLOOR = "first whose interval\nreaches the floor"
FLAGGED = "flagged: contradicts a floor,\na bound or convergence"

PointPair = tuple[str, str, pd.DataFrame]
"""Metrics of both axes, and the points at which they are finite."""

_MAX_PANELS = 4
_MAX_NAMED, _MAX_TEXTS = 3, 12  # curves with settings beside their points, and points of one
_SAME_LEVEL = 0.01
_RING: dict[str, Any] = {"symbol": "circle", "hollow": True, "color": "#868e96", "hover": []}


def tradeoff_pairs(curves: CurveSet, objectives: Objectives) -> list[PointPair]:
    """Pairs of a utility and a privacy objective with a floor or a raw-data value, at most four."""
    references = {*METRIC_FLOORS, *RAW_DATA_VALUES}
    privacy = [m for m in objectives if m.startswith("privacy/") and m in references]
    utility = [m for m in objectives if m.startswith("utility/")]
    points, pairs = curves.points, []
    for y, x in itertools.product(privacy, utility):
        if {x, y} <= set(points.columns):
            finite = np.isfinite(points[[x, y]].to_numpy(dtype=np.float64)).all(axis=1)
            pairs += [(x, y, points.loc[finite])] if finite.any() else []
    return pairs[:_MAX_PANELS]


def tradeoff_chart(
    curves: CurveSet, pairs: Sequence[PointPair], objectives: Objectives
) -> Chart | None:
    """A panel for each pair: curves with 95% intervals, floors and raw data; None without pairs."""
    panels = [_panel(curves, pair, objectives) for pair in pairs]
    return Chart(panels, panel_height=440, side_legend=True) if panels else None


def _panel(curves: CurveSet, pair: PointPair, objectives: Objectives) -> ChartPanel:
    x, y, points = pair
    rows = points.to_dict("records")
    x_axis, y_axis = (
        metric_axis(points, metric, objectives, _reference_values(rows, metric))
        for metric in (x, y)
    )
    series = [
        *level_series(points, x_axis.limits or (0, 1), y, curves.fields),
        *upright_floors(points, y_axis.limits or (0, 1), x, curves.fields),
        *(_curve_series(curves, pair) if curves.joined else [_cloud(curves, pair)]),
        *obfuscation_series(curves.obfuscated, pair),
        *_marks(curves, pair),
        *raw_data_series(rows, x, y, log=x_axis.log),
    ]
    return ChartPanel(x_axis, y_axis, series)


def _reference_values(rows: Sequence[Row], metric: str) -> list[float]:
    floors = [row_interval(row, floor_of(metric)).value for row in rows]
    return floors + [raw_data_interval(row, metric).value for row in rows]


def level_series(
    points: pd.DataFrame, limits: tuple[float, float], y: str, fields: Sequence[str]
) -> Iterator[ChartSeries]:
    """Floors and raw-data values as horizontal lines; floors with bands for their intervals."""
    raw = RAW_DATA_VALUES.get(y)
    floor = TRIVIAL if y.startswith("utility/") else FLOOR
    for metric, name, color, dash in (
        (floor_of(y), floor, GREY, "dot"),
        (raw if isinstance(raw, str) else "", BASELINE, RED, "dash"),
    ):
        for level, suffix in metric_levels(points, y, metric, fields):
            if name == floor and level.high > level.low:
                band = [level.low, level.low, level.high, level.high]
                yield ChartSeries([*limits, *limits[::-1]], band, hover=[], fill="shade")
            label, hover = f"{name}{suffix}", [f"{name}{suffix}: {level}"] * 2
            label += f": {format_number(level.value)}"
            yield ChartSeries(list(limits), [level.value] * 2, label, color, line=dash, hover=hover)


def upright_floors(
    points: pd.DataFrame, limits: tuple[float, float], x: str, fields: Sequence[str]
) -> Iterator[ChartSeries]:
    """Floors of the metric on the x axis as upright lines; `limits` are those of the y axis."""
    for series in level_series(points, limits, x, fields):
        if not series.name.startswith(BASELINE):
            yield replace(series, x=series.y, y=series.x)


def metric_levels(
    points: pd.DataFrame, y: str, metric: str, fields: Sequence[str]
) -> list[tuple[Interval, str]]:
    """Different values of a metric, and the settings of their points in words.

    Values closer than 1% of the range of `y`, or whose intervals overlap, count as one: their mean
    with the widest interval.
    """
    if metric not in points:
        return []
    step = _SAME_LEVEL * (float(np.ptp(points[y])) or abs(float(points[y].iloc[0])))
    known = points.loc[points[metric].notna()].sort_values(metric)
    ends = (known.get(metric + end, known[metric]) for end in INTERVAL_SUFFIXES)
    low, high = (end.fillna(known[metric]) for end in ends)
    differs = (known[metric].diff() > step) & (low > high.cummax().shift())
    groups = [group for _, group in known.groupby(differs.cumsum())]
    levels = []
    for group, suffix in zip(groups, _suffixes(groups, fields), strict=True):
        low, high = (group.get(metric + end, pd.Series(math.nan)) for end in INTERVAL_SUFFIXES)
        interval = Interval(float(group[metric].mean()), float(low.min()), float(high.max()))
        levels.append((interval, suffix))
    return levels


def _suffixes(groups: Sequence[pd.DataFrame], fields: Sequence[str]) -> list[str]:
    """The settings of each group, in one field whose values no two groups share, if any."""
    for field in fields:
        values = [sorted({*map(label_setting, group[f"config/{field}"])}) for group in groups]
        every = [value for own in values for value in own]
        if len(groups) > 1 and len(every) == len(set(every)):
            return [f", {field_label(field)} = {' or '.join(own)}" for own in values]
    return [""] * len(groups)


def _curve_series(curves: CurveSet, pair: PointPair) -> Iterator[ChartSeries]:
    """A line for each curve; its color shows the first setting, dash and symbol the others."""
    x, y, points = pair
    keys = [tuple(map(format_setting, curve.settings.values())) for curve in curves.curves]
    firsts = list(dict.fromkeys(key[:1] for key in keys))
    others = list(dict.fromkeys(key[1:] for key in keys))
    for key, curve in zip(keys, curves.curves, strict=True):
        own = curve.points.loc[curve.points["point_id"].isin(points["point_id"])]
        color, style = firsts.index(key[:1]), others.index(key[1:])
        symbol = style if len(others) > 1 else color
        yield points_series(
            own,
            x,
            y,
            _hover(curves, own, x, y),
            name=label_settings(curve.settings) or _learned(curves),
            color=ramp(len(firsts))[color],
            line=DASHES[style % len(DASHES)],
            width=1.8,
            symbol=SYMBOLS[symbol % len(SYMBOLS)],
            hollow=is_flagged(own).tolist(),
            texts_left=bool(curves.obfuscated),
            texts=setting_texts(own, curves.knobs[:1]) if len(curves.curves) <= _MAX_NAMED else (),
        )


def obfuscation_series(curves: Sequence[TradeoffCurve], pair: PointPair) -> Iterator[ChartSeries]:
    """A dashed line for each trivial obfuscation, with the strength beside each point."""
    x, y, points = pair
    for place, curve in enumerate(curves):
        own = curve.points.loc[curve.points["point_id"].isin(points["point_id"])]
        name = label_settings(curve.settings)
        yield points_series(
            own,
            x,
            y,
            hover_texts(own, [STRENGTH], [x, y]),
            name=f"{name} alone, over its strength",
            color=obfuscation_color(place),
            line="dash",
            symbol="x",
            size=7,
            texts=setting_texts(own, [STRENGTH]),
        )


def setting_texts(points: pd.DataFrame, fields: Sequence[str]) -> list[str]:
    """Values of fields, to write beside points; none if there are too many."""
    if not fields or len(points) > _MAX_TEXTS:
        return []
    values = points[[f"config/{field}" for field in fields]].to_numpy(dtype=object)
    return [", ".join(map(label_setting, own)) for own in values]


def _cloud(curves: CurveSet, pair: PointPair) -> ChartSeries:
    """Points of too many curves, colored by the field along them."""
    x, y, points = pair
    points = points.loc[~is_obfuscated(points)]
    scale = field_scale(points, [curves.along] if curves.along else [])
    hover, name = _hover(curves, points, x, y), f"releases ({len(points)})"
    style: dict[str, Any] = {"symbol": "circle", "hollow": is_flagged(points).tolist()}
    return points_series(points, x, y, hover, name=name, scale=scale, **style)


def _learned(curves: CurveSet) -> str:
    """Legend of the only learned curve."""
    if not curves.obfuscated:
        return "release"
    if not curves.knobs:
        return "learned release"
    first, *others = map(field_label, curves.knobs)
    return f"learned release, over {first}" + (f" (with {', '.join(others)})" if others else "")


def _hover(curves: CurveSet, points: pd.DataFrame, x: str, y: str) -> list[str]:
    metrics = [metric for metric in (x, y, METRIC_FLOORS.get(y, "")) if metric in points]
    return hover_texts(points, curves.fields, metrics)


def _marks(curves: CurveSet, pair: PointPair) -> Iterator[ChartSeries]:
    """Rings around the first points at the floor, and the meaning of hollow markers."""
    x, y, points = pair
    samples = [sample for curve in curves.curves for sample in curve_samples(curve, y)]
    at_floor = [sample.point_id for sample in samples if sample.role == "full privacy"]
    ringed = points.loc[points["point_id"].isin(at_floor)]
    if len(ringed):
        yield ChartSeries(ringed[x], ringed[y], FIRST_AT_FLOOR, size=18, **_RING)
    if is_flagged(points).any():
        yield legend_entry(FLAGGED, **_RING)


def raw_data_series(rows: Sequence[Row], x: str, y: str, *, log: bool) -> Iterator[ChartSeries]:
    """Stars at the utility and privacy of raw data, once for values that look alike."""
    pairs: dict[tuple[str, str], tuple[Interval, Interval]] = {}
    for row in rows:
        across, up = raw_data_interval(row, x), raw_data_interval(row, y)
        if math.isfinite(across.value + up.value) and (across.value > 0 or not log):
            pairs.setdefault((f"{across.value:.2g}", f"{up.value:.2g}"), (across, up))
    if pairs:
        xs, ys = zip(*pairs.values(), strict=True)
        yield ChartSeries(
            [one.value for one in xs],
            [one.value for one in ys],
            f"{BASELINE} (both axes)",
            RED,
            symbol="star",
            size=14,
            x_errors=_errors(xs),
            y_errors=_errors(ys),
            hover=[
                f"{BASELINE}\n{metric_label(x)}: {a}\n{metric_label(y)}: {b}"
                for a, b in zip(xs, ys, strict=True)
            ],
        )


def _errors(intervals: Sequence[Interval]) -> Errors:
    halves = np.nan_to_num([interval.half for interval in intervals])
    return halves, halves
