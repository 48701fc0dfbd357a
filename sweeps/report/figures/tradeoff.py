"""Trade-off curves: the strongest attacker against utility, with floor and raw data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
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
    PointGroup,
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
from sweeps.report.figures.axes import hover_texts, metric_axis, points_trace, ramp
from sweeps.report.figures.curves import CurveSet, color_by_field, curve_samples, label_settings
from sweeps.report.figures.traces import (
    BASELINE,
    BLUE,
    DASHES,
    FLOOR,
    GREY,
    RED,
    SYMBOLS,
    TRIVIAL,
    Description,
    Plot,
    axis_limits,
    legend_entry,
    panel_figure,
    trace,
)

FIRST_AT_FLOOR = "first whose interval\nreaches the floor"
FLAGGED = "flagged: contradicts a floor,\na bound or convergence"

PointPair = tuple[str, str, pd.DataFrame]
"""Metrics of both axes, and the points at which they are finite."""

_MAX_PANELS = 4
_MAX_NAMED, _MAX_TEXTS = 3, 12  # curves with settings beside their points, and points of one
_SAME_LEVEL = 0.01
_NOISE_COLORS = (BLUE, "#2b8a3e", "#0b7285")
_RING: dict[str, Any] = {"symbol": "circle", "hollow": True, "color": "#868e96"}


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


def tradeoff_figure(
    curves: CurveSet, pairs: Sequence[PointPair], objectives: Objectives
) -> Description | None:
    """A panel for each pair: curves with 95% intervals, floors and raw data; None without pairs."""
    panels = []
    for x, y, points in pairs:
        rows = points.to_dict("records")
        references = {
            metric: [
                *(row_interval(row, floor_of(metric)).value for row in rows),
                *(raw_data_interval(row, metric).value for row in rows),
            ]
            for metric in (x, y)
        }
        x_axis, y_axis = (metric_axis(points, m, objectives, references[m]) for m in (x, y))
        traces = [
            *level_traces(points, axis_limits(x_axis) or (0, 1), y, curves.fields),
            *upright_floors(points, axis_limits(y_axis) or (0, 1), x, curves.fields),
            *_curve_traces(curves, x, y, points),
            *obfuscation_traces(curves.obfuscated, x, y, points),
        ]
        samples = [sample for curve in curves.curves for sample in curve_samples(curve, y)]
        at_floor = [sample.point_id for sample in samples if sample.role == "full privacy"]
        ringed = points.loc[points["point_id"].isin(at_floor)]
        if len(ringed):
            traces.append(trace(ringed[x], ringed[y], FIRST_AT_FLOOR, size=18, hover=[], **_RING))
        if is_flagged(points).any():
            traces.append(legend_entry(FLAGGED, **_RING))
        is_log = x_axis.get("type") == "log"
        panels.append(Plot(x_axis, y_axis, [*traces, *_raw_data(rows, x, y, log=is_log)]))
    return panel_figure(panels, panel_height=440, side_legend=True) if panels else None


def level_traces(
    points: pd.DataFrame, limits: tuple[float, float], y: str, fields: Sequence[str]
) -> Iterator[Description]:
    """Floors and raw-data values as horizontal lines; floors with bands for their intervals."""
    raw = RAW_DATA_VALUES.get(y)
    floor = TRIVIAL if y.startswith("utility/") else FLOOR
    for metric, name, color, dash in (
        (floor_of(y), floor, GREY, "dot"),
        (raw if isinstance(raw, str) else "", BASELINE, RED, "dash"),
    ):
        for level, suffix in _metric_levels(points, y, metric, fields):
            if name == floor and level.high > level.low:
                band = [level.low, level.low, level.high, level.high]
                yield trace([*limits, *limits[::-1]], band, hover=[], shade=True)
            label, hover = f"{name}{suffix}", [f"{name}{suffix}: {level}"] * 2
            label += f": {format_number(level.value)}"
            yield trace([*limits], [level.value] * 2, label, color, line=dash, hover=hover)


def upright_floors(
    points: pd.DataFrame, limits: tuple[float, float], x: str, fields: Sequence[str]
) -> Iterator[Description]:
    """Floors of the metric on the x axis as upright lines; `limits` are those of the y axis."""
    for own in level_traces(points, limits, x, fields):
        if not own["name"].startswith(BASELINE):
            yield own | {"x": own["y"], "y": own["x"]}


def _metric_levels(
    points: pd.DataFrame, y: str, metric: str, fields: Sequence[str]
) -> Iterator[tuple[Interval, str]]:
    """Different values of a metric, and a setting that tells their points apart in words.

    Values closer than 1% of the range of `y`, or whose intervals overlap, count as one: their mean
    with the widest interval.
    """
    if metric not in points:
        return
    step = _SAME_LEVEL * (float(np.ptp(points[y])) or abs(float(points[y].iloc[0])))
    known = points.loc[points[metric].notna()].sort_values(metric)
    ends = (known.get(metric + end, known[metric]) for end in INTERVAL_SUFFIXES)
    low, high = (end.fillna(known[metric]) for end in ends)
    differs = (known[metric].diff() > step) & (low > high.cummax().shift())
    groups = [group for _, group in known.groupby(differs.cumsum())]
    suffixes = [""] * len(groups)
    for field in fields if len(groups) > 1 else ():
        values = [sorted({*map(label_setting, group[f"config/{field}"])}) for group in groups]
        every = [value for own in values for value in own]
        if len(every) == len(set(every)):
            suffixes = [f", {field_label(field)} = {' or '.join(own)}" for own in values]
            break
    for group, suffix in zip(groups, suffixes, strict=True):
        low, high = (group.get(metric + end, pd.Series(math.nan)) for end in INTERVAL_SUFFIXES)
        yield Interval(float(group[metric].mean()), float(low.min()), float(high.max())), suffix


def _curve_traces(curves: CurveSet, x: str, y: str, points: pd.DataFrame) -> Iterator[Description]:
    """A line for each curve; its color shows the first setting, dash and symbol the others.

    Points of too many curves are colored by the field along them instead.
    """
    metrics = [metric for metric in (x, y, METRIC_FLOORS.get(y, "")) if metric in points]
    if not curves.joined:
        own = points.loc[~is_obfuscated(points)]
        style: dict[str, Any] = {"symbol": "circle", "hollow": is_flagged(own).tolist()}
        hover = hover_texts(own, curves.fields, metrics)
        cloud = points_trace(own, x, y, hover, f"releases ({len(own)})", **style)
        yield color_by_field(cloud, own, [curves.along] if curves.along else [])
        return
    only = "release"
    if curves.obfuscated:
        first, *paired = map(field_label, curves.knobs) if curves.knobs else ("",)
        only = f"learned release, over {first}" if first else "learned release"
        only += f" (with {', '.join(paired)})" if paired else ""
    keys = [tuple(map(format_setting, curve.settings.values())) for curve in curves.curves]
    firsts = list(dict.fromkeys(key[:1] for key in keys))
    others = list(dict.fromkeys(key[1:] for key in keys))
    for key, curve in zip(keys, curves.curves, strict=True):
        own = curve.points.loc[curve.points["point_id"].isin(points["point_id"])]
        place, dash = firsts.index(key[:1]), others.index(key[1:])
        symbol = dash if len(others) > 1 else place
        texts = setting_texts(own, curves.knobs[:1]) if len(curves.curves) <= _MAX_NAMED else []
        drawn = points_trace(
            own,
            x,
            y,
            hover_texts(own, curves.fields, metrics),
            label_settings(curve.settings) or only,
            color=ramp(len(firsts))[place],
            line=DASHES[dash % len(DASHES)],
            width=1.8,
            symbol=SYMBOLS[symbol % len(SYMBOLS)],
            hollow=is_flagged(own).tolist(),
            texts=texts,
        )
        yield drawn | ({"textposition": "middle left"} if curves.obfuscated and texts else {})


def obfuscation_traces(
    curves: Sequence[PointGroup], x: str, y: str, points: pd.DataFrame
) -> Iterator[Description]:
    """A dashed line for each trivial obfuscation, with the strength beside each point."""
    for place, curve in enumerate(curves):
        own = curve.points.loc[curve.points["point_id"].isin(points["point_id"])]
        yield points_trace(
            own,
            x,
            y,
            hover_texts(own, [STRENGTH], [x, y]),
            f"{label_settings(curve.settings)} alone, over its strength",
            color=_NOISE_COLORS[place % len(_NOISE_COLORS)],
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


def _raw_data(rows: Sequence[Row], x: str, y: str, *, log: bool) -> Iterator[Description]:
    """Stars at the utility and privacy of raw data, once for values that look alike."""
    pairs: dict[tuple[str, str], tuple[Interval, Interval]] = {}
    for row in rows:
        across, up = raw_data_interval(row, x), raw_data_interval(row, y)
        if math.isfinite(across.value + up.value) and (across.value > 0 or not log):
            pairs.setdefault((f"{across.value:.2g}", f"{up.value:.2g}"), (across, up))
    if not pairs:
        return
    xs, ys = zip(*pairs.values(), strict=True)
    x_half, y_half = (np.nan_to_num([each.half for each in own]) for own in (xs, ys))
    yield trace(
        [one.value for one in xs],
        [one.value for one in ys],
        f"{BASELINE} (both axes)",
        RED,
        symbol="star",
        size=14,
        errors=((x_half, x_half), (y_half, y_half)),
        hover=[
            f"{BASELINE}\n{metric_label(x)}: {a}\n{metric_label(y)}: {b}"
            for a, b in zip(xs, ys, strict=True)
        ],
    )
