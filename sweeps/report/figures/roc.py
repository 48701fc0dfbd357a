"""ROC curves of attacks on a few points."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
from plotly.colors import qualitative
from plotly.subplots import make_subplots

from privnets.points import Curve, TradeoffPoint
from sweeps.report.figures.plots import DOMINATED, THEME

PREFIX = "roc/"
"""Curves under it are true-positive rates at false-positive rates in thousandths."""

_LOWEST = 1e-3
_COLUMNS = 2


def roc_figure(points: Sequence[TradeoffPoint], labels: Mapping[str, str]) -> go.Figure | None:
    """True- against false-positive rate of each attack, a panel per point.

    Both axes are logarithmic, as an attack that is sure about few records matters most
    (Carlini et al., arXiv 2112.03570); rates of zero lie off them.

    Args:
        points: The points to show.
        labels: `point_id` to the panel's title.

    Returns:
        The figure; None when no point has such curves.
    """
    shown = [point for point in points if _curves(point)]
    if not shown:
        return None
    attacks = sorted({attack for point in shown for attack in _curves(point)})
    rows = -(-len(shown) // _COLUMNS)
    titles = [html.escape(labels[point.point_id]) for point in shown]
    figure = make_subplots(
        rows=rows,
        cols=min(len(shown), _COLUMNS),
        subplot_titles=titles,
        vertical_spacing=0.2 / rows,
    )
    named: set[str] = set()
    for index, point in enumerate(shown):
        for trace in (_chance(), *_traces(point, attacks)):
            trace.showlegend = trace.name not in named
            named.add(trace.name)
            figure.add_trace(trace, row=index // _COLUMNS + 1, col=index % _COLUMNS + 1)
    limits = {"type": "log", "range": [-3, 0.02], "dtick": 1}
    figure.update_xaxes(title_text="false-positive rate", **limits)
    figure.update_yaxes(title_text="true-positive rate", **limits)
    return figure.update_layout(template=THEME, height=100 + 380 * rows, margin={"t": 90})


def _curves(point: TradeoffPoint) -> dict[str, Curve]:
    return {
        key.removeprefix(PREFIX): curve
        for key, curve in point.curves.items()
        if key.startswith(PREFIX)
    }


def _traces(point: TradeoffPoint, attacks: Sequence[str]) -> list[go.Scatter]:
    curves = _curves(point)
    palette = qualitative.Plotly
    return [
        go.Scatter(
            x=[step / 1000 for step in curves[attack].steps],
            y=curves[attack].values,
            mode="lines",
            name=html.escape(attack),
            legendgroup=html.escape(attack),
            line={"color": palette[index % len(palette)], "width": 1.5},
        )
        for index, attack in enumerate(attacks)
        if attack in curves
    ]


def _chance() -> go.Scatter:
    line = {"color": DOMINATED, "dash": "dash", "width": 1}
    ends = [_LOWEST, 1]
    return go.Scatter(x=ends, y=ends, mode="lines", line=line, name="chance", hoverinfo="skip")
