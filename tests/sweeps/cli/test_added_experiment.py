"""An experiment that a package adds is swept like the platform's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import privnets
from sweeps.analysis.results import open_result
from sweeps.engine.pack_trainer import PackTrainer
from sweeps.errors import StudyError
from sweeps.planning.packing import Capacity, make_packs
from sweeps.planning.plan import make_plan
from sweeps.store.ledger import Ledger
from sweeps.study.loader import load

CHECKOUT = Path(__file__).resolve().parents[3]
TRIVIAL = CHECKOUT / "benchmarks" / "trivial"
STUDY = """
name: added
experiment: trivial
space: {x: {uniform: [0.0, 1.0]}, y: {uniform: [0.1, 1.0]}}
replicates: 2
search: {algorithm: sobol, num_points: 100}
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "added.yaml"
    path.write_text(STUDY)
    return path


def test_a_study_of_an_experiment_that_no_package_adds_is_refused(study: Path) -> None:
    with pytest.raises(StudyError, match=r"experiment: .*trivial.*adversarial, membership"):
        make_plan(load(str(study)))


def test_a_study_of_an_experiment_that_cannot_be_loaded_says_why(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "added-1.0.dist-info"
    about.mkdir()
    (about / "entry_points.txt").write_text("[privnets.experiments]\nlost = absent:Lost\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(StudyError, match=r"absent:Lost.*ModuleNotFoundError"):
        make_plan(load(str(study), ["experiment=lost"]))


@pytest.mark.ray
@pytest.mark.slow  # The turnstile of the engine's tests is such an experiment too.
def test_it_is_swept_in_processes_of_their_own(study: Path, tmp_path: Path) -> None:
    command = ["run", str(study), "--name", "added", "--storage", str(tmp_path)]
    subprocess.run(
        [sys.executable, "-c", "from sweeps.cli.main import main; main()", *command],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": f"{TRIVIAL}:{CHECKOUT}"}, check=True,
        capture_output=True,
    )  # fmt: skip
    result = open_result("added", str(tmp_path))
    assert (len(result.points), len(result.replicates), result.pending) == (100, 200, 0)
    assert set(result.points["experiment"]) == {"trivial"}


def test_a_worker_reports_rarely_however_short_stages_are(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its experiment has a stage per training; each report is work for the driver."""
    from sweeps.engine.worker import train_for

    monkeypatch.syspath_prepend(TRIVIAL)
    planned = make_plan(load(str(study)))
    (made,) = make_packs(
        planned.replicates(), experiment="trivial", size=200, capacity=Capacity(1, 2**30)
    )
    ledger = Ledger(str(tmp_path), "added")
    run = PackTrainer(made, privnets.experiment("trivial"), ledger)
    reports = 1
    while not train_for(0.5, run).committed:
        reports += 1
    assert reports < 20
    assert len(ledger.finished_replicates()) == 200
