"""Extended sweeps: only what is missing is trained, and everything keeps its name and run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mlflow import MlflowClient
from small_sweeps import contents, rows, study_file
from typer.testing import CliRunner

import tracking
from sweeps.analysis.results import open_result
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import read_manifest

if TYPE_CHECKING:
    from sweeps.engine.executor import RunOutcome

pytestmark = pytest.mark.ray

SOBOL = (
    "space={weight_decay: {loguniform: [0.001, 1]}}",
    "search={algorithm: sobol, num_points: 2}",
    "replicates=1",
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


def test_an_extended_sweep_trains_only_what_is_missing(
    uninterrupted: RunOutcome, tmp_path: Path
) -> None:
    uri = tracking.create(f"sqlite:///{tmp_path}/mlflow.db")
    where = ["--storage", str(tmp_path), "--tracking-uri", uri]
    changes = [word for change in SOBOL for word in ("--set", change)]
    invoke("run", str(study_file(tmp_path)), "--name", "s", *changes, *where)
    ledger = Ledger(str(tmp_path), "s")
    before, points, runs = contents(tmp_path / "s" / "ledger"), rows(ledger), run_ids(uri, "s")
    invoke("extend", "s", "--num-points", "4", "--replicates", "2", *where)
    after = contents(tmp_path / "s" / "ledger")
    assert {name: after[name] for name in before} == before
    assert len(rows(ledger)) == len(set(rows(ledger))) == 8
    assert set(points) < set(rows(ledger))
    now = run_ids(uri, "s")
    assert len(now) == 4
    assert {point: now[point] for point in runs} == runs
    result = open_result("s", str(tmp_path))
    assert (result.pending, len(result.points)) == (0, 4)
    assert tracking.compare(result.tradeoff_points, "s", uri) == []
    (extension,) = read_manifest(ledger).extensions
    assert extension.changes == (
        "replicates was 1 and is now 2",
        "search.num_points was 2 and is now 4",
    )
    assert "nothing to train" in invoke("resume", "s", *where)


def test_a_wider_grid_extends_and_a_narrower_one_does_not(
    uninterrupted: RunOutcome, tmp_path: Path
) -> None:
    import sweeps
    from sweeps.errors import InputError

    shutil.copytree(uninterrupted.result.storage, tmp_path, dirs_exist_ok=True)
    wide = "space.weight_decay.grid=[0.001, 0.01, 0.1, 1.0, 10.0]"
    narrow = "space.weight_decay.grid=[0.001, 0.01, 0.1, 1.0]"
    where = {"storage": str(tmp_path), "tracking_uri": f"sqlite:///{tmp_path}/mlflow.db"}
    result = sweeps.extend("reference", overrides=[wide], **where)
    assert len(result.points) == 5
    with pytest.raises(InputError, match="1 of its points would not be in it"):
        sweeps.extend("reference", overrides=[narrow], **where)
