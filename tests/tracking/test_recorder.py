"""A recorder that looks less often records the same, and nothing twice."""

from __future__ import annotations

import math
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from made_points import ADVANTAGE, made_point, made_points
from mlflow import MlflowClient
from mlflow.entities import Run

from privnets.frames import points_frame
from privnets.points import TradeoffPoint
from tracking import Recorder, compare, load_points, runs
from tracking.errors import TrackingError
from tracking.run_record import TABLE_FILE
from tracking.sweep_run import find_parent
from tracking.uris import sqlite_path


def _point_runs(client: MlflowClient, sweep: str) -> list[Run]:
    parent = find_parent(client, sweep, None)
    assert parent is not None
    return list(runs.point_runs(client, parent.experiment_id, sweep))


def _runs_of(client: MlflowClient, sweep: str, point_id: str) -> list[Run]:
    return [run for run in _point_runs(client, sweep) if run.data.tags["point_id"] == point_id]


@pytest.fixture
def uri(sqlite_uri: str) -> str:
    """One store is enough here: recording is tested with each kind."""
    return sqlite_uri


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


def test_recording_does_not_keep_python_from_ending(
    recorder: Callable[[], Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may leave a request without an answer for minutes."""
    are_daemons: list[bool] = []

    def note(*_: object) -> bool:
        are_daemons.append(threading.current_thread().daemon)
        return False

    monkeypatch.setattr("tracking.recorder._fill_run", note)
    recorder().record(made_points(2))
    assert are_daemons == [True, True]


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
    (run,) = _runs_of(client, sweep, points[1].point_id)
    client.delete_run(run.info.run_id)
    assert ours.confirm() == {points[1].point_id}
    assert ours.record(points) == 1
    assert ours.confirm() == set()
    assert compare(points, sweep, uri) == []


def test_later_batches_have_the_keys_of_earlier_ones(
    recorder: Callable[[], Recorder], uri: str, sweep: str
) -> None:
    ours = recorder()
    ours.record([made_point(0)])
    ours.record([made_point(1, failed=True)])
    assert load_points(sweep, uri)[ADVANTAGE].isna().sum() == 1
    client = MlflowClient(uri)
    (failed,) = _runs_of(client, sweep, made_point(1).point_id)
    defined = {key for key, value in made_point(0).metrics.items() if value == value}
    assert defined == set(failed.data.metrics)


def test_headline_metrics_are_logged_once_a_point_defines_them(uri: str, sweep: str) -> None:
    mse, attack = "utility/test_mse", "privacy/attack/lira/tpr_at_fpr_0.1"
    headline = [ADVANTAGE, f"{ADVANTAGE}.std", "privacy/rho_kl", mse]
    ours = Recorder(sweep, tracking_uri=uri, headline=headline)
    first, failed = made_point(0), made_point(1, failed=True)
    lacking = [replace(r, metrics={**r.metrics, mse: math.nan}) for r in first.replicates]
    first = replace(first, replicates=tuple(lacking))
    client = MlflowClient(uri)

    def logged() -> dict[str, set[str]]:
        children = _point_runs(client, sweep)
        curves = runs.CURVES
        return {
            run.data.tags[runs.POINT_ID]: {k for k in run.data.metrics if not k.startswith(curves)}
            for run in children
        }

    ours.record([failed, first])
    assert set(map(frozenset, logged().values())) == {frozenset({ADVANTAGE, f"{ADVANTAGE}.std"})}
    again = Recorder(sweep, tracking_uri=uri, headline=headline)
    again.record([made_point(3)])
    shown = {ADVANTAGE, f"{ADVANTAGE}.std", mse}
    assert set(map(frozenset, logged().values())) == {frozenset(shown)}
    points = [first, failed, made_point(3)]
    assert compare(points, sweep, uri) == []
    stored, own = load_points(sweep, uri), points_frame(points, sweep)
    hidden = [key for key in own if "/" in key and "config" not in key and key not in shown]
    pd.testing.assert_frame_equal(stored, own.drop(columns=hidden))
    run_id = next(run_id for run_id in _run_ids(client, sweep, first.point_id))
    table = Path(client.download_artifacts(run_id, TABLE_FILE)).read_text()
    assert f"{attack},{first.metrics[attack]!r}," in table


def test_objectives_come_first_and_fields_without_effect_are_no_parameters(
    uri: str, sweep: str
) -> None:
    ours = Recorder(
        sweep,
        tracking_uri=uri,
        objectives=[ADVANTAGE, f"{ADVANTAGE}.std"],
        unused=lambda point: ["dataset"],
    )
    points = [made_point(0), made_point(1, failed=True)]
    ours.record(points)
    (run,) = _runs_of(MlflowClient(uri), sweep, points[0].point_id)
    assert sorted(run.data.metrics)[:2] == [f"Objective/{ADVANTAGE}", f"Objective/{ADVANTAGE}.std"]
    assert ADVANTAGE not in run.data.metrics
    assert points[0].config.keys() - run.data.params.keys() == {"dataset"}
    stored = load_points(sweep, uri)
    assert {ADVANTAGE, f"{ADVANTAGE}.std", "config/dataset"} <= {*stored}
    pd.testing.assert_frame_equal(stored, points_frame(points, sweep)[[*stored]])
    assert compare(points, sweep, uri) == []
    other = replace(points[0].replicates[0], metrics={**points[0].metrics, ADVANTAGE: 0.9})
    changed = replace(points[0], replicates=(other, *points[0].replicates[1:]))
    assert any(ADVANTAGE in line for line in compare([changed, points[1]], sweep, uri))


@pytest.mark.parametrize("failing", range(3))
def test_a_failed_call_leaves_no_run_without_a_metric(
    failing: int, sqlite_uri: str, sweep: str
) -> None:
    """Whichever of the earlier runs a new metric could not be logged in."""
    headline = [ADVANTAGE, "utility/test_mse"]
    points = [_without_mse(made_point(index)) for index in range(3)]
    Recorder(sweep, tracking_uri=sqlite_uri, headline=headline).record(points)
    client = MlflowClient(sqlite_uri)
    (run_id,) = _run_ids(client, sweep, points[failing].point_id)
    path = sqlite_path(sqlite_uri)
    assert path is not None
    later = Recorder(sweep, tracking_uri=sqlite_uri, headline=headline)
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            f"CREATE TRIGGER full BEFORE INSERT ON metrics WHEN NEW.run_uuid = '{run_id}' "
            "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
        )
        try:
            with pytest.raises(TrackingError):
                later.record([made_point(3)])
        finally:
            database.execute("DROP TRIGGER full")
    again = Recorder(sweep, tracking_uri=sqlite_uri, headline=headline)
    again.record([made_point(3)])
    found = _point_runs(client, sweep)
    assert len(found) == 4
    assert all(set(headline) <= set(run.data.metrics) for run in found)


def test_a_run_deleted_meanwhile_does_not_stop_a_new_metric(sqlite_uri: str, sweep: str) -> None:
    headline = [ADVANTAGE, "utility/test_mse"]
    points = [_without_mse(made_point(index)) for index in range(2)]
    ours = Recorder(sweep, tracking_uri=sqlite_uri, headline=headline)
    ours.record(points)
    client = MlflowClient(sqlite_uri)
    (run_id,) = _run_ids(client, sweep, points[0].point_id)
    client.delete_run(run_id)
    assert ours.record([made_point(3)]) == 1


def _without_mse(point: TradeoffPoint) -> TradeoffPoint:
    lacking = [
        replace(r, metrics={k: v for k, v in r.metrics.items() if k != "utility/test_mse"})
        for r in point.replicates
    ]
    return replace(point, replicates=tuple(lacking))


def test_a_difference_in_a_metric_that_runs_do_not_show_is_reported(uri: str, sweep: str) -> None:
    attack = "privacy/attack/lira/tpr_at_fpr_0.1"
    point = made_point(0)
    Recorder(sweep, tracking_uri=uri, headline=[ADVANTAGE]).record([point])
    assert compare([point], sweep, uri) == []
    other = [replace(r, metrics={**r.metrics, attack: 0.5}) for r in point.replicates]
    (line,) = compare([replace(point, replicates=tuple(other))], sweep, uri)
    assert line == f"{point.point_id}: metrics that its run does not show differ"


def test_a_metric_that_becomes_a_headline_gets_its_values_in_earlier_runs(
    uri: str, sweep: str
) -> None:
    points, mse = [made_point(0), made_point(1)], "utility/test_mse"
    Recorder(sweep, tracking_uri=uri, headline=[ADVANTAGE]).record(points)
    again = Recorder(sweep, tracking_uri=uri, headline=[ADVANTAGE, mse])
    again.record(points)
    assert compare(points, sweep, uri) == []
    assert list(load_points(sweep, uri)[mse]) == list(points_frame(points, sweep)[mse])


def _run_ids(client: MlflowClient, sweep: str, point_id: str) -> list[str]:
    return [run.info.run_id for run in _runs_of(client, sweep, point_id)]
