"""Extended sweeps: only what is missing is trained, and everything keeps its name and run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mlflow import MlflowClient
from small_sweeps import contents, rows, study_file
from stores import new_store
from typer.testing import CliRunner

import sweeps
import tracking
from sweeps.analysis.results import open_result
from sweeps.errors import InputError
from sweeps.planning.continuation import plan_extension
from sweeps.planning.pending import pending_replicates
from sweeps.store.asks import read_asks
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import read_manifest

if TYPE_CHECKING:
    from cluster import Connection
    from sweeps.engine.executor import RunOutcome

pytestmark = pytest.mark.ray

SOBOL = (
    "space={weight_decay: {loguniform: [0.001, 1]}}",
    "search={algorithm: sobol, num_points: 2}",
    "replicates=1",
    "resources={pack: 8, concurrency: 1}",
)


def invoke(*command: str) -> str:
    from sweeps.cli.main import app

    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 0, ran.output
    return ran.output


def run_ids(uri: str, sweep: str) -> dict[str, str]:
    client = MlflowClient(uri)
    experiments = [e.experiment_id for e in client.search_experiments()]
    runs = client.search_runs(experiments, f"tags.sweep = '{sweep}' and tags.kind = 'point'")
    return {run.data.tags["point_id"]: run.info.run_id for run in runs}


def sweep_status(uri: str, sweep: str) -> tuple[str, str, str]:
    """Status, points and replicates of the sweep's run."""
    client = MlflowClient(uri)
    experiments = [e.experiment_id for e in client.search_experiments()]
    (run,) = client.search_runs(experiments, f"tags.sweep = '{sweep}' and tags.kind = 'sweep'")
    return run.info.status, run.data.tags["points"], run.data.tags["replicates"]


def test_a_run_ends_with_its_budget_and_an_extended_sweep_trains_only_what_is_missing(
    local_ray: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each ends with a command that opens MLflow, for the store that was named."""
    uri = new_store(tmp_path)
    where = ["--storage", str(tmp_path), "--tracking-uri", uri]
    monkeypatch.chdir("/")
    changes = [word for change in SOBOL for word in ("--set", change)]
    study = str(study_file(tmp_path))
    output = invoke("run", study, "--name", "s", *changes, "--budget", "1", *where)
    assert "The budget of this run is spent" in output
    ledger = Ledger(str(tmp_path), "s")
    before, points, runs = contents(tmp_path / "s" / "ledger"), rows(ledger), run_ids(uri, "s")
    assert len(points) == 1
    assert sweep_status(uri, "s") == ("KILLED", "2", "1")
    extended = invoke("extend", "s", "--num-points", "3", "--replicates", "2", *where)
    assert "budget" not in extended
    assert "3 of 3 points done (6 of 6 trainings, 1 at the start)" in extended
    assert extended.endswith(f"open it with: sweeps ui --tracking-uri {uri}\n")
    after = contents(tmp_path / "s" / "ledger")
    assert {name: after[name] for name in before} == before
    assert len(rows(ledger)) == len(set(rows(ledger))) == 6
    assert set(points) < set(rows(ledger))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    resumed = invoke("resume", "s", "--storage", str(tmp_path))
    assert "s: nothing to train" in resumed
    assert resumed.endswith("open it with: sweeps ui\n")
    assert contents(tmp_path / "s" / "ledger") == after
    assert sweep_status(uri, "s") == ("FINISHED", "3", "2")
    now = run_ids(uri, "s")
    assert len(now) == 3
    assert {point: now[point] for point in runs} == runs
    result = open_result("s", str(tmp_path))
    assert (result.pending, len(result.points)) == (0, 3)
    assert tracking.compare(result.tradeoff_points, "s", uri) == []
    (extension,) = read_manifest(ledger).extensions
    assert extension.changes == (
        "replicates was 1 and is now 2",
        "search.num_points was 2 and is now 3",
    )


def test_a_wider_grid_lacks_its_new_point_alone_and_a_narrower_one_is_refused(
    uninterrupted: RunOutcome, tmp_path: Path
) -> None:
    shutil.copytree(uninterrupted.result.storage, tmp_path, dirs_exist_ok=True)
    ledger = Ledger(str(tmp_path), "reference")
    wide = ["space.weight_decay.grid=[0.001, 0.01, 0.1, 1.0, 10.0]"]
    plan = plan_extension(read_manifest(ledger), overrides=wide)
    lacking = pending_replicates(plan, ledger).values()
    assert [replicate.config.weight_decay for replicate in lacking] == [10.0, 10.0]
    narrow = "space.weight_decay.grid=[0.001, 0.01, 0.1]"
    where = {"storage": str(tmp_path), "tracking_uri": f"sqlite:///{tmp_path}/mlflow.db"}
    with pytest.raises(InputError, match="1 of its points would not be in it"):
        sweeps.extend("reference", overrides=[narrow], **where)


def test_an_adaptive_search_starts_from_reused_trainings(
    uninterrupted: RunOutcome, tmp_path: Path
) -> None:
    uri, ledger = new_store(tmp_path), Ledger(str(tmp_path), "s")
    old = uninterrupted.result
    changes = [
        "space={weight_decay: {loguniform: [0.0001, 1]}}",
        "search={algorithm: frontier, num_points: 3, ask_size: 3, confirm: 1}",
        "resources={pack: 8, concurrency: 1}",
    ]
    settings = [word for change in changes for word in ("--set", change)]
    command = ["run", str(study_file(tmp_path)), "--name", "s", *settings]
    command += ["--reuse", f"{old.storage}/{old.sweep}", "--budget", "3"]
    where = ["--storage", str(tmp_path), "--tracking-uri", uri]
    output = invoke(*command, *where)
    before = rows(Ledger(old.storage, old.sweep))
    count = len(before)
    assert f"reused {count} of {count} trainings of other sweeps" in output
    reuse, search = read_asks(ledger)
    assert {*zip(reuse.point_ids, reuse.seeds, strict=True)} == {*before}
    assert (reuse.kind, search.kind, search.told) == ("reuse", "search", 1)
    assert len(rows(ledger)) == len(before) + 3
    assert len(read_manifest(ledger).reused) == 1
    assert sweep_status(uri, "s")[0] == "KILLED"
    assert "budget" not in invoke("resume", "s", *where)
    assert sweep_status(uri, "s")[0] == "FINISHED"
    result = open_result("s", str(tmp_path))
    assert (len(result.confirmed), result.pending) == (1, 0)
    assert tracking.compare(result.tradeoff_points, "s", uri) == []
