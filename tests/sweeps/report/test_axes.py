"""Metrics along swept fields: which points are joined, and where values lie."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from made_sweep import OBJECTIVES, made_points

from sweeps.report.figures.axes import MOST_LINES, SweptAxis, axis_figure, place
from tracking.frame import points_frame

ADVANTAGE = "privacy/membership_advantage"


def drawn(points: pd.DataFrame, field: str, *others: str, log: bool = True):
    return axis_figure(points, SweptAxis(field, others, log), list(OBJECTIVES), OBJECTIVES)


def test_lines_join_points_that_agree_in_the_other_fields():
    points = points_frame(made_points(), "sweep")
    figure = drawn(points, "train_size", "weight_decay")
    lines = [t for t in figure.data if t.yaxis == "y" and t.name]
    assert [t.name for t in lines] == [f"weight_decay = {d}" for d in ("0", "0.0001", "0.01", "1")]
    for line, decay in zip(lines, (0.0, 1e-4, 1e-2, 1.0), strict=True):
        group = points[points["config/weight_decay"] == decay].sort_values("config/train_size")
        assert list(line.x) == [10, 30, 100, 300, 1000]
        assert list(line.y) == list(group[ADVANTAGE])
        assert line.error_y.array == pytest.approx(group[f"{ADVANTAGE}.ci_high"] - group[ADVANTAGE])


def test_bound_is_dotted_beside_the_metric_it_bounds_alone():
    figure = drawn(points_frame(made_points(), "sweep"), "train_size", "weight_decay")
    dotted = [t for t in figure.data if t.line.dash == "dot"]
    assert len(dotted) == 4
    assert {t.yaxis for t in dotted} == {"y"}


def test_many_groups_are_shaded_points_without_lines():
    decays = [0.01 * 2**i for i in range(MOST_LINES + 1)]
    figure = drawn(points_frame(made_points(decays=decays), "sweep"), "train_size", "weight_decay")
    assert [t.mode for t in figure.data] == ["markers", "markers"]
    assert [t.marker.showscale for t in figure.data] == [True, False]
    assert figure.data[0].marker.colorbar.title.text == "log10 weight_decay"
    assert len(figure.data[0].x) == 5 * len(decays)


def test_zero_lies_a_decade_left_of_the_smallest_value_on_a_log_axis():
    positions, layout = place(pd.Series([0.0, 1e-6, 1.0]), log=True)
    assert list(positions) == pytest.approx([1e-7, 1e-6, 1.0])
    assert layout["type"] == "log"
    assert layout["ticktext"][0] == "0"
    assert layout["tickvals"][0] == pytest.approx(1e-7)
    assert len(layout["tickvals"]) == len(layout["ticktext"])


def test_infinity_lies_beyond_the_largest_value_in_order_of_rank():
    positions, layout = place(pd.Series([8.0, math.inf, 0.5]), log=False)
    assert list(positions) == [1.0, 2.0, 0.0]
    assert layout["ticktext"] == ["0.5", "8", "∞"]
    assert layout["type"] == "linear"


def test_long_categories_leave_room_for_the_figure():
    names = ["x" * 100, "x" * 99 + "y", "short"]
    positions, layout = place(pd.Series(names), log=False)
    assert list(positions) == names
    assert layout["tickvals"] == names
    assert max(map(len, layout["ticktext"])) <= 32


@pytest.mark.parametrize(
    ("values", "log", "kind"),
    [
        ([1, 10, 100], True, "log"),
        ([1, 10, 100], False, "linear"),
        ([-1.0, 1.0], True, "linear"),
        ([0.0, 0.0], True, "linear"),
        (["linear", "mlp"], False, "category"),
        ([True, False], False, "category"),
        ([5.0, None], True, "category"),
    ],
)
def test_axis_type_follows_the_values(values, log, kind):
    assert place(pd.Series(values), log=log)[1]["type"] == kind


def test_values_without_a_number_come_last():
    points = points_frame(made_points(sizes=(5, 10, 20)), "sweep").drop(columns="config/train_size")
    points["config/features"] = [None, 10.0, 5.0] * 4
    figure = drawn(points, "features", log=False)
    assert list(dict.fromkeys(figure.data[0].x)) == ["5", "10", "null"]


def test_categories_are_not_joined_and_are_escaped():
    points = points_frame(
        [*made_points(sizes=(10,)), *made_points(sizes=(30,), model="<b>mlp</b>")], "sweep"
    )
    figure = drawn(points, "model", "train_size", log=False)
    assert {t.mode for t in figure.data} == {"markers"}
    assert {x for t in figure.data for x in t.x} == {"linear", "&lt;b&gt;mlp&lt;/b&gt;"}
