"""The table of points has one layout, whatever it is made from."""

from __future__ import annotations

import random

import pandas as pd
import pytest
from made_points import ADVANTAGE, made_point, made_points

from privnets.frames import points_frame, replicates_frame
from privnets.points import Replicate, ScoredRecords, TradeoffPoint

LEADING = ["point_id", "sweep", "experiment", "status", "replicates", "finished_at"]


def test_columns_follow_the_contract() -> None:
    """Leading columns, sorted configuration, then each metric followed by its spread."""
    columns = list(points_frame(made_points(2), "s").columns)
    config = ["dataset", "exact", "features", "note", "train_size", "weight_decay"]
    metrics = list(made_point(0).replicates[0].metrics)
    suffixes = ["", ".std", ".ci_low", ".ci_high"]
    assert columns[:6] == LEADING
    assert columns[6:12] == [f"config/{field}" for field in config]
    assert columns[12:] == [m + suffix for m in sorted(metrics) for suffix in suffixes]


def test_replicate_columns_follow_the_contract() -> None:
    """Seed, failure and stopped in place of the count, and no spread."""
    columns = list(replicates_frame(made_points(2), "s").columns)
    assert columns[:4] == LEADING[:4]
    scored = ["test_set", "test_size", "test_overlap"]
    assert columns[4:11] == ["seed", "failure", "stopped", *scored, "finished_at"]
    assert columns[17:] == sorted(made_point(0).replicates[0].metrics)


def test_rows_do_not_depend_on_the_order_of_points() -> None:
    points = made_points(12)
    shuffled = random.Random(3).sample(points, len(points))
    pd.testing.assert_frame_equal(points_frame(points, "s"), points_frame(shuffled, "s"))


def test_rows_come_in_order_of_configuration() -> None:
    values = [10.0, None, 9, 0.5]
    points = [TradeoffPoint(str(i), "e", {"x": v}, ()) for i, v in enumerate(values)]
    assert list(points_frame(points, "s").point_id) == ["1", "3", "2", "0"]


def test_values_are_the_points_own() -> None:
    point = made_point(1)
    row = points_frame([point], "s").iloc[0]
    assert row[ADVANTAGE] == point.metrics[ADVANTAGE]
    assert row[f"{ADVANTAGE}.ci_low"] == point.metrics[f"{ADVANTAGE}.ci_low"]
    assert row["replicates"] == 2
    assert row["config/train_size"] == 20
    assert row["finished_at"] == pd.Timestamp(round(point.finished_at * 1e6), unit="us", tz="UTC")


def test_a_replicate_has_its_own_row() -> None:
    good, bad = made_point(0).replicates[1], Replicate(2, {}, failure="diverged", finished_at=9.0)
    frame = replicates_frame([TradeoffPoint("p", "e", {}, (good, bad))], "s")
    assert list(frame.seed) == [1, 2]
    assert list(frame.status) == ["finished", "failed"]
    assert frame.failure.isna().tolist() == [True, False]
    assert frame[ADVANTAGE].iloc[0] == good.metrics[ADVANTAGE]
    assert frame[ADVANTAGE].isna().tolist() == [False, True]


def test_a_replicate_names_its_test_set_and_its_standard_errors() -> None:
    scored = ScoredRecords("amnist", 4681)
    replicate = Replicate(0, {ADVANTAGE: 0.5}, {ADVANTAGE: 0.01}, scored_on=scored)
    (row,) = replicates_frame([TradeoffPoint("p", "e", {}, (replicate,))], "s").to_dict("records")
    assert (row["test_set"], row["test_size"], row["test_overlap"]) == ("amnist", 4681, 1)
    assert row[f"{ADVANTAGE}.standard_error"] == 0.01


def test_types_hold_for_a_point_without_metrics() -> None:
    """A failed point leaves numbers numbers: its metrics are NaN."""
    frame = points_frame([made_point(0), made_point(2, failed=True)], "s")
    assert frame[ADVANTAGE].dtype == "float64"
    assert frame[ADVANTAGE].isna().sum() == 1


@pytest.mark.parametrize("build", [points_frame, replicates_frame])
def test_no_points_make_an_empty_table(build: type) -> None:
    frame = build([], "s")
    assert len(frame) == 0
    assert str(frame.finished_at.dtype) == "datetime64[us, UTC]"
