"""The information plane shows learned, estimated and possible information."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from synthetic_releases import DEPENDENCE, image_sweep, toy_sweep, with_metrics

from privnets.measures.best_release import best_loss, release_boundary
from sweeps.report.figures.curves import group_curves
from sweeps.report.figures.plane import best_on_boundary, information_plane

DEPENDENCES, WEIGHTS = (0.0, 0.4, 1.0), (0.1, 0.5, 0.8)


@pytest.fixture(scope="module")
def toy():
    return toy_sweep()


@pytest.fixture(scope="module")
def figure(toy):
    return information_plane(toy, group_curves(toy))


def test_each_dependence_has_a_panel_with_its_points_in_order(toy, figure):
    points = toy.points
    assert [title["text"] for title in figure["layout"]["annotations"]] == [
        "dependence = 0",
        "dependence = 0.4",
        "dependence = 1",
    ]
    for place, dependence in enumerate(DEPENDENCES):
        traces = [t for t in figure["data"] if t["xaxis"] == ("x", "x2", "x3")[place]]
        own = points[points[f"config/{DEPENDENCE}"] == dependence].sort_values("config/tradeoff")
        rings = [trace for trace in traces if "error_x" in trace]
        assert [ring["y"].iloc[0] for ring in rings] == list(own["privacy/leakage"])
        assert [ring["x"].iloc[0] for ring in rings] == list(own["utility/censored"])
        assert [ring["customdata"] for ring in rings] == [[row] for row in own.index]
        low = own["privacy/leakage"] - own["privacy/leakage.ci_low"]
        assert [ring["error_y"]["arrayminus"][0] for ring in rings] == pytest.approx(list(low))
        names = [ring["hovertext"][0].split("<br>")[0] for ring in rings]
        assert names == [f"tradeoff weight = {weight}" for weight in WEIGHTS]
        exact = [t for t in traces if "exact" in str(t.get("hovertext"))]
        assert [(t["y"][0], t["x"][0]) for t in exact] == list(
            zip(own["exact/leakage"], own["exact/censored"], strict=True)
        )


def test_paths_hold_the_information_during_training(toy, figure):
    paths = {(tuple(t["x"]), tuple(t["y"])) for t in figure["data"] if t.get("opacity") == 0.6}
    for point in toy.tradeoff_points:
        names = ("exact/censored", "exact/leakage")
        assert tuple(point.curves[name].values for name in names) in paths


@pytest.mark.parametrize("dependence", DEPENDENCES)
@pytest.mark.parametrize("weight", WEIGHTS)
def test_best_release_has_the_least_loss_that_duality_proves(dependence, weight):
    leakage, censored = best_on_boundary(release_boundary(dependence, 2001), weight)
    loss = (1 - weight) * censored**2 + weight * leakage**2
    assert loss == pytest.approx(best_loss(dependence, weight), rel=1e-5, abs=1e-12)


def test_no_plane_without_exact_information(toy):
    images = image_sweep(alphas=(1.0,), gradients=("label",))
    assert information_plane(images, group_curves(images)) is None
    undefined = [with_metrics(p, exact__leakage=math.nan) for p in toy.tradeoff_points]
    lost = replace(toy, tradeoff_points=undefined)
    assert information_plane(lost, group_curves(lost)) is None
