"""Which points make a curve, and which of a curve are shown."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_releases import FLOOR, STRONGEST, made_images, made_power, made_toy
from made_sweep import MadeSweep, failed, made_points, made_study

from sweeps.report.figures.curves import (
    MAX_CURVES,
    TradeoffCurve,
    curve_samples,
    group_curves,
)


def curve(attacked: list[float], halves: list[float], floor: float = 0.5) -> TradeoffCurve:
    mean, half = np.array(attacked), np.array(halves)
    points = pd.DataFrame(
        {
            "point_id": [f"p{i}" for i in range(len(mean))],
            STRONGEST: mean,
            f"{STRONGEST}.ci_low": mean - half,
            f"{STRONGEST}.ci_high": mean + half,
            FLOOR: floor,
        }
    )
    return TradeoffCurve({}, 0, 0, points)


def test_points_that_agree_but_for_the_weight_make_a_curve_in_its_order():
    sweep = made_images()
    shuffled = replace(sweep, tradeoff_points=list(reversed(sweep.tradeoff_points)))
    found = group_curves(shuffled)
    assert found.along == "privacy_weight"
    assert len(found.curves) == 8
    for one in found.curves:
        assert list(one.points["config/privacy_weight"]) == [0.0, 0.3, 1.0, 3.0, 10.0, 30.0]
        assert one.points["config/alpha"].nunique() == one.points["config/gradient"].nunique() == 1


def test_colours_follow_the_numbers_in_order_and_styles_the_rest():
    found = group_curves(made_images())
    assert found.colors == 4
    assert found.styles == 2
    assert [one.color for one in found.curves] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert found.curves[-1].label == "alpha = ∞, gradient = posterior"


@pytest.mark.parametrize(
    ("sweep", "along"),
    [
        (made_toy(), "tradeoff"),
        (made_power(alphas=(1.0,)), "privacy_weight"),
        (MadeSweep(made_study(), made_points()), "weight_decay"),
        (made_images(weights=(1.0,)), "alpha"),
        (made_images(weights=(1.0,), alphas=(1.0,)), None),
    ],
)
def test_the_weight_runs_along_curves_or_else_the_last_number_swept(sweep, along):
    assert group_curves(sweep).along == along


def test_failed_points_are_on_no_curve():
    sweep = made_images(alphas=(1.0,), gradients=("label",))
    points = [failed(sweep.tradeoff_points[0], "diverged"), *sweep.tradeoff_points[1:]]
    (one,) = group_curves(replace(sweep, tradeoff_points=points)).curves
    assert points[0].point_id not in set(one.points["point_id"])
    assert len(one.points) == len(points) - 1


def test_too_many_curves_are_taken_together():
    alphas = [0.1 * i for i in range(1, MAX_CURVES + 2)]
    found = group_curves(made_images(alphas=alphas, gradients=("label",), weights=(0.0, 1.0)))
    (one,) = found.curves
    assert not found.joined
    assert len(one.points) == 2 * len(alphas)


def test_nothing_finished_makes_no_curve_with_points():
    sweep = made_images(alphas=(1.0,), gradients=("label",))
    lost = replace(sweep, tradeoff_points=[failed(p, "diverged") for p in sweep.tradeoff_points])
    assert sum(len(one.points) for one in group_curves(lost).curves) == 0


@given(st.lists(st.tuples(st.floats(0.4, 1), st.floats(0, 0.2)), min_size=1, max_size=8))
def test_first_full_privacy_is_the_smallest_weight_whose_interval_reaches_the_floor(values):
    chosen = curve_samples(curve([a for a, _ in values], [h for _, h in values]), STRONGEST)[-1]
    reaching = [i for i, (attacked, half) in enumerate(values) if attacked - half <= 0.5]
    least = min(range(len(values)), key=lambda i: values[i][0])
    assert chosen.point_id == f"p{reaching[0] if reaching else least}"
    assert chosen.role == ("full privacy" if reaching else "most private")


def test_the_words_say_on_which_interval_the_choice_rests():
    reached = curve_samples(curve([0.9, 0.6, 0.53], [0.01, 0.02, 0.04]), STRONGEST)
    assert [s.role for s in reached] == ["middle", "full privacy"]
    assert (
        reached[1].reason
        == "first full-privacy point:\n0.530 [0.490, 0.570] reaches the floor, 0.5"
    )
    under = curve_samples(curve([0.9, 0.44], [0.01, 0.02]), STRONGEST)[-1]
    assert "lies under the floor" in under.reason
    short = curve_samples(curve([0.9, 0.6], [0.01, 0.02]), STRONGEST)[-1]
    assert short.reason.startswith("most private point:")


def test_an_interval_that_reaches_half_way_to_raw_data_says_nothing():
    wide = curve([0.8, 0.7, 0.53], [0.1, 0.3, 0.05])
    raw = wide.points.assign(**{"baseline/attacker_balanced_accuracy": 0.9})
    chosen = curve_samples(replace(wide, points=raw), STRONGEST)[-1]
    assert (chosen.point_id, chosen.role) == ("p2", "full privacy")


def test_without_intervals_no_point_is_said_to_reach_the_floor():
    (chosen,) = curve_samples(curve([0.49], [math.nan]), STRONGEST)
    assert chosen.role == "most private"
    assert "no interval" in chosen.reason


def test_middle_is_nearest_half_way_from_the_top_to_the_floor_and_another_point():
    found = curve_samples(curve([0.9, 0.85, 0.72, 0.55, 0.51], [0.01] * 5), STRONGEST)
    assert [s.point_id for s in found] == ["p2", "p4"]
    points = curve([0.9, 0.85, 0.72, 0.5], [0.0] * 4)
    raw = points.points.assign(**{"baseline/attacker_balanced_accuracy": 1.2})
    assert curve_samples(replace(points, points=raw), STRONGEST)[0].point_id == "p1"


def test_undefined_points_are_passed_over():
    assert [s.point_id for s in curve_samples(curve([math.nan, 0.7], [0.0, 0.1]), STRONGEST)] == [
        "p1"
    ]
    assert curve_samples(curve([math.nan], [0.0]), STRONGEST) == []
    assert curve_samples(curve([0.7], [0.1]), "privacy/leakage") == []
