"""The parent run shows the sweep as it stands, and is written only where something changed."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from made_points import made_points
from mlflow import MlflowClient
from mlflow.entities import Run

from tracking import Recorder, record
from tracking.sweep_run import ParentRun, Status, SweepUpdate, find_parent


def _parent(uri: str, sweep: str) -> Run:
    client = MlflowClient(uri)
    home = find_parent(client, sweep, None)
    assert home is not None
    return client.get_run(home.run_id)


def _update(uri: str, sweep: str, **changes: Any) -> ParentRun:
    return Recorder(sweep, tracking_uri=uri).update_sweep(SweepUpdate(**changes))


@pytest.fixture
def uri(sqlite_uri: str) -> str:
    """One store is enough here: recording is tested with each kind."""
    return sqlite_uri


def test_files_are_shown_under_their_names(uri: str, sweep: str, tmp_path: Path) -> None:
    files = tmp_path / "files"
    (files / "front").mkdir(parents=True)
    for name in ("report.html", "front/front.html"):
        (files / name).write_bytes(b"<html>")
    _update(uri, sweep, files=files)
    run_id = _parent(uri, sweep).info.run_id
    copied = Path(MlflowClient(uri).download_artifacts(run_id, "", str(tmp_path)))
    for name in ("report.html", "front/front.html"):
        assert (copied / name).read_bytes() == b"<html>"


def test_the_description_shows_a_picture_and_the_inputs_have_the_data(
    uri: str, sweep: str, tmp_path: Path
) -> None:
    (tmp_path / "front.png").write_bytes(b"picture")
    data = {"digits": "abc", "own": "long " * 100}
    for _ in range(2):
        changes = {"headline": "The best is 0.5.", "picture": "front.png", "data": data}
        _update(uri, sweep, files=tmp_path, **changes)
    run = _parent(uri, sweep)
    address = f"get-artifact?path=front.png&run_uuid={run.info.run_id}"
    note = run.data.tags["mlflow.note.content"]
    assert note.startswith(f"The best is 0.5.\n\n![front.png]({address})\n\nSweep")
    inputs = {each.dataset.name: each.dataset for each in run.inputs.dataset_inputs}
    assert len(run.inputs.dataset_inputs) == 2
    assert inputs["digits"].digest == "abc"
    assert {name: json.loads(each.source)["fingerprint"] for name, each in inputs.items()} == data
    if uri.startswith("http"):
        with urllib.request.urlopen(f"{uri}/{address}", timeout=240) as answer:
            assert answer.read() == b"picture"


def test_hypervolume_has_one_value_per_step(uri: str, sweep: str) -> None:
    steps = [("hypervolume", 0.1 * step, 1.7e9 + step, step) for step in (1, 2, 3)]
    for known in (1, 2, 3, 3):
        _update(uri, sweep, values=steps[:known])
    run_id = _parent(uri, sweep).info.run_id
    history = MlflowClient(uri).get_metric_history(run_id, "hypervolume")
    assert sorted((m.key, m.value, m.timestamp / 1000, m.step) for m in history) == steps


def test_the_sweep_s_tags_are_returned(uri: str, sweep: str) -> None:
    assert "commit" not in _update(uri, sweep).tags
    assert _update(uri, sweep, tags={"commit": "c0ffee"}).tags["commit"] == "c0ffee"
    assert _update(uri, sweep).tags["commit"] == "c0ffee"


def test_tags_change_and_parameters_stay(uri: str, sweep: str) -> None:
    for value in ("first", "second"):
        _update(uri, sweep, params={"seed": value}, tags={"commit": value})
    data = _parent(uri, sweep).data
    assert (data.params["seed"], data.tags["commit"]) == ("first", "second")


def test_a_resumed_sweep_is_running_again(uri: str, sweep: str) -> None:
    statuses: list[Status] = ["RUNNING", "KILLED", "RUNNING", "FAILED", "FINISHED"]
    for status in statuses:
        _update(uri, sweep, status=status)
        assert _parent(uri, sweep).info.status == status
        _update(uri, sweep, tags={"commit": status})
        assert _parent(uri, sweep).info.status == status


def test_a_described_parent_is_shared_with_its_points(sqlite_uri: str, sweep: str) -> None:
    """Whichever of the two comes first."""
    study = f"study of {sweep}"
    record(made_points(1), sweep=sweep, study=study, tracking_uri=sqlite_uri)
    _update(sqlite_uri, sweep, tags={"commit": "c0ffee"}, headline="The best is 0.5.")
    parent = _parent(sqlite_uri, sweep)
    assert parent.data.tags["commit"] == "c0ffee"
    assert parent.data.tags["mlflow.note.content"].startswith("The best is 0.5.\n\nSweep")
    assert f"**{study}**" in parent.data.tags["mlflow.note.content"]
    assert parent.info.run_name == sweep
