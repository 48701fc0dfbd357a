"""ROC curves of attacks on a few points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plotly.colors import qualitative

from privnets.points import TradeoffPoint
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
    names = sorted({key for p in points for key in p.curves if key.startswith(_PREFIX)})
    colors = dict(zip(names, qualitative.Plotly * len(names), strict=False))
    limits = (_LOWEST_RATE, 10**0.02)
    x_axis, y_axis = (
        ChartAxis(f"{kind}-positive rate", True, limits) for kind in ("false", "true")
    )
    ends = [_LOWEST_RATE, 1]
    panels = []
    for point in points:
        curves = [
            ChartSeries(
                [step / 1000 for step in point.curves[name].steps],
                point.curves[name].values,
                name.removeprefix(_PREFIX),
                colors[name],
                line="solid",
            )
            for name in names
            if name in point.curves
        ]
        if curves:
            chance = ChartSeries(ends, ends, "chance", line="dash", width=1, hover=[])
            panels.append(ChartPanel(x_axis, y_axis, [chance, *curves], labels[point.point_id]))
    return Chart(panels) if panels else None
