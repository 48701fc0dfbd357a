"""Verdicts on claims: measured trends, their intervals, and what cannot be measured."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sweeps.analysis.claims import judge_claim
from sweeps.study.spec import Claim

METRIC = "privacy/membership_advantage"


def claim(trend: str = "decreasing", **other: object) -> Claim:
    return Claim(statement="said", metric=METRIC, **{"axis": "train_size", "trend": trend, **other})


def replicates(
    metric: Callable[[float, float, np.random.Generator], float],
    sizes: tuple[float, ...] = (10, 30, 100, 300, 1000),
    decays: tuple[float, ...] = (0.0, 1.0),
    seeds: int = 8,
) -> pd.DataFrame:
    """A row per point and seed; points of one seed share their generator's state."""
    rows = [
        {
            "point_id": f"{size}-{decay}",
            "status": "finished",
            "seed": seed,
            "config/train_size": size,
            "config/weight_decay": decay,
            "config/dataset": "adult",
            METRIC: metric(size, decay, np.random.default_rng(seed)),
        }
        for size in sizes
        for decay in decays
        for seed in range(seeds)
    ]
    return pd.DataFrame(rows)


def falling(size, decay, generator):
    return 1 / math.log(size) + decay


def test_falling_metric_agrees_with_decrease_and_contradicts_increase():
    frame = replicates(falling)
    assert judge_claim(claim("decreasing"), frame).verdict == "agrees"
    assert judge_claim(claim("increasing"), frame).verdict == "contradicts"


def test_flipping_the_metric_flips_the_verdict():
    frame = replicates(lambda n, d, g: -falling(n, d, g))
    assert judge_claim(claim("increasing"), frame).verdict == "agrees"
    assert judge_claim(claim("decreasing"), frame).verdict == "contradicts"


def test_trend_is_the_mean_of_kendalls_tau_over_groups_and_seeds():
    sizes = [10, 30, 100, 300, 1000]
    frame = replicates(lambda n, d, g: g.permutation(7 if d else 5)[sizes.index(n)])
    per_seed = [
        np.mean(
            [
                stats.kendalltau(part["config/train_size"], part[METRIC]).statistic
                for _, part in rows.groupby("config/weight_decay")
            ]
        )
        for _, rows in frame.groupby("seed")
    ]
    found = judge_claim(claim(), frame).trend
    interval = stats.t.interval(0.95, 7, np.mean(per_seed), stats.sem(per_seed))
    assert (found.low, found.high) == pytest.approx(interval, abs=1e-12)


def test_replicates_are_paired_by_seed():
    """Differences between seeds far larger than the trend do not widen its interval."""
    frame = replicates(lambda n, d, g: 1000 * g.random() - math.log10(n))
    found = judge_claim(claim(), frame)
    assert found.verdict == "agrees"
    assert found.change.mean == pytest.approx(-2.0)
    assert found.change.half < 1e-9


def test_groups_are_compared_within_not_across():
    """Simpson's paradox: sizes fall within each decay while decays with large sizes lie higher."""
    small = replicates(lambda n, d, g: -n / 1000, sizes=(1, 2, 3), decays=(0.0,))
    large = replicates(lambda n, d, g: 9 - n / 1000, sizes=(10, 20, 30), decays=(1.0,))
    found = judge_claim(claim(), pd.concat([small, large]))
    assert found.verdict == "agrees"
    assert found.trend.mean == -1.0


def test_noise_is_inconclusive():
    frame = replicates(
        lambda n, d, g: np.random.default_rng([int(n), int(g.integers(2**31))]).random()
    )
    found = judge_claim(claim(), frame)
    assert found.verdict == "inconclusive"
    assert found.trend.low < 0 < found.trend.high


@pytest.mark.parametrize(("sizes", "seeds"), [((10, 100), 3), ((10, 30, 100, 300), 1)])
def test_too_little_data_is_inconclusive(sizes, seeds):
    """Two values fall in three seeds once in eight; one seed has no spread to judge by."""
    found = judge_claim(claim(), replicates(falling, sizes=sizes, decays=(0.0,), seeds=seeds))
    assert found.trend.mean == -1.0
    assert found.verdict == "inconclusive"


def test_undefined_values_are_left_out_and_named():
    frame = replicates(lambda n, d, g: math.nan if n <= 30 else falling(n, d, g))
    found = judge_claim(claim(), frame)
    assert found.verdict == "agrees"
    assert "undefined at 2 of the 5 values of train_size (10, 30)" in found.sentence
    assert "from train_size = 100 to 1000" in found.sentence
    expected = falling(1000, 0, None) - falling(100, 0, None)
    assert found.change.mean == pytest.approx(expected)


