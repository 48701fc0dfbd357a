"""Metrics along swept fields: which points are joined, and where values lie."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from synthetic_sweep import OBJECTIVES, membership_points

from privnets.frames import points_frame
from sweeps.report.figures.metrics import MAX_LINES, field_chart, field_positions
from sweeps.report.figures.plotly_charts import plotly_figure

ADVANTAGE = "privacy/membership_advantage"


def draw(points: pd.DataFrame, field: str, *others: str, log: bool = True):
    return field_chart(points, (field, *others), list(OBJECTIVES), OBJECTIVES, log=log)


def test_lines_join_points_that_agree_in_the_other_fields():
    points = points_frame(membership_points(), "sweep")
    panel, _ = draw(points, "train_size", "weight_decay").panels
    lines = [series for series in panel.series if series.name]
    decays = (0.0, 1e-4, 1e-2, 1.0)
    assert [line.name for line in lines] == [f"weight decay = {decay:g}" for decay in decays]
    for line, decay in zip(lines, decays, strict=True):
        group = points[points["config/weight_decay"] == decay].sort_values("config/train_size")
        assert line.line == "solid"
        assert list(line.x) == [10, 30, 100, 300, 1000]
        assert list(line.y) == list(group[ADVANTAGE])
        assert line.y_errors[1] == pytest.approx(group[f"{ADVANTAGE}.ci_high"] - group[ADVANTAGE])


def test_only_a_bounded_metric_has_a_dotted_bound():
    advantage, error = draw(
        points_frame(membership_points(), "sweep"), "train_size", "weight_decay"
    ).panels
    assert len([series for series in advantage.series if series.line == "dot"]) == 4
    assert not [series for series in error.series if series.line == "dot"]


def test_many_groups_are_colored_points_without_lines():
    decays = [0.01 * 2**i for i in range(MAX_LINES + 1)]
    chart = draw(
        points_frame(membership_points(decays=decays), "sweep"), "train_size", "weight_decay"
    )
    for panel in chart.panels:
        (cloud,) = panel.series
        assert cloud.line == ""
        assert (cloud.scale.label, cloud.scale.log) == ("weight decay", True)
        assert len(cloud.x) == 5 * len(decays)


def test_zero_lies_a_decade_left_of_the_smallest_value_on_a_log_axis():
    positions, axis, _ = field_positions(pd.Series([0.0, 1e-6, 1.0]), "field", log=True)
    assert list(positions) == pytest.approx([1e-7, 1e-6, 1.0])
    assert axis.log
    assert axis.ticks[1][0] == "0"
    assert axis.ticks[0][0] == pytest.approx(1e-7)
    assert len(axis.ticks[0]) == len(axis.ticks[1])


def test_infinity_lies_beyond_the_largest_value_in_order_of_rank():
    positions, axis, ordered = field_positions(pd.Series([8.0, math.inf, 0.5]), "field", log=False)
    assert list(positions) == [1.0, 2.0, 0.0]
    assert axis.ticks[1] == ["0.5", "8", "∞"]
    assert ordered


def test_long_categories_leave_room_for_the_figure():
    names = ["x" * 100, "x" * 99 + "y", "short"]
    positions, axis, _ = field_positions(pd.Series(names), "field", log=False)
    assert list(positions) == [0, 1, 2]
    assert max(map(len, axis.ticks[1])) <= 32


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
    assert (axis.log, is_ordered) == (is_log, ordered)


def test_values_without_a_number_come_last():
    points = points_frame(membership_points(sizes=(5, 10, 20)), "sweep").drop(
        columns="config/train_size"
    )
    points["config/features"] = [None, 10.0, 5.0] * 4
    panel = draw(points, "features", log=False).panels[0]
    assert panel.x.ticks[1] == ["5", "10", "null"]


def test_categories_are_not_joined_and_are_escaped():
    points = points_frame(
        [*membership_points(sizes=(10,)), *membership_points(sizes=(30,), model="<b>mlp</b>")],
        "sweep",
    )
    chart = draw(points, "model", "train_size", log=False)
    assert {series.line for panel in chart.panels for series in panel.series} == {""}
    assert "&lt;b&gt;mlp&lt;/b&gt;" in plotly_figure(chart).layout.xaxis.ticktext
