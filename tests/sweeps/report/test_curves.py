"""Which points make a curve, and which of a curve are shown."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_releases import FLOOR, STRONGEST, image_sweep, power_sweep, toy_sweep
from synthetic_sweep import SyntheticSweep, fail_point, membership_points, membership_study

from sweeps.analysis.tables import PointGroup
from sweeps.report.figures.curves import (
    MAX_CURVES,
    curve_samples,
    group_curves,
)


def curve(attacked: list[float], halves: list[float], floor: float = 0.5) -> PointGroup:
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
    return PointGroup({}, points)


def test_a_curve_has_the_points_that_differ_only_in_the_weight():
    sweep = image_sweep()
    shuffled = replace(sweep, tradeoff_points=list(reversed(sweep.tradeoff_points)))
    found = group_curves(shuffled)
    assert found.along == "privacy_weight"
    assert len(found.curves) == 8
    for one in found.curves:
        assert list(one.points["config/privacy_weight"]) == [0.0, 0.3, 1.0, 3.0, 10.0, 30.0]
        assert one.points["config/alpha"].nunique() == one.points["config/gradient"].nunique() == 1


@pytest.mark.parametrize(
    ("sweep", "along"),
    [
        (toy_sweep(), "tradeoff"),
        (power_sweep(alphas=(1.0,)), "privacy_weight"),
        (SyntheticSweep(membership_study(), membership_points()), "weight_decay"),
        (image_sweep(weights=(1.0,)), "alpha"),
        (image_sweep(weights=(1.0,), alphas=(1.0,)), None),
    ],
)
def test_the_weight_or_the_last_swept_number_is_along_curves(sweep, along):
    assert group_curves(sweep).along == along


def test_failed_points_are_not_on_curves():
    sweep = image_sweep(alphas=(1.0,), gradients=("label",))
    points = [fail_point(sweep.tradeoff_points[0], "diverged"), *sweep.tradeoff_points[1:]]
    (one,) = group_curves(replace(sweep, tradeoff_points=points)).curves
    assert points[0].point_id not in set(one.points["point_id"])
    assert len(one.points) == len(points) - 1


def test_points_of_too_many_curves_are_one_group():
    alphas = [0.1 * i for i in range(1, MAX_CURVES + 2)]
    found = group_curves(image_sweep(alphas=alphas, gradients=("label",), weights=(0.0, 1.0)))
    (one,) = found.curves
    assert not found.joined
    assert len(one.points) == 2 * len(alphas)


def test_a_sweep_without_finished_points_has_empty_curves():
    sweep = image_sweep(alphas=(1.0,), gradients=("label",))
    lost = replace(
        sweep, tradeoff_points=[fail_point(p, "diverged") for p in sweep.tradeoff_points]
    )
    assert sum(len(one.points) for one in group_curves(lost).curves) == 0


@given(st.lists(st.tuples(st.floats(0.4, 1), st.floats(0, 0.2)), min_size=1, max_size=8))
def test_first_full_privacy_is_the_smallest_weight_whose_interval_reaches_the_floor(values):
    chosen = curve_samples(curve([a for a, _ in values], [h for _, h in values]), STRONGEST)[-1]
    reaching = [i for i, (attacked, half) in enumerate(values) if attacked - half <= 0.5]
    least = min(range(len(values)), key=lambda i: values[i][0])
    assert chosen.point_id == f"p{reaching[0] if reaching else least}"
    assert chosen.role == ("full privacy" if reaching else "most private")


def test_the_reason_of_a_choice_has_its_interval():
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


def test_the_middle_is_another_point_nearest_half_way_to_the_floor():
    found = curve_samples(curve([0.9, 0.85, 0.72, 0.55, 0.51], [0.01] * 5), STRONGEST)
    assert [s.point_id for s in found] == ["p2", "p4"]
    points = curve([0.9, 0.85, 0.72, 0.5], [0.0] * 4)
    raw = points.points.assign(**{"baseline/attacker_balanced_accuracy": 1.2})
    assert curve_samples(points._replace(points=raw), STRONGEST)[0].point_id == "p1"


def test_undefined_points_are_not_chosen():
    assert [s.point_id for s in curve_samples(curve([math.nan, 0.7], [0.0, 0.1]), STRONGEST)] == [
        "p1"
    ]
    assert curve_samples(curve([math.nan], [0.0]), STRONGEST) == []
    assert curve_samples(curve([0.7], [0.1]), "privacy/leakage") == []
