"""Metrics along swept fields: which points are joined, and where values lie."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from synthetic_sweep import OBJECTIVES, membership_points

from privnets.frames import points_frame
from sweeps.report.figures.axes import field_positions
from sweeps.report.figures.metrics import field_figure

ADVANTAGE = "privacy/membership_advantage"


def draw(points: pd.DataFrame, field: str, *others: str, log: bool = True):
    return field_figure(points, (field, *others), list(OBJECTIVES), OBJECTIVES, log=log)


def test_lines_join_points_that_agree_in_the_other_fields():
    points = points_frame(membership_points(), "sweep")
    figure = draw(points, "train_size", "weight_decay")
    lines = [t for t in figure["data"] if t["xaxis"] == "x" and t["name"].startswith("weight")]
    decays = (0.0, 1e-4, 1e-2, 1.0)
    assert [line["name"] for line in lines] == [f"weight decay = {decay:g}" for decay in decays]
    for line, decay in zip(lines, decays, strict=True):
        group = points[points["config/weight_decay"] == decay].sort_values("config/train_size")
        assert (line["mode"], line["line"]["dash"]) == ("lines+markers", "solid")
        assert list(line["x"]) == [10, 30, 100, 300, 1000]
        assert list(line["y"]) == list(group[ADVANTAGE])
        assert line["error_y"]["array"] == pytest.approx(
            group[f"{ADVANTAGE}.ci_high"] - group[ADVANTAGE]
        )


def test_zero_lies_a_decade_left_of_the_smallest_value_on_a_log_axis():
    positions, axis, _ = field_positions(pd.Series([0.0, 1e-6, 1.0]), "field", log=True)
    assert list(positions) == pytest.approx([1e-7, 1e-6, 1.0])
    assert axis["type"] == "log"
    assert axis["ticktext"][0] == "0"
    assert axis["tickvals"][0] == pytest.approx(1e-7)
    assert len(axis["tickvals"]) == len(axis["ticktext"])


def test_infinity_lies_beyond_the_largest_value_in_order_of_rank():
    positions, axis, ordered = field_positions(pd.Series([8.0, math.inf, 0.5]), "field", log=False)
    assert list(positions) == [1.0, 2.0, 0.0]
    assert axis["ticktext"] == ["0.5", "8", "∞"]
    assert ordered


@pytest.mark.parametrize(
    ("values", "log", "is_log", "ordered"),
    [
        ([1, 10, 100], True, True, True),
        ([0.5, 1, 8], False, True, True),
        ([1, 5, 9], False, False, True),
        ([-1.0, 1.0], True, False, True),
        ([0.0, 0.0], True, False, True),
        (["linear", "mlp"], False, False, False),
        ([True, False], False, False, False),
        ([5.0, None], True, False, False),
    ],
)
def test_axis_follows_the_values(values, log, is_log, ordered):
    _, axis, is_ordered = field_positions(pd.Series(values), "field", log=log)
    assert ("type" in axis, is_ordered) == (is_log, ordered)


def test_categories_are_not_joined_and_are_escaped():
    points = points_frame(
        [*membership_points(sizes=(10,)), *membership_points(sizes=(30,), model="<b>mlp</b>")],
        "sweep",
    )
    figure = draw(points, "model", "train_size", log=False)
    assert {trace["mode"] for trace in figure["data"]} == {"markers"}
    assert "&lt;b&gt;mlp&lt;/b&gt;" in figure["layout"]["xaxis"]["ticktext"]
