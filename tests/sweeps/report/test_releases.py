"""Images, weeks and scatters show what points stored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from figure_traces import axis_title, find_traces
from safetensors.numpy import load, save
from synthetic_releases import image_sweep, power_sweep, with_artifact

from sweeps.report.figures import releases
from sweeps.report.figures.curves import group_curves
from sweeps.report.figures.png import draw_figure

HOUR = np.timedelta64(1, "h")


SOURCES = {
    "images": (releases.IMAGES_FILE, releases.read_images),
    "week": (releases.WEEK_FILE, releases.read_week),
}


def choose(sweep, kind, max_curves=4):
    return releases.choose_points(sweep, group_curves(sweep), *SOURCES[kind], max_curves)[0]


def test_shared_original_images_are_drawn_once():
    sweep = image_sweep(alphas=(1.0, 2.0), gradients=("label",))
    points = choose(sweep, "images")
    assert [p.sample.role for p in points] == ["middle", "full privacy"] * 2
    sheet = releases.draw_images(points)
    words = [t.get_text() for t in sheet.texts]
    assert words == ["original", *(p.caption for p in points)]
    shown = [axes.images[0].get_array() for axes in sheet.axes]
    strips = [points[0].content.original, *(p.content.released for p in points)]
    for drawn, images in zip(shown, strips, strict=True):
        fine = drawn.shape[0] // 8
        middles = drawn[fine // 2 :: fine, fine // 2 :: fine]
        np.testing.assert_array_equal(middles, np.concatenate(list(images), axis=1))
    assert [t.get_text() for t in sheet.axes[0].texts][:2] == ["0\nthin", "0\nthick"]


def test_another_test_split_has_its_own_original_images():
    sweep = image_sweep(alphas=(1.0,), gradients=("label",))
    last = sweep.tradeoff_points[-1]
    found = load(last.artifacts[releases.IMAGES_FILE])
    turned = save({k: np.ascontiguousarray(v[::-1]) for k, v in found.items()})
    points = [*sweep.tradeoff_points[:-1], with_artifact(last, releases.IMAGES_FILE, turned)]
    shown = choose(replace(sweep, tradeoff_points=points), "images")
    sheet = releases.draw_images(shown)
    assert [t.get_text() for t in sheet.texts].count("original") == 2


def test_secrets_without_names_are_numbers():
    sweep = image_sweep(alphas=(1.0,), gradients=("label",), weights=(1.0,))
    point = replace(sweep.tradeoff_points[0], config={"problem": "faces"})
    assert releases.read_images(point).labels[:2] == ("0\nsecret 0", "0\nsecret 1")


def test_days_are_sorted_and_lines_break_between_distant_days():
    point = power_sweep(alphas=(1.0,), weights=(1.0,)).tradeoff_points[0]
    found = load(point.artifacts[releases.WEEK_FILE])
    kept = {k: np.ascontiguousarray(v[[4, 0]]) for k, v in found.items()}
    read = releases.read_week(with_artifact(point, releases.WEEK_FILE, save(kept)))
    assert np.all(np.diff(read.time) > np.timedelta64(0))
    np.testing.assert_allclose(read.original[:24], found["original"][0])
    np.testing.assert_allclose(read.original[24:], found["original"][4])
    for kind in (0, 1):
        for left, right in releases.secret_periods(read, kind):
            assert right - left <= 24 * HOUR
    (point,) = (replace(choose(power_sweep(alphas=(1.0,)), "week")[0], content=read),)
    (line,) = find_traces(releases.week_figure([point]), "original")
    gap = int(np.flatnonzero(np.isnan(line["y"]))[0])
    assert line["x"][gap - 1] == np.datetime64("2012-06-20T00:00:00")
    assert line["x"][gap + 1] == np.datetime64("2012-06-23T00:00:00")


def test_every_point_has_a_panel_of_its_week():
    points = choose(power_sweep(), "week", 3)
    assert len(points) == 6
    figure = releases.week_figure(points)
    assert len(draw_figure(figure).axes) == len(find_traces(figure, "released")) == 6
    assert sum(trace["showlegend"] for trace in figure["data"]) == 4
    assert axis_title(figure, "yaxis") == "power, W"


@pytest.mark.parametrize("most", [1, 2, 4])
def test_few_curves_are_chosen(most):
    sweep = image_sweep(gradients=("label",))
    assert len(choose(sweep, "images", most)) == 2 * most