def test_point_undefined_in_one_seed_is_left_out_for_all():
    """Otherwise seeds would rank different points, and a survivor's value would count."""
    frame = replicates(falling)
    frame.loc[(frame["config/train_size"] == 10) & (frame["seed"] == 3), METRIC] = math.nan
    assert "from train_size = 30 to 1000" in judge_claim(claim(), frame).sentence


def test_failed_and_unfinished_points_are_left_out_and_counted():
    frame = replicates(falling, decays=(0.0,))
    frame.loc[frame["config/train_size"] == 10, "status"] = "failed"
    frame = frame[(frame["config/train_size"] != 1000) | (frame["seed"] < 5)]
    found = judge_claim(claim(), frame)
    assert "on the axis): 2." in found.sentence
    assert "from train_size = 30 to 300" in found.sentence


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"metric": "privacy/absent"}, "no replicate has privacy/absent"),
        ({"axis": "absent"}, "no replicate has config/absent"),
        ({"axis": "dataset"}, "the values of dataset have no order"),
        ({"where": {"weight_decay": 5}}, "no point meets the claim's conditions"),
        ({"where": {"absent": 5}}, "no point meets the claim's conditions"),
        ({"where": {"train_size": 10}}, "fewer than two values of train_size"),
    ],
)
def test_nothing_to_measure_is_undefined_with_its_reason(changed, reason):
    fields = {"statement": "said", "metric": METRIC, "axis": "train_size", "trend": "decreasing"}
    found = judge_claim(Claim(**{**fields, **changed}), replicates(falling))
    assert found.verdict == "undefined"
    assert found.trend is None
    assert reason in found.sentence


def test_metric_undefined_everywhere_is_undefined():
    found = judge_claim(claim(), replicates(lambda n, d, g: math.nan if n < 500 else 0.5))
    assert found.verdict == "undefined"
    assert "undefined at 4 of the 5 values" in found.sentence


def test_conditions_choose_points():
    frame = replicates(lambda n, d, g: math.log(n) * (1 if d else -1))
    assert judge_claim(claim(where={"weight_decay": 0}), frame).verdict == "agrees"
    assert judge_claim(claim(where={"weight_decay": 1.0}), frame).verdict == "contradicts"
    assert judge_claim(claim(), frame).verdict == "inconclusive"


def test_random_search_is_pooled():
    """No two points are alike in the other field, so all are ranked together."""
    draws = np.random.default_rng(0).random((40, 2))
    parts = [
        replicates(lambda n, d, g: -n + 0.1 * d, sizes=(size,), decays=(decay,))
        for size, decay in draws
    ]
    found = judge_claim(claim(), pd.concat(parts))
    assert found.verdict == "agrees"
    assert "40 points together" in found.sentence


def noisy_level(level_of):
    def metric(size, decay, generator):
        own = np.random.default_rng([int(size), int(decay), int(generator.integers(2**31))])
        return level_of(size) + 0.01 * own.standard_normal()

    return metric


@pytest.mark.parametrize(
    ("level_of", "verdict"),
    [
        (lambda n: 0.5, "agrees"),
        (lambda n: 0.5 + 0.3 * (n == 100), "contradicts"),
        (lambda n: 0.5 + 0.0625 * (n == 100), "inconclusive"),
        (lambda n: 0.0, "inconclusive"),
    ],
    ids=["level", "bump in the middle", "at the edge of 10%", "no level to compare with"],
)
def test_constant_is_an_equivalence_test(level_of, verdict):
    found = judge_claim(claim("constant"), replicates(noisy_level(level_of), decays=(0.0,)))
    assert found.verdict == verdict
    assert "largest departure" in found.sentence


def test_metric_that_never_moves_is_constant_and_has_no_trend():
    frame = replicates(lambda n, d, g: 0.0)
    assert judge_claim(claim("constant"), frame).verdict == "agrees"
    assert judge_claim(claim("decreasing"), frame).verdict == "inconclusive"


def test_values_without_a_number_on_the_axis_are_left_out():
    frame = replicates(falling)
    frame["config/train_size"] = frame["config/train_size"].where(frame["config/train_size"] < 1000)
    found = judge_claim(claim(), frame)
    assert "from train_size = 10 to 300" in found.sentence
    assert "on the axis): 2." in found.sentence
