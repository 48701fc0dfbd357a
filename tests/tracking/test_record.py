"""Recording preserves every part of a point, and a repeated call adds nothing."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from textwrap import indent

import pandas as pd
import pytest
from made_points import ADVANTAGE, LOG_SCALED, made_point, made_points
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow_server import free_port, mlflow_server
from stores import new_store

from privnets.frames import points_frame
from privnets.points import Curve, Replicate, TradeoffPoint
from tracking import Recorder, TrackingError, compare, load_points, record, runs
from tracking.run_record import LOG10_OF_ZERO

_SLOW_SERVER = pytest.param("server", marks=pytest.mark.slow)


def _all_runs(uri: str, sweep: str) -> list[Run]:
    client = MlflowClient(uri)
    experiments = [e.experiment_id for e in client.search_experiments()]
    return list(runs.search_runs(client, experiments, f"tags.sweep = '{sweep}'"))


def _children(uri: str, sweep: str) -> dict[str, Run]:
    found = [run for run in _all_runs(uri, sweep) if "point_id" in run.data.tags]
    assert len({run.data.tags["point_id"] for run in found}) == len(found), "a point is doubled"
    return {run.data.tags["point_id"]: run for run in found}


def _parent(uri: str, sweep: str) -> Run:
    (found,) = [run for run in _all_runs(uri, sweep) if "point_id" not in run.data.tags]
    return found


def _visible_text(uri: str, sweep: str) -> dict[str, str]:
    # As text, in which NaN equals NaN.
    return {
        point_id: json.dumps(run.to_dictionary(), sort_keys=True)
        for point_id, run in _children(uri, sweep).items()
    }


def _assert_held_once(uri: str, sweep: str, points: list[TradeoffPoint]) -> None:
    assert compare(points, sweep, uri) == []
    children, parent = _children(uri, sweep), _parent(uri, sweep)
    client = MlflowClient(uri)
    for run in children.values():
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert len(client.get_metric_history(run.info.run_id, ADVANTAGE)) == 1
        assert len(client.get_metric_history(run.info.run_id, "curve/loss")) == 3


def _assert_updated(uri: str, sweep: str, points: list[TradeoffPoint], run: Run) -> None:
    """The run of the first point kept its id, and shows the point's values after the earlier."""
    assert compare(points, sweep, uri) == []
    assert _children(uri, sweep)[points[0].point_id].info.run_id == run.info.run_id
    history = MlflowClient(uri).get_metric_history(run.info.run_id, ADVANTAGE)
    assert len(history) == 2
    assert max(history, key=lambda m: m.timestamp).value == points[0].metrics[ADVANTAGE]


def test_what_is_read_is_what_was_recorded(uri: str, sweep: str) -> None:
    """The table read from MLflow is the points' own: columns, types, order, every last bit.

    Metrics that no point defines are left out.
    """
    points = [*made_points(7), made_point(7, failed=True)]
    record(points, sweep=sweep, tracking_uri=uri)
    read = load_points(sweep, uri)
    expected = points_frame(points, sweep).dropna(axis="columns", how="all")
    pd.testing.assert_frame_equal(read, expected, check_exact=True)


def test_recording_again_adds_nothing(uri: str, sweep: str) -> None:
    points = made_points(3)
    assert record(points, sweep=sweep, tracking_uri=uri) == 3
    before = _visible_text(uri, sweep)
    assert record([*points, *points], sweep=sweep, tracking_uri=uri) == 0
    assert _visible_text(uri, sweep) == before
    _assert_held_once(uri, sweep, points)


def _recorder(uri: str, sweep: str, count: int) -> subprocess.Popen[bytes]:
    code = (
        "from made_points import made_points; import tracking;"
        f"uri = tracking.create({uri!r});"
        f"tracking.record(made_points({count}), sweep={sweep!r}, tracking_uri=uri)"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[1], stderr=subprocess.PIPE
    )


