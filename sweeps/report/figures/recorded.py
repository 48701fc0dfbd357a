"""Charts of recorded curves: ROC curves of attacks, training, and convergence of attackers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import cycle
from typing import NamedTuple

import numpy as np
from plotly.colors import qualitative

from privnets.points import TradeoffPoint
from privnets.statistics.intervals import LEVEL, Array, student_quantile
from sweeps.report.figures.charts import DASHES, Chart, ChartAxis, ChartPanel, ChartSeries, ramp

ROC, ATTACKER = "roc/", "attacker/"

_LOWEST_RATE = 1e-3
_SHOWN_ATTACKS = 4
_SHARES = (ROC, "accuracy/")
_MAX_PANELS = 8
_KINDS = {"information": ", nats", "attacker": ": validation loss, nats"}


class CurveBand(NamedTuple):
    """Mean of a curve over replicates with its 95% interval, each of shape [steps]."""

    steps: Array
    mean: Array
    low: Array
    high: Array


def curve_band(point: TradeoffPoint, name: str) -> CurveBand | None:
    """A point's curve over the replicates with the same steps; None if no replicate has it."""
    curves = [each.curves[name] for each in point.succeeded if name in each.curves]
    if not curves:
        return None
    steps = curves[0].steps
    values = np.array([each.values for each in curves if each.steps == steps])
    mean, half = values.mean(axis=0), np.full(len(steps), np.nan)
    if (count := len(values)) > 1:
        quantile = float(student_quantile(count - 1, (1 + LEVEL) / 2))
        half = quantile * values.std(axis=0, ddof=1) / np.sqrt(count)
    low, high = mean - half, mean + half
    if name.startswith(_SHARES):
        low, high = low.clip(0, 1), high.clip(0, 1)
    return CurveBand(np.array(steps, dtype=np.float64), mean, low, high)


def roc_chart(points: Sequence[TradeoffPoint], titles: Mapping[str, str]) -> Chart | None:
    """True- against false-positive rate of each attack, one panel per point; None without curves.

    Curves under `roc/` have true-positive rates at false-positive rates in thousandths. Both axes
    are logarithmic, as small rates matter most (Carlini et al., arXiv 2112.03570); rates below a
    thousandth are drawn as one. Only the attacks with the largest advantage over these points are
    visible at first. `titles` has the panel's title of each `point_id`.
    """
    names = _strongest_first(points)
    styles = dict(zip(names, zip(cycle(qualitative.Plotly), cycle(DASHES)), strict=False))
    limits, ends = (_LOWEST_RATE, 10**0.02), [_LOWEST_RATE, 1]
    x_axis, y_axis = (
        ChartAxis(f"{kind}-positive rate", True, limits) for kind in ("false", "true")
    )
    panels = []
    for point in points:
        series = [ChartSeries(ends, ends, "chance", line="dash", width=1, hover=[])]
        for name in names:
            if (band := curve_band(point, name)) is not None:
                shown = band.steps > 0
                rates, *parts = (part[shown] for part in band)
                clipped = (part.clip(_LOWEST_RATE) for part in parts)
                label = name.removeprefix(ROC).replace("_", " ")
                hidden = name in names[_SHOWN_ATTACKS:]
                series += _draw(CurveBand(rates / 1000, *clipped), label, *styles[name], hidden)
        if len(series) > 1:
            panels.append(ChartPanel(x_axis, y_axis, series, titles[point.point_id]))
    return Chart(panels) if panels else None


def _strongest_first(points: Sequence[TradeoffPoint]) -> list[str]:
    """ROC curves in order of the mean over points of the attack's advantage."""
    advantages: dict[str, list[float]] = {}
    for point in points:
        for name, curve in point.curves.items():
            if name.startswith(ROC) and curve.steps:
                gains = np.array(curve.values) - np.array(curve.steps) / 1000
                advantages.setdefault(name, []).append(float(gains.max()))
    return sorted(advantages, key=lambda name: (-float(np.mean(advantages[name])), name))


def training_chart(points: Sequence[TradeoffPoint], titles: Mapping[str, str]) -> Chart | None:
    """Recorded curves of training, a panel for each quantity and a line for each point.

    Returns None if nothing was recorded. `titles` has the legend of each `point_id`.
    """
    names = {key for p in points for key in p.curves if not key.startswith((ROC, ATTACKER))}
    return _lines_chart(points, titles, names, ChartAxis("training step"))


def convergence_chart(points: Sequence[TradeoffPoint], titles: Mapping[str, str]) -> Chart | None:
    """Lowest validation loss so far of each attacker network; see `training_chart`."""
    names = {key for p in points for key in p.curves if key.startswith(ATTACKER)}
    return _lines_chart(points, titles, names, ChartAxis("training step of the attacker", log=True))


def _lines_chart(
    points: Sequence[TradeoffPoint], titles: Mapping[str, str], names: Set[str], x_axis: ChartAxis
) -> Chart | None:
    colors = dict(zip(titles, ramp(len(titles)), strict=True))
    panels = []
    for name in sorted(names)[:_MAX_PANELS]:
        series: list[ChartSeries] = []
        for point in points:
            if (band := curve_band(point, name)) is not None:
                series += _draw(band, titles[point.point_id], colors[point.point_id])
        kind, _, owner = name.partition("/")
        kind = _KINDS.get(kind, f" {kind}")
        label = f"{owner.replace('_', ' ')}{kind}".strip()
        panels.append(ChartPanel(x_axis, ChartAxis(label), series))
    return Chart(panels, panel_height=260) if panels else None


def _draw(
    band: CurveBand, name: str, color: str, line: str = "solid", hidden: bool = False
) -> Iterator[ChartSeries]:
    """The mean, and the band around it if there is one."""
    yield ChartSeries(band.steps, band.mean, name, color, line=line, hidden=hidden)
    known = np.isfinite(band.low + band.high)
    if known.any():
        steps, low, high = (part[known] for part in (band.steps, band.low, band.high))
        around = np.concatenate([steps, steps[::-1]]), np.concatenate([high, low[::-1]])
        yield ChartSeries(*around, name, color, hover=[], fill="shade", hidden=hidden)
