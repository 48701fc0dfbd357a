"""Figures of recorded curves: ROC curves of attacks, training, and convergence of attackers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from plotly.colors import qualitative

from privnets.points import TradeoffPoint
from privnets.statistics.intervals import LEVEL, student_quantile
from sweeps.report.figures.axes import ramp
from sweeps.report.figures.traces import DASHES, Description, Plot, axis, panel_figure, trace

ROC, ATTACKER = "roc/", "attacker/"

_LOWEST_RATE = 1e-3
_SHOWN_ATTACKS = 4
_MAX_PANELS = 8
_KINDS = {"information": ", nats", "attacker": ": validation loss, nats"}


def roc_figure(points: Sequence[TradeoffPoint], titles: Mapping[str, str]) -> Description | None:
    """True- against false-positive rate of each attack, one panel per point; None without curves.

    Curves under `roc/` have true-positive rates at false-positive rates in thousandths. Both axes
    are logarithmic, as small rates matter most (Carlini et al., arXiv 2112.03570); rates below a
    thousandth are drawn as one. Only the attacks with the largest advantage over these points are
    visible at first. `titles` has the panel's title of each `point_id`.
    """
    advantages: dict[str, list[float]] = {}
    for point in points:
        for name, curve in point.curves.items():
            if name.startswith(ROC) and curve.steps:
                gains = np.array(curve.values) - np.array(curve.steps) / 1000
                advantages.setdefault(name, []).append(float(gains.max()))
    names = sorted(advantages, key=lambda name: (-float(np.mean(advantages[name])), name))
    styles = dict(zip(names, zip(cycle(qualitative.Plotly), cycle(DASHES)), strict=False))
    limits, ends = (_LOWEST_RATE, 10**0.02), [_LOWEST_RATE, 1]
    x_axis, y_axis = (
        axis(f"{kind}-positive rate", log=True, limits=limits) for kind in ("false", "true")
    )
    panels = []
    for point in points:
        traces = [trace(ends, ends, "chance", line="dash", width=1, hover=[])]
        for name in names:
            label, (color, dash) = name.removeprefix(ROC).replace("_", " "), styles[name]
            style = {"line": dash} | (
                {"visible": "legendonly"} if name in names[_SHOWN_ATTACKS:] else {}
            )
            traces += _band_traces(point, name, label, color, **style)
        if len(traces) > 1:
            panels.append(Plot(x_axis, y_axis, traces, titles[point.point_id]))
    return panel_figure(panels) if panels else None


def training_figure(
    points: Sequence[TradeoffPoint], titles: Mapping[str, str]
) -> Description | None:
    """Recorded curves of training, a panel for each quantity and a line for each point.

    Returns None if nothing was recorded. `titles` has the legend of each `point_id`.
    """
    names = {key for p in points for key in p.curves if not key.startswith((ROC, ATTACKER))}
    return _lines_figure(points, titles, names, axis("training step"))


def convergence_figure(
    points: Sequence[TradeoffPoint], titles: Mapping[str, str]
) -> Description | None:
    """Lowest validation loss so far of each attacker network; see `training_figure`."""
    names = {key for p in points for key in p.curves if key.startswith(ATTACKER)}
    return _lines_figure(points, titles, names, axis("training step of the attacker", log=True))


def _lines_figure(
    points: Sequence[TradeoffPoint],
    titles: Mapping[str, str],
    names: Collection[str],
    x_axis: Description,
) -> Description | None:
    colors = dict(zip(titles, ramp(len(titles)), strict=True))
    panels = []
    for name in sorted(names)[:_MAX_PANELS]:
        kind, _, owner = name.partition("/")
        y_axis = axis(f"{owner.replace('_', ' ')}{_KINDS.get(kind, f' {kind}')}".strip())
        ids = [(point, point.point_id) for point in points]
        traces = [t for p, i in ids for t in _band_traces(p, name, titles[i], colors[i])]
        panels.append(Plot(x_axis, y_axis, traces))
    return panel_figure(panels, panel_height=260) if panels else None


def _band_traces(
    point: TradeoffPoint, name: str, label: str, color: str, line: str = "solid", **style: Any
) -> Iterator[Description]:
    """Mean of a curve over the replicates with the same steps, and its 95% band if there is one."""
    curves = [each.curves[name] for each in point.succeeded if name in each.curves]
    if not curves:
        return
    steps = np.array(curves[0].steps, dtype=np.float64)
    values = np.array([each.values for each in curves if each.steps == curves[0].steps])
    mean, count = values.mean(axis=0), len(values)
    quantile = float(student_quantile(max(count - 1, 1), (1 + LEVEL) / 2))
    half = quantile * values.std(axis=0) / np.sqrt(max(count - 1, 1))
    low, high = mean - half, mean + half
    if name.startswith((ROC, "accuracy/")):
        low, high = low.clip(0, 1), high.clip(0, 1)
    if name.startswith(ROC):
        shown = steps > 0
        steps = steps[shown] / 1000
        mean, low, high = (part[shown].clip(_LOWEST_RATE) for part in (mean, low, high))
    yield trace(steps, mean, label, color, line=line, **style)
    known = np.isfinite(mean)
    if count > 1 and known.any():
        steps, low, high = (part[known] for part in (steps, low, high))
        x, y = np.append(steps, steps[::-1]), np.append(high, low[::-1])
        yield trace(x, y, label, color, hover=[], shade=True, **style)