@pytest.mark.parametrize("store", ["new", pytest.param("server", marks=pytest.mark.slow)])
def test_two_processes_may_create_a_store_and_record_at_once(
    store: str, sweep: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Neither fails, its schema is made once, and one run per point is left, under one parent."""
    server = "server_uri" if store == "server" else None
    uri = request.getfixturevalue(server) if server else f"sqlite:///{tmp_path}/mlflow.db"
    both = [_recorder(uri, sweep, 12) for _ in range(2)]
    ended = [(process.communicate(timeout=400)[1], process.returncode) for process in both]
    assert [code for _, code in ended] == [0, 0], ended
    _assert_held_once(uri, sweep, made_points(12))


def test_two_processes_that_delete_each_others_run_lose_no_point(
    sqlite_uri: str, sweep: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One saw the other's run before it was complete, the other saw both complete."""
    point, client, deleted = made_point(0), MlflowClient(sqlite_uri), []
    record([point], sweep=sweep, tracking_uri=sqlite_uri)
    (kept,) = _children(sqlite_uri, sweep).values()
    tags = {k: v for k, v in kept.data.tags.items() if not k.startswith("mlflow.run")}
    incomplete = client.create_run(kept.info.experiment_id, tags=tags)
    delete_run = runs.delete_run

    def delete_both(own_client: MlflowClient, run_id: str) -> None:
        deleted.append(run_id)
        if len(deleted) == 1:  # the other process completes its run and deletes ours
            client.set_terminated(run_id, "FINISHED")
            client.delete_run(kept.info.run_id)
        delete_run(own_client, run_id)

    monkeypatch.setattr(runs, "delete_run", delete_both)
    record([point], sweep=sweep, tracking_uri=sqlite_uri)
    assert deleted == [incomplete.info.run_id]
    _assert_held_once(sqlite_uri, sweep, [point])


_ONE_BY_ONE = """
import sys, tracking
from made_points import made_points
sweep, uri = sys.argv[1:]
recorder = tracking.Recorder(sweep, tracking_uri=uri)
for index, point in enumerate(made_points(80)):
    recorder.record([point])
    if index == 5:
        print("some", flush=True)
"""


@pytest.mark.parametrize("uri", ["sqlite", _SLOW_SERVER], indirect=True)
def test_a_killed_recording_is_completed_by_the_next(uri: str, sweep: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _ONE_BY_ONE, sweep, uri],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    points = made_points(80)
    assert 0 < len(compare(points, sweep, uri)) < 80, "it was killed too late to show anything"
    record(points, sweep=sweep, tracking_uri=uri)
    _assert_held_once(uri, sweep, points)


def test_a_run_that_stopped_between_any_two_calls_is_completed(uri: str, sweep: str) -> None:
    """A run that is not yet terminated counts as half-written, and gains what it lacks."""
    points = made_points(2)
    record(points, sweep=sweep, tracking_uri=uri)
    client = MlflowClient(uri)
    for run in _children(uri, sweep).values():
        client.update_run(run.info.run_id, "RUNNING")
    assert len(load_points(sweep, uri)) == 0
    assert record(points, sweep=sweep, tracking_uri=uri) == 2
    _assert_held_once(uri, sweep, points)


def test_the_earliest_of_duplicated_runs_stays(uri: str, sweep: str) -> None:
    point = made_point(0)
    record([point], sweep=sweep, tracking_uri=uri)
    first = _children(uri, sweep)[point.point_id]
    late = first.data.tags | {"recorded_at": f"{time.time() + 60:.6f}"}
    MlflowClient(uri).create_run(first.info.experiment_id, tags=late)
    assert any("duplicated" in line for line in compare([point], sweep, uri))
    record([point], sweep=sweep, tracking_uri=uri)
    assert _children(uri, sweep)[point.point_id].info.run_id == first.info.run_id
    _assert_held_once(uri, sweep, [point])


def test_a_complete_run_is_kept_until_another_is_complete(uri: str, sweep: str) -> None:
    """A publisher that dies while it replaces a run takes no point away."""
    point = made_point(0)
    record([point], sweep=sweep, tracking_uri=uri)
    first = _children(uri, sweep)[point.point_id]
    more = first.data.tags | {"replicates_attempted": "99", "recorded_at": "1.000000"}
    MlflowClient(uri).create_run(first.info.experiment_id, tags=more)
    assert load_points(sweep, uri)["point_id"].tolist() == [point.point_id]
    record([point], sweep=sweep, tracking_uri=uri)
    assert _children(uri, sweep)[point.point_id].info.run_id == first.info.run_id


def test_the_earliest_of_duplicated_parents_gets_all_children(uri: str, sweep: str) -> None:
    points = made_points(3)
    record(points, sweep=sweep, tracking_uri=uri)
    late = _parent(uri, sweep)
    early = late.data.tags | {"recorded_at": "1000000000.000000"}
    kept = MlflowClient(uri).create_run(late.info.experiment_id, tags=early)
    record(points[:1], sweep=sweep, tracking_uri=uri)
    assert _parent(uri, sweep).info.run_id == kept.info.run_id
    _assert_held_once(uri, sweep, points)


def test_a_point_with_more_replicates_updates_its_run(uri: str, sweep: str) -> None:
    few, more = made_point(1, replicates=2), made_point(1, replicates=4)
    record([few], sweep=sweep, tracking_uri=uri)
    run = _children(uri, sweep)[few.point_id]
    assert record([more], sweep=sweep, tracking_uri=uri) == 1
    _assert_updated(uri, sweep, [more], run)
    assert record([few], sweep=sweep, tracking_uri=uri) == 0
    _assert_updated(uri, sweep, [more], run)


def _with_other_values(point: TradeoffPoint, *, later: float, value: float) -> TradeoffPoint:
    made = tuple(
        replace(r, finished_at=r.finished_at + later, metrics={**r.metrics, ADVANTAGE: value})
        for r in point.replicates
    )
    return replace(point, replicates=made)


@pytest.mark.parametrize(
    ("uri", "later"),
    [("sqlite", 3600.0), ("sqlite", -3600.0), ("sqlite", 0.0), ("server", 3600.0), ("server", 0.0)],
    indirect=["uri"],
)
def test_a_point_that_was_computed_again_updates_or_replaces_its_run(
    uri: str, sweep: str, later: float
) -> None:
    """Later values update the run; MLflow would not show earlier ones, so they replace it."""
    before, other = made_points(2)
    after = _with_other_values(before, later=later, value=0.25)
    record([before, other], sweep=sweep, tracking_uri=uri)
    run = _children(uri, sweep)[before.point_id]
    assert record([after, other], sweep=sweep, tracking_uri=uri) == 1
    if later > 0:
        _assert_updated(uri, sweep, [after, other], run)
    else:
        _assert_held_once(uri, sweep, [after, other])
    assert record([after, other], sweep=sweep, tracking_uri=uri) == 0


def test_later_values_complete_a_half_written_run(uri: str, sweep: str) -> None:
    before = made_point(0)
    record([before], sweep=sweep, tracking_uri=uri)
    half = _children(uri, sweep)[before.point_id]
    MlflowClient(uri).update_run(half.info.run_id, "RUNNING")
    after = _with_other_values(before, later=60.0, value=0.25)
    record([after], sweep=sweep, tracking_uri=uri)
    _assert_updated(uri, sweep, [after], half)


def test_a_run_shows_the_configuration_as_numbers(sqlite_uri: str, sweep: str) -> None:
    points = made_points(2)
    record(
        points, sweep=sweep, tracking_uri=sqlite_uri, log_scaled=LOG_SCALED,
        name_fields=("train_size", "weight_decay", "features"),
    )  # fmt: skip
    first, second = (_children(sqlite_uri, sweep)[point.point_id] for point in points)
    assert first.info.run_name == "ts=10 wd=0 f=5"
    assert second.info.run_name == "ts=20 wd=1e-06 f=null"
    assert float(second.data.params["train_size"]) == 20
    assert float(second.data.params["weight_decay"]) == 1e-6
    assert float(second.data.params["log10_weight_decay"]) == pytest.approx(-6)
    assert float(first.data.params["log10_weight_decay"]) == LOG10_OF_ZERO
    assert first.data.params["dataset"] == "adult"
    assert first.data.params["features"] == "5"
    assert "features" not in second.data.params, "it is None"


def test_an_infinite_knob_has_a_finite_logarithm_above_all_others(
    sqlite_uri: str, sweep: str
) -> None:
    """Parallel coordinates drop a run whose value is not finite."""
    points = [
        replace(made_point(i), config={"alpha": alpha}) for i, alpha in enumerate((1e9, math.inf))
    ]
    record(points, sweep=sweep, tracking_uri=sqlite_uri, log_scaled=frozenset({"alpha"}))
    _assert_held_once(sqlite_uri, sweep, points)
    children = _children(sqlite_uri, sweep)
    large, infinite = (children[point.point_id].data.params for point in points)
    assert infinite["alpha"] == "Infinity"
    assert 9 == float(large["log10_alpha"]) < float(infinite["log10_alpha"]) < math.inf


def test_a_log_scaled_field_must_be_a_number(sqlite_uri: str, sweep: str) -> None:
    point = replace(made_point(0), config={"alpha": math.nan})
    with pytest.raises(ValueError, match="must not be NaN; alpha is"):
        record([point], sweep=sweep, tracking_uri=sqlite_uri)


def test_a_run_has_the_records_own_times(sqlite_uri: str, sweep: str) -> None:
    point = made_point(4)
    record([point], sweep=sweep, tracking_uri=sqlite_uri)
    run = _children(sqlite_uri, sweep)[point.point_id]
    history = MlflowClient(sqlite_uri).get_metric_history(run.info.run_id, ADVANTAGE)
    first, last = (round(r.finished_at * 1000) for r in point.replicates)
    assert (run.info.start_time, run.info.end_time) == (first, last)
    assert [(m.step, m.timestamp) for m in history] == [(0, last)]


def test_curves_keep_their_steps(sqlite_uri: str, sweep: str) -> None:
    point = made_point(5)
    record([point], sweep=sweep, tracking_uri=sqlite_uri)
    run_id = _children(sqlite_uri, sweep)[point.point_id].info.run_id
    history = MlflowClient(sqlite_uri).get_metric_history(run_id, "curve/loss")
    curve = point.curves["loss"]
    assert {m.step: m.value for m in history} == dict(zip(curve.steps, curve.values, strict=True))


def test_roc_curves_are_in_a_file(sqlite_uri: str, sweep: str) -> None:
    """MLflow would draw them over the steps of a training."""
    curves = {"loss": Curve((0, 10), (2.0, 1.0)), "roc/a": Curve((0, 500, 1000), (0.0, 0.75, 1.0))}
    replicate = Replicate(0, {ADVANTAGE: 0.25}, curves=curves, finished_at=1e9)
    point = TradeoffPoint("p", "membership", {}, (replicate,))
    record([point], sweep=sweep, tracking_uri=sqlite_uri)
    run = _children(sqlite_uri, sweep)["p"]
    assert [key for key in run.data.metrics if key.startswith("curve/")] == ["curve/loss"]
    file = MlflowClient(sqlite_uri).download_artifacts(run.info.run_id, "roc.csv")
    assert Path(file).read_text().splitlines() == [
        "attack,false_positive_rate,true_positive_rate", "a,0.0,0.0", "a,0.5,0.75", "a,1.0,1.0",
    ]  # fmt: skip
    assert compare([point], sweep, sqlite_uri) == []


def test_artifacts_are_kept(uri: str, sweep: str, tmp_path: Path) -> None:
    point = made_point(6)
    record([point], sweep=sweep, tracking_uri=uri)
    run_id = _children(uri, sweep)[point.point_id].info.run_id
    copied = Path(MlflowClient(uri).download_artifacts(run_id, "", str(tmp_path)))
    assert (copied / "roc.json").read_bytes() == b"{}"
    assert (copied / "samples/0.bin").read_bytes() == b"\x06"


@pytest.mark.parametrize("name", ["../../outside", "/etc/outside", ""])
def test_artifacts_stay_inside_their_run(tmp_path: Path, name: str) -> None:
    """Nothing is written where a point cannot be."""
    replicate = Replicate(0, {}, artifacts={name: b""}, finished_at=1.0)
    points = [made_point(0), TradeoffPoint("p", "e", {}, (replicate,))]
    with pytest.raises(ValueError, match="path inside the run"):
        record(points, sweep="s", tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_point_is_a_failed_run_with_its_reason(sqlite_uri: str, sweep: str) -> None:
    """And has every key of the points it was recorded with."""
    good, bad = made_point(0), made_point(1, failed=True)
    record([good, bad], sweep=sweep, tracking_uri=sqlite_uri)
    children = _children(sqlite_uri, sweep)
    run = children[bad.point_id]
    assert run.info.status == "FAILED"
    assert run.data.tags["failure"] == "loss is NaN at step 0 (2 of 2 replicates failed)"
    assert "loss is NaN" in run.data.tags["mlflow.note.content"]
    assert set(run.data.metrics) == {k for k, value in good.metrics.items() if value == value}
    assert children[good.point_id].info.status == "FINISHED"


def test_the_description_has_each_reason_once_and_no_flag_that_does_not_apply(
    sqlite_uri: str, sweep: str
) -> None:
    metrics = {
        "flag/raised": 1.0,
        "flag/unused": math.nan,
        "bound/a": math.nan,
        "bound/b": math.nan,
    }
    reasons = dict.fromkeys(metrics, "not private") | {"flag/raised": "an attack beats its bound"}
    replicate = Replicate(0, metrics, notes=reasons, finished_at=1.7e9)
    point = TradeoffPoint("noted", "e", {"a": 1}, (replicate,))
    record([point], sweep=sweep, tracking_uri=sqlite_uri)
    count = "(1 of 1 replicates)"
    lines = [
        f"an attack beats its bound {count}", "  flag/raised", "",
        f"Undefined, not private {count}:", "  bound/a", "  bound/b",
    ]  # fmt: skip
    text = _children(sqlite_uri, sweep)["noted"].data.tags["mlflow.note.content"]
    assert text == indent("\n".join(lines), "    ")


def test_a_large_point_is_sent_in_parts(uri: str, sweep: str) -> None:
    """More values, parameters and characters than MLflow takes in one call."""
    steps = tuple(range(2500))
    replicate = Replicate(
        0,
        {f"privacy/m{i}": i / 7 for i in range(300)},
        notes={f"privacy/m{i}": f"{i} " + "long " * 30 for i in range(100)},
        curves={"loss": Curve(steps, tuple(s / 3 for s in steps))},
        finished_at=1.7e9,
    )
    point = TradeoffPoint("big", "e", {f"field{i}": i for i in range(250)}, (replicate,))
    record([point], sweep=sweep, tracking_uri=uri)
    assert compare([point], sweep, uri) == []
    run = _children(uri, sweep)["big"]
    assert len(run.data.params) == 250
    assert len(run.data.tags["mlflow.note.content"]) == 8000
    history = MlflowClient(uri).get_metric_history(run.info.run_id, "curve/loss")
    assert len(history) == 2500


def test_searches_go_on_past_their_first_page(
    sqlite_uri: str, sweep: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_PAGE_SIZE", 4)
    points = made_points(18)
    record(points, sweep=sweep, tracking_uri=sqlite_uri)
    assert record(points, sweep=sweep, tracking_uri=sqlite_uri) == 0
    assert len(load_points(sweep, sqlite_uri)) == 18


def test_a_study_is_an_experiment_that_holds_its_sweeps(uri: str, sweep: str) -> None:
    for name in (f"{sweep}-a", f"{sweep}-b"):
        record(made_points(1), sweep=name, study=f"study of {sweep}", tracking_uri=uri)
    experiment = MlflowClient(uri).get_experiment_by_name(f"study of {sweep}")
    parents = [_parent(uri, f"{sweep}-{end}") for end in "ab"]
    assert [parent.info.experiment_id for parent in parents] == [experiment.experiment_id] * 2


def test_without_a_study_a_sweep_stays_where_it_is(sqlite_uri: str, sweep: str) -> None:
    points = made_points(2)
    record(points[:1], sweep=sweep, study=f"study of {sweep}", tracking_uri=sqlite_uri)
    record(points, sweep=sweep, tracking_uri=sqlite_uri)
    _assert_held_once(sqlite_uri, sweep, points)


def test_a_sweep_name_in_two_studies_needs_the_study(sqlite_uri: str, sweep: str) -> None:
    for study in "ab":
        record(made_points(1), sweep=sweep, study=f"{sweep}{study}", tracking_uri=sqlite_uri)
    with pytest.raises(TrackingError, match="name the study"):
        load_points(sweep, sqlite_uri)
    assert len(load_points(sweep, sqlite_uri, study=f"{sweep}a")) == 1


def test_a_deleted_experiment_is_reported(sqlite_uri: str, sweep: str) -> None:
    record(made_points(1), sweep=sweep, tracking_uri=sqlite_uri)
    MlflowClient(sqlite_uri).delete_experiment(_parent(sqlite_uri, sweep).info.experiment_id)
    with pytest.raises(TrackingError, match="mlflow experiments restore"):
        record(made_points(1), sweep=sweep, tracking_uri=sqlite_uri)


@pytest.mark.parametrize("value", [-1.0, "big"])
def test_a_log_scaled_field_must_have_a_logarithm(
    sqlite_uri: str, sweep: str, value: float | str
) -> None:
    point = TradeoffPoint("p", "e", {"x": value}, (Replicate(0, {}),))
    with pytest.raises(ValueError, match=re.escape(f"x is {value!r}")):
        record([point], sweep=sweep, tracking_uri=sqlite_uri, log_scaled=frozenset({"x"}))


def test_no_points_need_no_store(tmp_path: Path) -> None:
    assert record([], sweep="s", tracking_uri=f"sqlite:///{tmp_path}/mlflow.db") == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_server_that_comes_back_gets_what_it_lacks(tmp_path: Path) -> None:
    """Killed while it is in use: recording fails soon, and later completes.

    A call that failed may have gone through, and another recorder may have recorded since.
    """
    points, port = made_points(6), free_port()
    new_store(tmp_path)
    with mlflow_server(tmp_path, port) as server:
        ours = Recorder("s", tracking_uri=server.uri)
        ours.record(points[:3])
        server.kill()
        start = time.monotonic()
        with pytest.raises(TrackingError):
            ours.record(points)
        assert time.monotonic() - start < 90
    with mlflow_server(tmp_path, port) as server:
        record(points[3:5], sweep="s", tracking_uri=server.uri)
        assert ours.record(points) == 1
        _assert_held_once(server.uri, "s", points)
