"""Figures say what the frame says: who is on the front, intervals, bounds, scales."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread

from sweeps.analysis.pareto import attainment, pareto_front
from sweeps.report.figures.plots import MANY, front_figure, save_front_png, save_page, scale, scaled

ADVANTAGE, ERROR = "privacy/membership_advantage", "utility/test_mse"
OBJECTIVES = {ADVANTAGE: "min", ERROR: "min"}


def traces(figure):
    return {trace.name.split(" (")[0]: trace for trace in figure.data}


def drawn(points, objectives=OBJECTIVES, **other):
    return front_figure(points, pareto_front(points, objectives), objectives, **other)


def test_every_comparable_point_is_drawn_once_with_both_intervals(made_sweep):
    points = made_sweep.points
    front = pareto_front(points, OBJECTIVES)
    shown = traces(drawn(points))
    assert list(shown["Pareto front"].x) == list(front[ADVANTAGE])
    assert list(shown["Pareto front"].y) == list(front[ERROR])
    finished = (points["status"] == "finished").sum()
    assert len(shown["dominated"].x) == finished - len(front)
    for metric, bar in ((ADVANTAGE, "error_x"), (ERROR, "error_y")):
        marks = shown["Pareto front"]
        assert marks[bar].array == pytest.approx(front[f"{metric}.ci_high"] - front[metric])
        assert marks[bar].arrayminus == pytest.approx(front[metric] - front[f"{metric}.ci_low"])


def test_bound_lies_beside_each_front_point(made_sweep):
    points = made_sweep.points
    front = pareto_front(points, OBJECTIVES)
    bound = traces(drawn(points))["bound/advantage, which theory allows"]
    assert list(bound.x) == list(front["bound/advantage"])
    assert list(bound.y) == list(front[ERROR])
    turned = {ERROR: "min", ADVANTAGE: "min"}
    assert list(traces(drawn(points, turned))["bound/advantage, which theory allows"].y) == list(
        front["bound/advantage"]
    )


@pytest.mark.parametrize("directions", list(itertools.product(("min", "max"), repeat=2)))
def test_edge_of_the_front_runs_through_dominated_places(directions):
    x, y = "privacy/a", "utility/b"
    objectives = dict(zip((x, y), directions, strict=True))
    rising = directions[0] != directions[1]
    points = pd.DataFrame(
        {"point_id": ["p", "q"], x: [1.0, 2.0], y: [1.0, 3.0] if rising else [3.0, 1.0]}
    )
    edge = traces(front_figure(points, points, objectives))["edge of the front"]
    turn = {"hv": (edge.x[1], edge.y[0]), "vh": (edge.x[0], edge.y[1])}[edge.line.shape]
    place = pd.DataFrame({"point_id": ["r"], x: [turn[0]], y: [turn[1]]})
    assert "r" not in set(pareto_front(pd.concat([points, place]), objectives)["point_id"])


def test_median_attainment_is_drawn(made_sweep):
    surface = attainment(made_sweep.replicates, OBJECTIVES)
    line = traces(drawn(made_sweep.points, attained=surface))["attained by half the replicates"]
    assert list(line.x) == list(surface[ADVANTAGE])


@pytest.mark.parametrize(
    ("objectives", "panels"),
    [
        ({ERROR: "min"}, [("x", "y")]),
        (
            {**OBJECTIVES, "privacy/rho_kl": "min"},
            [("x", "y"), ("x2", "y2"), ("x3", "y3")],
        ),
    ],
)
def test_panels_are_pairs_of_objectives(made_sweep, objectives, panels, tmp_path):
    figure = drawn(made_sweep.points, objectives)
    assert sorted({(t.xaxis, t.yaxis) for t in figure.data}) == panels
    front = pareto_front(made_sweep.points, objectives)
    image = imread(save_front_png(made_sweep.points, front, objectives, tmp_path / "front.png"))
    assert image.shape[1] == 1280 * len(panels)


def test_single_objective_is_drawn_best_first(made_sweep):
    finished = made_sweep.points[made_sweep.points["status"] == "finished"]
    marks = traces(drawn(made_sweep.points, {ERROR: "max"}))["Pareto front"]
    assert list(marks.x) == [1.0]
    assert list(marks.y) == [finished[ERROR].max()]


def test_png_holds_the_front_in_its_colour(made_sweep, tmp_path):
    front = pareto_front(made_sweep.points, OBJECTIVES)
    image = imread(save_front_png(made_sweep.points, front, OBJECTIVES, tmp_path / "front.png"))
    orange = np.abs(image[..., :3] - np.array([0xE8, 0x59, 0x0C]) / 255).max(axis=-1) < 0.02
    assert orange.sum() > 100


def test_many_points_are_drawn_by_webgl_without_dominated_intervals():
    count = MANY + 2
    values = np.arange(count, dtype=float)
    points = pd.DataFrame({"point_id": values.astype(str), "a/x": values, "a/y": values})
    for metric in ("a/x", "a/y"):
        points[f"{metric}.ci_low"], points[f"{metric}.ci_high"] = values - 1, values + 1
    shown = traces(drawn(points, {"a/x": "min", "a/y": "min"}))
    assert shown["dominated"].type == "scattergl"
    assert shown["dominated"].error_x.array is None
    assert shown["Pareto front"].error_x.array is not None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.01, 1.0], "log"),
        ([0.011, 1.0], "linear"),
        ([0.0, 1000.0], "linear"),
        ([np.nan, 1.0, 200.0], "log"),
        ([np.nan], "linear"),
    ],
)
def test_scale_is_logarithmic_over_two_decades(values, expected):
    assert scale(pd.DataFrame({"m": values}), "m") == expected


def test_hover_is_escaped(made_sweep):
    points = made_sweep.points
    points.loc[points.index[0], "config/model"] = "<a href='javascript:x'>linear</a>"
    texts = [text for t in drawn(points).data if t.text is not None for text in t.text]
    assert any("&lt;a href" in text for text in texts)
    assert not any("<a" in text for text in texts)


def test_page_needs_no_network(made_sweep, tmp_path: Path):
    page = save_page(drawn(made_sweep.points), tmp_path / "front.html").read_text()
    assert "Plotly.newPlot" in page
    assert "<script src" not in page.replace("'", '"')
    assert "<link" not in page


def test_figure_survives_json(made_sweep):
    figure = drawn(made_sweep.points)
    assert len(json.loads(figure.to_json())["data"]) == len(figure.data)


def test_intervals_of_few_replicates_do_not_hide_how_points_lie():
    """Axes go as far beyond the points as these span; narrow intervals are seen whole."""
    points = pd.DataFrame({"m": [1.0, 2.0], "m.ci_low": [-90.0, 1.9], "m.ci_high": [92.0, 2.1]})
    assert scaled(points, "m")["range"] == pytest.approx((-0.15, 3.15))
    narrow = points.assign(**{"m.ci_low": [0.9, 1.9], "m.ci_high": [1.1, 2.1]})
    assert "range" not in scaled(narrow, "m")
    assert "range" not in scaled(points.iloc[:1], "m")
