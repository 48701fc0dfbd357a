"""The information plane shows what was learned, estimated and possible."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from made_releases import made_images, made_toy, with_metrics

from privnets.measures.best_release import best_loss
from sweeps.report.figures.curves import curve_set
from sweeps.report.figures.plane import planes
from sweeps.report.figures.plane_figure import draw_plane, plane_figure


@pytest.fixture(scope="module")
def toy():
    return made_toy()


@pytest.fixture(scope="module")
def found(toy):
    return planes(toy, curve_set(toy))


def test_a_plane_for_each_dependence_with_its_points_in_order(found):
    assert [plane.title for plane in found] == [f"dependence = {k}" for k in ("0", "0.4", "1")]
    for plane in found:
        assert [point.shade for point in plane.points] == [0.1, 0.5, 0.8]
        assert [point.name for point in plane.points] == [
            f"tradeoff = {a}" for a in (0.1, 0.5, 0.8)
        ]


def test_points_are_those_of_the_frame(toy, found):
    points = toy.points
    for plane, k in zip(found, (0.0, 0.4, 1.0), strict=True):
        own = points[points["config/dependence"] == k].sort_values("config/tradeoff")
        assert [p.exact for p in plane.points] == list(
            zip(own["exact/leakage"], own["exact/censored"], strict=True)
        )
        assert [p.leakage.low for p in plane.points] == list(own["privacy/leakage.ci_low"])
        assert [p.censored.mean for p in plane.points] == list(own["utility/censored"])
        assert plane.bound == own["bound/release"].iloc[0]


def test_paths_end_where_training_ended(toy, found):
    by_id = {p.config["tradeoff"]: p for p in toy.tradeoff_points if p.config["dependence"] == 0.4}
    for point in found[1].points:
        assert tuple(point.path[0]) == by_id[point.shade].curves["exact/leakage"].values
        assert tuple(point.path[1]) == by_id[point.shade].curves["exact/censored"].values


def test_best_release_has_the_least_loss_that_duality_proves(found):
    for plane, k in zip(found, (0.0, 0.4, 1.0), strict=True):
        for point in plane.points:
            a, (leakage, censored) = point.shade, point.best
            loss = (1 - a) * censored**2 + a * leakage**2
            assert loss == pytest.approx(best_loss(k, a), rel=1e-5, abs=1e-12)


def test_the_arc_has_the_loss_of_the_best_linear_filter(toy, found):
    points = toy.points[toy.points["config/dependence"] == 0.4].sort_values("config/tradeoff")
    for point, loss in zip(found[1].points, points["optimum/linear_loss"], strict=True):
        leakage, censored = point.linear
        a = point.shade
        np.testing.assert_allclose((1 - a) * censored**2 + a * leakage**2, loss)
        apart = np.hypot(leakage - point.exact[0], censored - point.exact[1])
        assert apart.min() < 0.05 * np.hypot(*point.exact)


def test_no_boundary_lies_below_the_bound(found):
    for plane in found:
        leakage, censored = plane.boundary
        assert (leakage + censored).min() >= plane.bound - 1e-9


def test_figure_holds_bound_boundary_and_estimates_with_intervals(found):
    figure = plane_figure(found, "tradeoff")
    bounds = [t for t in figure.data if t.name and t.name.startswith("bound")]
    assert [list(t.x) for t in bounds] == [[0, plane.bound] for plane in found]
    assert [list(t.y) for t in bounds] == [[plane.bound, 0] for plane in found]
    rings = [t for t in figure.data if t.marker.symbol == "circle-open" and t.error_x.array]
    estimates = [point for plane in found for point in plane.points]
    assert [t.x[0] for t in rings] == [p.leakage.mean for p in estimates]
    assert [t.error_y.array[0] for t in rings] == pytest.approx(
        [p.censored.high - p.censored.mean for p in estimates]
    )
    told = [t.name for t in figure.data if t.showlegend]
    assert len(told) == len(set(told))
    assert {"tradeoff = 0.1", "learned, exact", "best release of any kind"} <= set(told)
    sheet = draw_plane(found, "tradeoff")
    assert [axes.get_title() for axes in sheet.axes] == [plane.title for plane in found]
    assert {t.get_text() for t in sheet.legends[0].get_texts()} == set(told)


def test_there_is_no_plane_without_exact_information(toy):
    images = made_images(alphas=(1.0,), gradients=("label",))
    assert planes(images, curve_set(images)) == []
    undefined = [with_metrics(p, exact__leakage=math.nan) for p in toy.tradeoff_points]
    lost = replace(toy, tradeoff_points=undefined)
    assert planes(lost, curve_set(lost)) == []


def test_one_point_without_paths_or_intervals_is_drawn():
    toy = made_toy((0.5,), (0.4,))
    (point,) = toy.tradeoff_points
    bare = replace(point, replicates=(replace(point.replicates[0], curves={}),))
    (plane,) = planes(replace(toy, tradeoff_points=[bare]), curve_set(toy))
    assert plane.points[0].path is None
    assert math.isnan(plane.points[0].shade)
    assert len(plane_figure([plane], None).data) > 4
    draw_plane([plane], None).canvas.draw()
