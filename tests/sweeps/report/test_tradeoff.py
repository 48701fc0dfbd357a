"""Pictures of trade-off curves say what the frame says, with floor and raw data."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from figure_traces import find_traces
from synthetic_releases import (
    FLOOR,
    STRONGEST,
    image_sweep,
    power_sweep,
    toy_sweep,
    with_metrics,
)
from synthetic_sweep import fail_point

from sweeps.report.figures.curves import group_curves
from sweeps.report.figures.png import draw_figure
from sweeps.report.figures.traces import BASELINE
from sweeps.report.figures.traces import FLOOR as FLOOR_NAME
from sweeps.report.figures.tradeoff import (
    FIRST_AT_FLOOR,
    tradeoff_figure,
    tradeoff_pairs,
)

ACCURACY, ERROR = "utility/accuracy", "utility/normalized_error"


def draw(sweep):
    curves = group_curves(sweep)
    return tradeoff_figure(curves, tradeoff_pairs(curves, sweep.objectives), sweep.objectives)


def test_each_curve_holds_its_points_with_both_intervals_in_order_of_the_weight():
    sweep = image_sweep(alphas=(0.5, math.inf))
    lines = find_traces(draw(sweep), "order alpha")
    assert [t["name"] for t in lines] == [
        f"order alpha = {a}, gradient = {g}" for a in ("0.5", "∞") for g in ("label", "posterior")
    ]
    points = sweep.points
    for line, (alpha, gradient) in zip(
        lines, [(a, g) for a in (0.5, math.inf) for g in ("label", "posterior")], strict=True
    ):
        own = points[(points["config/alpha"] == alpha) & (points["config/gradient"] == gradient)]
        own = own.sort_values("config/privacy_weight")
        assert list(line["x"]) == list(own[ACCURACY])
        assert list(line["y"]) == list(own[STRONGEST])
        assert line["error_x"]["array"] == pytest.approx(own[f"{ACCURACY}.ci_high"] - own[ACCURACY])
        assert line["error_y"]["arrayminus"] == pytest.approx(
            own[STRONGEST] - own[f"{STRONGEST}.ci_low"]
        )


def test_floor_and_raw_data_are_drawn_where_the_frame_has_them():
    sweep = image_sweep(gradients=("label",))
    figure = draw(sweep)
    (floor,), (raw_line,), (star,) = (
        find_traces(figure, start) for start in ("floor", f"{BASELINE}:", f"{BASELINE} (both")
    )
    assert floor["y"] == pytest.approx([0.562] * 2)
    assert raw_line["y"] == pytest.approx([0.931] * 2)
    assert (
        floor["x"][0]
        <= sweep.points[ACCURACY].min()
        < sweep.points[ACCURACY].max()
        <= floor["x"][1]
    )
    assert (list(star["x"]), list(star["y"])) == ([pytest.approx(0.985)], [pytest.approx(0.931)])


def test_floor_is_a_band_as_wide_as_its_interval():
    sweep = image_sweep(alphas=(1.0,), gradients=("label",))
    points = [
        replace(
            p,
            replicates=tuple(
                replace(r, metrics={**r.metrics, FLOOR: 0.56 + 0.004 * r.seed})
                for r in p.replicates
            ),
        )
        for p in sweep.tradeoff_points
    ]
    sweep = replace(sweep, tradeoff_points=points)
    band = next(t for t in draw(sweep)["data"] if "fill" in t)
    assert min(band["y"]) == pytest.approx(sweep.points[f"{FLOOR}.ci_low"].min())
    assert max(band["y"]) == pytest.approx(sweep.points[f"{FLOOR}.ci_high"].max())


def test_different_floors_name_the_field_they_depend_on():
    floors = find_traces(draw(power_sweep()), "floor")
    assert [t["name"] for t in floors] == [
        f"{FLOOR_NAME}, side information = false: 0.5",
        f"{FLOOR_NAME}, side information = true: 0.578",
    ]
    assert len(find_traces(draw(power_sweep()), f"{BASELINE}: 0.861")) == 1


def test_first_full_privacy_is_ringed():
    sweep = image_sweep(gradients=("label",))
    (ring,) = find_traces(draw(sweep), FIRST_AT_FLOOR.replace("\n", "<br>"))
    points = sweep.points
    reaching = points[points[f"{STRONGEST}.ci_low"] <= points[FLOOR]]
    first = reaching.sort_values("config/privacy_weight").drop_duplicates("config/alpha")
    assert sorted(ring["y"]) == sorted(first[STRONGEST])


def test_failed_and_undefined_points_are_not_drawn():
    sweep = image_sweep(alphas=(1.0,), gradients=("label",))
    points = list(sweep.tradeoff_points)
    points[0] = fail_point(points[0], "diverged")
    points[1] = with_metrics(points[1], utility__accuracy=math.nan)
    points[2] = with_metrics(points[2], utility__accuracy=math.inf)
    (line,) = find_traces(draw(replace(sweep, tradeoff_points=points)), "release")
    assert len(line["x"]) == len(points) - 3


def test_no_chart_without_a_floor_or_a_raw_data_value(membership_sweep):
    for sweep in (membership_sweep, toy_sweep()):
        assert tradeoff_pairs(group_curves(sweep), sweep.objectives) == []


def test_names_are_escaped_and_not_parsed_as_formulas():
    sweep = image_sweep(alphas=(1.0, 2.0), gradients=("<b>$x_1$</b>", "label"), weights=(0.0, 1.0))
    figure = draw(sweep)
    assert not any("<b>" in trace["name"] for trace in figure["data"])
    hovers = [text for trace in figure["data"] for text in trace.get("hovertext", ())]
    assert not any("<b>" in text for text in hovers)
    texts = draw_figure(figure).legends[0].get_texts()
    assert any("<b>$x_1$</b>" in text.get_text() for text in texts)
    assert not any(text.get_parse_math() for text in texts)
