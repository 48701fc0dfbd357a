"""A recorder that looks less often records the same, and nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from made_points import ADVANTAGE, made_point, made_points
from mlflow import MlflowClient
from mlflow.entities import Run

from tracking import Recorder, compare, load_points, runs


def _runs_of(client: MlflowClient, home: runs.ParentRun, sweep: str, point_id: str) -> list[Run]:
    children = runs.children(client, home, sweep)
    return [run for run in children if run.data.tags["point_id"] == point_id]


@pytest.fixture
def recorder(uri: str, sweep: str) -> Callable[[], Recorder]:
    return lambda: Recorder(sweep, tracking_uri=uri)


def test_batches_make_the_sweep(recorder: Callable[[], Recorder], uri: str, sweep: str) -> None:
    """Points that come again, alone or in a batch, add nothing."""
    points, ours = made_points(7), recorder()
    assert ours.record(points[:3]) == 3
    assert ours.record(points[2:6]) == 3
    assert ours.record(points[:1]) == 0
    assert recorder().record(points) == 1
    assert ours.confirm() == set()
    assert compare(points, sweep, uri) == []


def test_no_points_need_no_store(tmp_path: Path) -> None:
    assert Recorder("s", tracking_uri=f"sqlite:///{tmp_path}/mlflow.db").record([]) == 0
    assert list(tmp_path.iterdir()) == []


def test_one_run_stays_when_two_recorders_overlap(
    recorder: Callable[[], Recorder], uri: str, sweep: str
) -> None:
    points = made_points(5)
    ours, theirs = recorder(), recorder()
    for each in (ours, theirs):  # both have looked now
        each.record(points[:1])
    ours.record(points)
    theirs.record(points)
    assert any("duplicated" in line for line in compare(points, sweep, uri))
    assert theirs.confirm() == ours.confirm() == set()
    assert compare(points, sweep, uri) == []


def test_runs_deleted_meanwhile_are_reported_as_missing(
    recorder: Callable[[], Recorder], uri: str, sweep: str
) -> None:
    points, ours = made_points(3), recorder()
    ours.record(points)
    client = MlflowClient(uri)
    home = runs.find_parent(client, sweep, None)
    assert home is not None
    (run,) = _runs_of(client, home, sweep, points[1].point_id)
    client.delete_run(run.info.run_id)
    assert ours.confirm() == {points[1].point_id}
    assert ours.record(points) == 1
    assert ours.confirm() == set()
    assert compare(points, sweep, uri) == []


def test_a_point_with_more_replicates_replaces_its_run(
    recorder: Callable[[], Recorder], uri: str, sweep: str
) -> None:
    few, more, ours = made_point(1, replicates=2), made_point(1, replicates=4), recorder()
    assert [ours.record([point]) for point in (few, more, few)] == [1, 1, 0]
    assert compare([more], sweep, uri) == []


def test_later_batches_have_the_keys_of_earlier_ones(
    recorder: Callable[[], Recorder], uri: str, sweep: str
) -> None:
    ours = recorder()
    ours.record([made_point(0)])
    ours.record([made_point(1, failed=True)])
    assert load_points(sweep, uri)[ADVANTAGE].isna().sum() == 1
    client = MlflowClient(uri)
    home = runs.find_parent(client, sweep, None)
    assert home is not None
    (failed,) = _runs_of(client, home, sweep, made_point(1).point_id)
    assert set(made_point(0).metrics) <= set(failed.data.metrics)
