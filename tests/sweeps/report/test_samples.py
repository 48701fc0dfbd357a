"""Images, weeks and scatters show what points stored."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from made_releases import made_images, made_power, made_toy, with_artifact
from safetensors.numpy import load, save

from sweeps.report.chosen import choose
from sweeps.report.figures import releases, scatter, week
from sweeps.report.figures.curves import curve_set

HOUR = np.timedelta64(1, "h")


def chosen(sweep, module, read, most=4):
    return choose(sweep, curve_set(sweep), module.FILE, read, most).points


def test_originals_stand_once_above_the_releases_that_share_them():
    sweep = made_images(alphas=(1.0, 2.0), gradients=("label",))
    points = chosen(sweep, releases, releases.read_images)
    assert [p.sample.role for p in points] == ["middle", "full privacy"] * 2
    sheet = releases.draw_releases(points)
    words = [t.get_text() for t in sheet.texts]
    assert words == ["original", *(p.words for p in points)]
    shown = [axes.images[0].get_array() for axes in sheet.axes]
    strips = [points[0].content.original, *(p.content.released for p in points)]
    for drawn, images in zip(shown, strips, strict=True):
        fine = drawn.shape[0] // 8
        middles = drawn[fine // 2 :: fine, fine // 2 :: fine]
        np.testing.assert_array_equal(middles, np.concatenate(list(images), axis=1))
    assert [t.get_text() for t in sheet.axes[0].texts][:2] == ["0\nthin", "0\nthick"]


def test_another_test_split_has_its_own_originals():
    sweep = made_images(alphas=(1.0,), gradients=("label",))
    last = sweep.tradeoff_points[-1]
    found = load(last.artifacts[releases.FILE])
    turned = save({k: np.ascontiguousarray(v[::-1]) for k, v in found.items()})
    points = [*sweep.tradeoff_points[:-1], with_artifact(last, releases.FILE, turned)]
    shown = chosen(replace(sweep, tradeoff_points=points), releases, releases.read_images)
    sheet = releases.draw_releases(shown)
    assert [t.get_text() for t in sheet.texts].count("original") == 2


def test_rows_of_images_do_not_overlap():
    sweep = made_images(alphas=(0.5, 1.0, 2.0), gradients=("label",))
    sheet = releases.draw_releases(chosen(sweep, releases, releases.read_images))
    sheet.canvas.draw()
    boxes = [t.get_window_extent() for t in sheet.texts]
    assert all(a.y0 >= b.y1 for a, b in itertools.pairwise(boxes))
    assert min(box.x0 for box in boxes) >= 0
    places = [axes.get_position() for axes in sheet.axes]
    assert all(p.y0 >= 0 and p.y1 <= 1 and p.x1 <= 1 for p in places)


def test_a_problem_without_names_of_its_secret_shows_numbers():
    sweep = made_images(alphas=(1.0,), gradients=("label",), weights=(1.0,))
    point = replace(sweep.tradeoff_points[0], config={"problem": "faces"})
    assert releases.read_images(point).labels[:2] == ("0\nsecret 0", "0\nsecret 1")


def test_power_has_gaps_where_it_was_absent_and_missing_is_not_away():
    (point, *_) = chosen(made_power(alphas=(1.0,)), week, week.read_week)
    found = point.content
    stored = load(
        next(
            p for p in made_power(alphas=(1.0,)).tradeoff_points
            if p.point_id == point.sample.point_id
        ).artifacts[week.FILE]
    )  # fmt: skip
    absent = stored["present"].ravel() == 0
    assert absent.any()
    np.testing.assert_array_equal(np.isnan(found.released), absent)
    np.testing.assert_array_equal(np.isnan(found.original), absent)
    np.testing.assert_array_equal(found.secret, stored["secret"].ravel())
    unknown = sum((right - left) / HOUR for left, right in found.stretches(-1))
    assert unknown == (stored["secret"] == -1).sum()
    figure = week.week_figure([point])
    bars = {t.name: t for t in figure.data if t.type == "bar"}
    assert set(bars) == {"at home", "occupancy not recorded"}
    assert bars["occupancy not recorded"].marker.pattern.shape == "/"
    home = sum(bars["at home"].width) / 3.6e6
    assert home == (stored["secret"] == 1).sum()
    released = next(t for t in figure.data if t.name == "released")
    assert np.isnan(released.y).sum() == absent.sum() + 2
    before = int(np.flatnonzero(absent)[0]) - 1
    assert list(released.y[before : before + 2]) == [found.released[before]] * 2, "held to its end"
    assert figure.layout.yaxis2.title.text == "power, W"


def test_days_are_put_in_order_and_lines_break_between_those_apart():
    point = made_power(alphas=(1.0,), weights=(1.0,)).tradeoff_points[0]
    found = load(point.artifacts[week.FILE])
    kept = {k: np.ascontiguousarray(v[[4, 0]]) for k, v in found.items()}
    read = week.read_week(with_artifact(point, week.FILE, save(kept)))
    assert np.all(np.diff(read.time) > np.timedelta64(0))
    np.testing.assert_allclose(read.original[:24], found["original"][0])
    np.testing.assert_allclose(read.original[24:], found["original"][4])
    for kind in (0, 1):
        for left, right in read.stretches(kind):
            assert right - left <= 24 * HOUR
    figure = week.week_figure(
        [replace(chosen(made_power(alphas=(1.0,)), week, week.read_week)[0], content=read)]
    )
    line = next(t for t in figure.data if t.name == "original")
    gap = int(np.flatnonzero(np.isnan(line.y))[0])
    assert line.x[gap] == "2012-06-20T00:00:00"
    assert line.x[gap + 1] == "2012-06-23T00:00:00"


def test_every_point_has_a_panel_of_its_week():
    points = chosen(made_power(), week, week.read_week, most=3)
    assert len(points) == 6
    assert len(week.draw_week(points).axes) == 6
    figure = week.week_figure(points)
    assert len([t for t in figure.data if t.name == "released"]) == 6
    assert sum(bool(t.showlegend) for t in figure.data) == 4


def test_scatter_shows_every_record_by_its_bits_and_the_centres():
    points = chosen(made_toy(), scatter, scatter.read_cloud)
    sheet = scatter.draw_scatter(points)
    panels = [axes for axes in sheet.axes if axes.get_visible()]
    assert len(panels) == len(points)
    for axes, point in zip(panels, points, strict=True):
        cloud, lines = point.content, {line.get_label(): line for line in axes.lines}
        inside = (cloud.utility == 1) & (cloud.secret == 0)
        np.testing.assert_array_equal(
            lines["U = 1, S = 0"].get_xydata(), cloud.released[inside].astype(float)
        )
        centres = lines["centre of a class"].get_xydata()
        only_unequal = "dependence = 0\n" in axes.get_title()
        assert len(centres) == (2 if only_unequal else 4)
        np.testing.assert_allclose(centres[1 if only_unequal else 2], cloud.filter[:, 0], rtol=1e-6)
        total = sum(len(line.get_xdata()) for line in axes.lines)
        assert total == len(cloud.released) + len(centres)


@pytest.mark.parametrize("most", [1, 2, 4])
def test_a_few_curves_are_shown(most):
    sweep = made_images(gradients=("label",))
    assert len(chosen(sweep, releases, releases.read_images, most)) == 2 * most
