"""ROC curves of attacks on a few points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plotly.colors import qualitative

from privnets.points import Curve, TradeoffPoint
from sweeps.report.figures.charts import Chart, ChartAxis, ChartPanel, ChartSeries

_PREFIX = "roc/"
_LOWEST_RATE = 1e-3


def roc_chart(points: Sequence[TradeoffPoint], labels: Mapping[str, str]) -> Chart | None:
    """True- against false-positive rate of each attack, one panel per point.

    Curves under `roc/` have true-positive rates at false-positive rates in thousandths. Both axes
    are logarithmic, as small rates matter most (Carlini et al., arXiv 2112.03570); rates of zero
    are not drawn.

    Args:
        points: The points.
        labels: `point_id` to the panel's title.

    Returns:
        The chart; None if no point has such curves.
    """
    curves = {point.point_id: _roc_curves(point) for point in points}
    attacks = sorted({attack for own in curves.values() for attack in own})
    if not attacks:
        return None
    colors = dict(zip(attacks, qualitative.Plotly * len(attacks), strict=False))
    limits = (_LOWEST_RATE, 10**0.02)
    axes = [ChartAxis(f"{kind}-positive rate", True, limits) for kind in ("false", "true")]
    ends = [_LOWEST_RATE, 1]
    panels = [
        ChartPanel(
            axes[0],
            axes[1],
            [
                ChartSeries(ends, ends, "chance", line="dash", width=1, hover=[]),
                *(_attack_series(name, curve, colors[name]) for name, curve in own.items()),
            ],
            labels[point_id],
        )
        for point_id, own in curves.items()
        if own
    ]
    return Chart(panels)


def _attack_series(name: str, curve: Curve, color: str) -> ChartSeries:
    rates = [step / 1000 for step in curve.steps]
    return ChartSeries(rates, curve.values, name, color, line="solid")


def _roc_curves(point: TradeoffPoint) -> dict[str, Curve]:
    return {
        key.removeprefix(_PREFIX): curve
        for key, curve in sorted(point.curves.items())
        if key.startswith(_PREFIX)
    }
