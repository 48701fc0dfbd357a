"""The parent run shows the sweep as it stands, and is written only where something changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_points import made_points
from mlflow import MlflowClient
from mlflow.entities import Run

from tracking import record, record_sweep, runs, sweep_tags
from tracking.sweep_run import Status


def _parent(uri: str, sweep: str) -> Run:
    client = MlflowClient(uri)
    home = runs.find_parent(client, sweep, None)
    assert home is not None
    return client.get_run(home.run_id)


def test_files_are_shown_under_their_names(uri: str, sweep: str, tmp_path: Path) -> None:
    file = tmp_path / "made.tmp"
    file.write_bytes(b"<html>")
    record_sweep(sweep, tracking_uri=uri, files={"report.html": file, "front/front.html": file})
    run_id = _parent(uri, sweep).info.run_id
    copied = Path(MlflowClient(uri).download_artifacts(run_id, "", str(tmp_path)))
    for name in ("report.html", "front/front.html"):
        assert (copied / name).read_bytes() == b"<html>"


def test_only_changed_files_are_sent_again(
    server_uri: str, server_folder: Path, sweep: str, tmp_path: Path
) -> None:
    files = {name: tmp_path / name for name in ("same.txt", "other.txt")}
    for path in files.values():
        path.write_text("first")
    record_sweep(sweep, tracking_uri=server_uri, files=files)
    run_id = _parent(server_uri, sweep).info.run_id
    (stored,) = (server_folder / "artifacts").glob(f"*/{run_id}/artifacts")
    before = (stored / "same.txt").stat()
    files["other.txt"].write_text("second")
    record_sweep(sweep, tracking_uri=server_uri, files=files)
    after = (stored / "same.txt").stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)
    assert (stored / "other.txt").read_text() == "second"


def test_hypervolume_has_one_value_per_step(uri: str, sweep: str) -> None:
    steps = [(1, 0.1, 1.7e9), (2, 0.25, 1.7e9 + 1), (3, 0.25, 1.7e9 + 2)]
    for known in (1, 2, 3, 3):
        record_sweep(sweep, tracking_uri=uri, hypervolume=steps[:known])
    run_id = _parent(uri, sweep).info.run_id
    history = MlflowClient(uri).get_metric_history(run_id, "hypervolume")
    assert sorted((m.step, m.value, m.timestamp / 1000) for m in history) == steps


def test_a_step_of_the_hypervolume_gets_a_second_value_once(uri: str, sweep: str) -> None:
    """An extension changes the means of earlier points, for example."""
    record_sweep(sweep, tracking_uri=uri, hypervolume=[(1, 0.1, 1.7e9)])
    for _ in range(2):
        record_sweep(sweep, tracking_uri=uri, hypervolume=[(1, 0.2, 1.8e9), (2, 0.3, 1.9e9)])
    run = _parent(uri, sweep)
    history = MlflowClient(uri).get_metric_history(run.info.run_id, "hypervolume")
    assert sorted((m.step, m.value) for m in history) == [(1, 0.1), (1, 0.2), (2, 0.3)]
    assert run.data.metrics["hypervolume"] == 0.3


def test_the_sweep_s_tags_are_read_back(uri: str, sweep: str) -> None:
    assert sweep_tags(sweep, uri) == {}
    record_sweep(sweep, tracking_uri=uri, tags={"commit": "c0ffee"})
    assert sweep_tags(sweep, uri)["commit"] == "c0ffee"


def test_tags_change_and_parameters_stay(uri: str, sweep: str) -> None:
    for value in ("first", "second"):
        record_sweep(sweep, tracking_uri=uri, params={"seed": value}, tags={"commit": value})
    data = _parent(uri, sweep).data
    assert (data.params["seed"], data.tags["commit"]) == ("first", "second")


def test_a_resumed_sweep_is_running_again(uri: str, sweep: str) -> None:
    statuses: list[Status] = ["RUNNING", "KILLED", "RUNNING", "FAILED", "FINISHED"]
    for status in statuses:
        record_sweep(sweep, tracking_uri=uri, status=status)
        assert _parent(uri, sweep).info.status == status
        record_sweep(sweep, tracking_uri=uri, tags={"commit": status})
        assert _parent(uri, sweep).info.status == status


def test_a_described_parent_is_shared_with_its_points(sqlite_uri: str, sweep: str) -> None:
    """Whichever of the two comes first."""
    study = f"study of {sweep}"
    record(made_points(1), sweep=sweep, study=study, tracking_uri=sqlite_uri)
    record_sweep(sweep, tracking_uri=sqlite_uri, tags={"commit": "c0ffee"})
    parent = _parent(sqlite_uri, sweep)
    assert parent.data.tags["commit"] == "c0ffee"
    assert f"**{study}**" in parent.data.tags["mlflow.note.content"]
    assert parent.info.run_name == sweep


def test_a_missing_file_leaves_no_run(sqlite_uri: str, sweep: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        record_sweep(sweep, tracking_uri=sqlite_uri, files={"report.html": tmp_path / "none"})
    assert runs.find_parent(MlflowClient(sqlite_uri), sweep, None) is None
