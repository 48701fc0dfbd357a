"""The information plane shows learned, estimated and possible information."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from synthetic_releases import DEPENDENCE, image_sweep, toy_sweep, with_metrics

from privnets.measures.best_release import best_loss, release_boundary
from sweeps.report.figures.curves import group_curves
from sweeps.report.figures.plane import (
    best_on_boundary,
    information_plane,
    training_path,
)

DEPENDENCES, WEIGHTS = (0.0, 0.4, 1.0), (0.1, 0.5, 0.8)


@pytest.fixture(scope="module")
def toy():
    return toy_sweep()


@pytest.fixture(scope="module")
def chart(toy):
    return information_plane(toy, group_curves(toy))


def estimates(panel):
    """Series of estimated points: large hollow circles with intervals."""
    return [series for series in panel.series if series.hollow and series.x_errors is not None]


def test_each_dependence_has_a_panel_with_its_points_in_order(toy, chart):
    points = toy.points
    assert [panel.title for panel in chart.panels] == [
        "dependence = 0",
        "dependence = 0.4",
        "dependence = 1",
    ]
    for panel, dependence in zip(chart.panels, DEPENDENCES, strict=True):
        own = points[points[f"config/{DEPENDENCE}"] == dependence].sort_values("config/tradeoff")
        rings = estimates(panel)
        assert [ring.y.iloc[0] for ring in rings] == list(own["privacy/leakage"])
        assert [ring.x.iloc[0] for ring in rings] == list(own["utility/censored"])
        low = own["privacy/leakage"] - own["privacy/leakage.ci_low"]
        assert [ring.y_errors[0][0] for ring in rings] == pytest.approx(list(low))
        names = [ring.hover[0].split("\n")[0] for ring in rings]
        assert names == [f"tradeoff weight = {weight}" for weight in WEIGHTS]
        exact = [s for s in panel.series if s.symbol == "circle" and s.size == 8 and not s.name]
        assert [(s.y[0], s.x[0]) for s in exact] == list(
            zip(own["exact/leakage"], own["exact/censored"], strict=True)
        )


def test_paths_hold_the_information_during_training(toy):
    for point in toy.tradeoff_points:
        leakage, censored = training_path(point)
        assert tuple(leakage) == point.curves["exact/leakage"].values
        assert tuple(censored) == point.curves["exact/censored"].values


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
