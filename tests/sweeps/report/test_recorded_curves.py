"""Recorded curves: the strongest attacks are visible, and attackers show their convergence."""

from __future__ import annotations

from figure_traces import axis_title, find_traces

from privnets.points import Curve, Replicate, TradeoffPoint
from sweeps.report.figures.png import draw_figure
from sweeps.report.figures.recorded import convergence_figure, roc_figure, training_figure

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
    figure = roc_figure([attacked(strengths)], TITLES)
    assert figure is not None
    traces = figure["data"][1:]
    assert {t["name"] for t in traces if "visible" not in t} == set("bcea")
    assert {t["name"] for t in traces if t.get("visible") == "legendonly"} == set("df")
    assert all(trace["legendgroup"] == trace["name"] for trace in traces)
    (legend,) = draw_figure(figure).legends
    assert [text.get_text() for text in legend.get_texts()] == ["chance", "c", "a", "e", "b"]


def test_attackers_converge_on_a_logarithmic_axis_apart_from_training():
    curves = {"loss/releaser": Curve((1, 2), (2.0, 1.0))}
    curves["attacker/large_network"] = Curve((25, 50, 100), (0.7, 0.6, 0.6))
    shown = point(**curves)
    training, convergence = (
        make([shown], TITLES) for make in (training_figure, convergence_figure)
    )
    assert axis_title(training, "yaxis") == "releaser loss"
    assert "yaxis2" not in {**training["layout"], **convergence["layout"]}
    assert axis_title(convergence, "yaxis") == "large network: validation loss, nats"
    assert convergence["layout"]["xaxis"]["type"] == "log"
    mean, band = find_traces(convergence, "the point")
    assert list(mean["y"]) == [0.7, 0.6, 0.6]
    assert band["fill"] == "toself"


def test_sweeps_without_such_curves_have_no_figure():
    assert training_figure([point()], TITLES) is convergence_figure([point()], TITLES) is None
