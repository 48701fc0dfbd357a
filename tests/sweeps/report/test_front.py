"""Charts of fronts agree with the frame: front, intervals, bounds, scales."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from figure_traces import find_traces

from sweeps.analysis.pareto import pareto_front
from sweeps.report.figures.axes import metric_axis
from sweeps.report.figures.metrics import front_figure, save_figure
from sweeps.report.figures.traces import BEYOND, BOUND, axis_limits

ADVANTAGE, ERROR = "privacy/membership_advantage", "utility/test_mse"
OBJECTIVES = {ADVANTAGE: "min", ERROR: "min"}


def draw(points, objectives=OBJECTIVES, **other):
    return front_figure(points, pareto_front(points, objectives), objectives, **other)


def test_every_comparable_point_is_drawn_once_with_both_intervals(membership_sweep):
    points = membership_sweep.points
    front = pareto_front(points, OBJECTIVES)
    figure = draw(points)
    (marks,), (dominated,) = find_traces(figure, "Pareto front"), find_traces(figure, "dominated")
    assert list(marks["x"]) == list(front[ERROR])
    assert list(marks["y"]) == list(front[ADVANTAGE])
    assert len(dominated["x"]) == (points["status"] == "finished").sum() - len(front)
    for metric, ends in ((ERROR, marks["error_x"]), (ADVANTAGE, marks["error_y"])):
        assert ends["arrayminus"] == pytest.approx(front[metric] - front[f"{metric}.ci_low"])
        assert ends["array"] == pytest.approx(front[f"{metric}.ci_high"] - front[metric])


def test_bound_is_drawn_for_each_front_point(membership_sweep):
    points = membership_sweep.points
    front = pareto_front(points, OBJECTIVES)
    for objectives in (OBJECTIVES, {ERROR: "min", ADVANTAGE: "min"}):
        (bound,) = find_traces(draw(points, objectives), BOUND)
        assert list(bound["x"]) == list(front[ERROR])
        assert list(bound["y"]) == list(front["bound/advantage"])


@pytest.mark.parametrize("directions", list(itertools.product(("min", "max"), repeat=2)))
def test_edge_of_the_front_runs_through_dominated_places(directions):
    x, y = "utility/b", "privacy/a"
    objectives = dict(zip((x, y), directions, strict=True))
    rising = directions[0] != directions[1]
    points = pd.DataFrame(
        {"point_id": ["p", "q"], x: [1.0, 2.0], y: [1.0, 3.0] if rising else [3.0, 1.0]}
    )
    (edge,) = [t for t in front_figure(points, points, objectives)["data"] if t["mode"] == "lines"]
    xs, ys = list(edge["x"]), list(edge["y"])
    corner = {"hv": (xs[1], ys[0]), "vh": (xs[0], ys[1])}[edge["line"]["shape"]]
    place = pd.DataFrame({"point_id": ["r"], x: [corner[0]], y: [corner[1]]})
    assert "r" not in set(pareto_front(pd.concat([points, place]), objectives)["point_id"])


def test_no_value_beside_a_point_covers_another():
    measured = {ADVANTAGE: [0.1, 0.3, 0.301], ERROR: [0.2, 0.5, 0.501]}
    points = pd.DataFrame({"point_id": [*"pqr"], "config/noise": [2.0, 1.0, 0.0], **measured})
    figure = draw(points)
    (marks,), (dominated,) = find_traces(figure, "Pareto front"), find_traces(figure, "dominated")
    assert list(marks["text"]) == ["2"]
    assert list(dominated["text"]) == ["1", ""]


def test_hover_is_escaped(membership_sweep):
    points = membership_sweep.points
    points.loc[points.index[0], "config/model"] = "<a href='javascript:x'>linear</a>"
    texts = [text for trace in draw(points)["data"] for text in trace.get("hovertext", ())]
    assert any("&lt;a href" in text for text in texts)
    assert not any("<a" in text for text in texts)


def test_page_needs_no_network(membership_sweep, tmp_path: Path):
    save_figure(draw(membership_sweep.points), tmp_path / "front.html")
    page = (tmp_path / "front.html").read_text()
    assert "Plotly.newPlot" in page
    assert len(page) < 1.5e6
    assert "<script src" not in page.replace("'", '"')
    assert "<link" not in page


def test_wide_intervals_do_not_compress_the_points():
    """Axes extend beyond the points by at most their range; narrow intervals are visible whole."""
    points = pd.DataFrame({"m": [1.0, 2.0], "m.ci_low": [-90.0, 1.9], "m.ci_high": [92.0, 2.1]})
    assert axis_limits(metric_axis(points, "m", {})) == pytest.approx((-0.15, 3.15))
    narrow = points.assign(**{"m.ci_low": [0.9, 1.9], "m.ci_high": [1.1, 2.1]})
    low, high = axis_limits(metric_axis(narrow, "m", {}))
    assert low < 0.9
    assert high > 2.1
    for all_wide in (points.iloc[:1], points.assign(**{"m.ci_low": -90.0, "m.ci_high": 92.0})):
        low, high = axis_limits(metric_axis(all_wide, "m", {}))
        assert low <= -90
        assert high >= 92


def test_an_axis_leaves_out_an_outlier_and_marks_it():
    points = pd.DataFrame(
        {
            "point_id": list("abcdef"),
            "utility/loss": [1.0, 1.1, 1.2, 1.3, 1.4, 1e3],
            "privacy/gain": [0.6, 0.5, 0.4, 0.3, 0.2, 0.1],
        }
    )
    figure = draw(points, {"utility/loss": "min", "privacy/gain": "min"})
    _, right = figure["layout"]["xaxis"]["range"]
    assert right < 2
    (mark,) = find_traces(figure, BEYOND)
    assert (mark["marker"]["symbol"], *mark["x"]) == ("triangle-right-open", right)
    assert list(mark["y"]) == [0.1]


def test_the_legend_names_no_line_out_of_view(membership_sweep):
    points = membership_sweep.points.assign(**{"floor/utility_test_mse": 50.0})
    names = {trace["name"]: trace["showlegend"] for trace in draw(points)["data"]}
    assert names["floor: trivial model: 50"] is False
    points["floor/utility_test_mse"] = points[ERROR].mean()
    (floor,) = find_traces(draw(points), "floor: trivial model")
    assert floor["showlegend"]


def test_points_that_a_search_did_not_confirm_are_drawn_apart(membership_sweep):
    points = membership_sweep.points
    finished = points.loc[points["status"] == "finished"]
    confirmed = set(finished["point_id"].iloc[::4])
    phase = np.where(points["point_id"].isin(confirmed), "confirming", "searching")
    figure = draw(points.loc[points["point_id"].isin(confirmed)].assign(phase="confirming"))
    assert not find_traces(figure, "searching")
    front = pareto_front(points.loc[points["point_id"].isin(confirmed)], OBJECTIVES)
    figure = front_figure(points.assign(phase=phase), front, OBJECTIVES)
    (searching,), (dominated,) = find_traces(figure, "searching"), find_traces(figure, "dominated")
    assert len(searching["x"]) == len(finished) - len(confirmed)
    assert len(dominated["x"]) == len(confirmed) - len(front)
