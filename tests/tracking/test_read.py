"""Reading finds every difference, and trusts nothing that a stranger may have written."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_points import ADVANTAGE, made_point, made_points
from mlflow import MlflowClient
from mlflow.entities import Metric, Run

from privnets.points import Curve, TradeoffPoint
from tracking import TrackingError, compare, load_points, record, runs
from tracking.sweep_run import find_parent


@pytest.fixture
def points(sqlite_uri: str, sweep: str) -> list[TradeoffPoint]:
    made = made_points(2)
    record(made, sweep=sweep, tracking_uri=sqlite_uri)
    return made


@pytest.fixture
def run(points: list[TradeoffPoint], sqlite_uri: str, sweep: str) -> Run:
    """The first point's."""
    client = MlflowClient(sqlite_uri)
    parent = find_parent(client, sweep, None)
    assert parent is not None
    children = runs.point_runs(client, parent.experiment_id, sweep)
    return next(run for run in children if run.data.tags["point_id"] == points[0].point_id)


def test_an_unknown_sweep_is_reported(uri: str) -> None:
    for read in (load_points, lambda name, store: compare([], name, store)):
        with pytest.raises(TrackingError, match="does not contain a sweep named 'nowhere'"):
            read("nowhere", uri)


@pytest.mark.parametrize("name", ["it's", 'a "quoted" name', "ünïcode λ", "50% done_"])
def test_names_with_special_characters_can_be_searched(sqlite_uri: str, name: str) -> None:
    record(made_points(1), sweep=name, tracking_uri=sqlite_uri)
    assert compare(made_points(1), name, sqlite_uri) == []


def test_a_name_that_cannot_be_searched_is_refused(sqlite_uri: str) -> None:
    with pytest.raises(TrackingError, match="quotes or backslashes"):
        record(made_points(1), sweep="'\"", tracking_uri=sqlite_uri)


def test_missing_and_extra_points_are_reported(
    points: list[TradeoffPoint], sqlite_uri: str, sweep: str
) -> None:
    assert compare([points[0], made_point(9)], sweep, sqlite_uri) == [
        f"{points[1].point_id}: extra, only in MLflow",
        f"{made_point(9).point_id}: missing from MLflow",
    ]


def test_an_incomplete_run_is_reported(
    points: list[TradeoffPoint], run: Run, sqlite_uri: str, sweep: str
) -> None:
    MlflowClient(sqlite_uri).update_run(run.info.run_id, "RUNNING")
    (line,) = compare(points, sweep, sqlite_uri)
    assert line == f"{points[0].point_id}: incomplete, RUNNING in MLflow"


def test_a_duplicated_point_is_reported(
    points: list[TradeoffPoint], run: Run, sqlite_uri: str, sweep: str
) -> None:
    MlflowClient(sqlite_uri).create_run(run.info.experiment_id, tags=run.data.tags)
    assert f"{points[0].point_id}: duplicated, 2 runs in MLflow" in compare(
        points, sweep, sqlite_uri
    )


def test_a_difference_in_the_last_bit_is_reported(
    points: list[TradeoffPoint], run: Run, sqlite_uri: str, sweep: str
) -> None:
    value = points[0].metrics[ADVANTAGE]
    other = value * (1 + 2**-52)
    when = run.info.end_time + 1
    MlflowClient(sqlite_uri).log_batch(run.info.run_id, [Metric(ADVANTAGE, other, when, 0)])
    assert compare(points, sweep, sqlite_uri) == [
        f"{points[0].point_id}: {ADVANTAGE} is {value!r}, in MLflow {other!r}"
    ]


def test_other_differences_are_reported(
    points: list[TradeoffPoint], sqlite_uri: str, sweep: str
) -> None:
    """Covers the configuration, the experiment, the time, a metric and a curve."""
    first = points[0]
    later = [
        replace(
            replicate,
            metrics={**replicate.metrics, ADVANTAGE: 1.0},
            curves={"loss": Curve((0,), (4.0,))},
            finished_at=replicate.finished_at + 1,
        )
        for replicate in first.replicates
    ]
    changed = TradeoffPoint(
        first.point_id, "other", {**first.config, "train_size": 11}, tuple(later)
    )
    lines = compare([changed, points[1]], sweep, sqlite_uri)
    told = [line.removeprefix(f"{first.point_id}: ").split(" is ")[0] for line in lines]
    spread = [f"{ADVANTAGE}{end}" for end in ("", ".ci_high", ".ci_low", ".std")]
    assert told == ["experiment", "finished_at", "config/train_size", *spread, "curve/loss"]


@pytest.mark.parametrize(
    ("tag", "value"),
    [
        ("config", "[" * 7000),
        ("config", '{"x": {"nested": 1}}'),
        ("config", '{"x": NaN}'),
        ("config", '{"x": ' + "9" * 6000 + "}"),
        ("config", "!!python/object/apply:os.system ['true']"),
        ("finished_at", "nan"),
        ("finished_at", "1e300"),
        ("replicates", "-1"),
        ("replicates", "9" * 5000),
        ("status", "wonderful"),
    ],
)
def test_a_tag_that_record_did_not_write_is_refused(
    points: list[TradeoffPoint], run: Run, sqlite_uri: str, sweep: str, tag: str, value: str
) -> None:
    MlflowClient(sqlite_uri).set_tag(run.info.run_id, tag, value)
    with pytest.raises(TrackingError, match=run.info.run_id) as caught:
        load_points(sweep, sqlite_uri)
    assert len(str(caught.value)) < 1000
    (line,) = compare(points, sweep, sqlite_uri)
    assert line.startswith(f"{points[0].point_id}: the run {run.info.run_id} was not written")
