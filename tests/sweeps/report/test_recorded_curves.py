"""Recorded curves: the strongest attacks are visible, and attackers show their convergence."""

from __future__ import annotations

from chart_series import all_series, find_series

from privnets.points import Curve, Replicate, TradeoffPoint
from sweeps.report.figures.plotly_charts import plotly_figure
from sweeps.report.figures.png_charts import draw_chart
from sweeps.report.figures.recorded import convergence_chart, roc_chart, training_chart

RATES = tuple(range(0, 1001, 100))
TITLES = {"p": "the point"}


def point(**curves: Curve) -> TradeoffPoint:
    replicates = (Replicate(seed, {}, curves=curves) for seed in range(2))
    return TradeoffPoint("p", "membership", {}, tuple(replicates))


def attacked(strengths: dict[str, float]) -> TradeoffPoint:
    curves = {
        f"roc/{name}": Curve(RATES, tuple((rate / 1000) ** (1 - strength) for rate in RATES))
        for name, strength in strengths.items()
    }
    return point(**curves)


def test_only_the_four_strongest_attacks_are_visible_at_first():
    strengths = {name: 0.1 * place for place, name in enumerate("fdbeac")}
    chart = roc_chart([attacked(strengths)], TITLES)
    assert chart is not None
    traces = plotly_figure(chart).data[1:]
    assert {t.name for t in traces if t.visible != "legendonly"} == set("bcea")
    assert {t.name for t in traces if t.visible == "legendonly"} == set("df")
    assert all(trace.legendgroup == trace.name for trace in traces)
    (legend,) = draw_chart(chart).legends
    assert [text.get_text() for text in legend.get_texts()] == ["chance", "c", "a", "e", "b"]


def test_attackers_converge_on_a_logarithmic_axis_apart_from_training():
    curves = {"loss/releaser": Curve((1, 2), (2.0, 1.0))}
    curves["attacker/large_network"] = Curve((25, 50, 100), (0.7, 0.6, 0.6))
    shown = point(**curves)
    training, convergence = (make([shown], TITLES) for make in (training_chart, convergence_chart))
    assert [panel.y.label for panel in training.panels] == ["releaser loss"]
    (panel,) = convergence.panels
    assert (panel.y.label, panel.x.log) == ("large network: validation loss, nats", True)
    assert list(find_series(convergence, "the point")[0].y) == [0.7, 0.6, 0.6]
    assert len(list(all_series(convergence))) == 2  # the mean and its band


def test_sweeps_without_such_curves_have_no_figure():
    assert training_chart([point()], TITLES) is convergence_chart([point()], TITLES) is None
