"""Large libraries take a second to load: only processes that need them load them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TRAIN = {"torch", "scipy", "sklearn"}

# Without data, validation fails as late as planning would end.
_PLANS = """
from contextlib import suppress
from sweeps.errors import StudyError
from sweeps.study.loader import load, study_names
from sweeps.planning.plan import make_plan

for name in study_names():
    with suppress(StudyError):
        make_plan(load(name)).cost_seconds()
"""

_ANSWERS = """
import privnets

asked = {
    "adversarial": [{"problem": p} for p in ("gaussian-mixture", "digits", "amnist", "eco")],
    "membership": [
        {"dataset": d, "model": m, "train_size": 50}
        for d in ("adult", "location30", "digits", "diabetes")
        for m in ("linear", "logistic", "mlp")
    ],
}
for name, given in asked.items():
    experiment = privnets.experiment(name)
    for config in map(experiment.Config.model_validate, given):
        experiment.invalid_fields(config), experiment.cost(config)
        experiment.metric_keys(config), experiment.default_objectives(config)
        experiment.interim_objectives(config)
"""

_SHOWS = """
import sys
from contextlib import suppress
from sweeps.cli.main import main

sys.argv = ["sweeps", "show", "toy-gaussian-exact"]
with suppress(SystemExit):
    main()
"""

# The sweep is missing, which is noticed once everything is loaded.
_READS = """
import sys
from contextlib import suppress
from sweeps.cli.main import main

sys.argv = ["sweeps", sys.argv[1], "missing"]
with suppress(SystemExit):
    main()
"""

_RUNS = """
import sys
import ray
import sweeps
from sweeps.engine.scheduler import connect_ray
from sweeps.study.loader import load
from sweeps.planning.plan import make_plan

@ray.remote
def loaded():
    return list(sys.modules)

file, folder = sys.argv[1:]
with connect_ray(make_plan(load(file)), None, ""):
    print(*ray.get(loaded.remote()))
    uri = f"sqlite:///{folder}/mlflow.db"
    print(*sweeps.run(file, name="light", storage=folder, tracking_uri=uri).points["status"])
"""

_STUDY = """
name: light
experiment: adversarial
fixed: {problem: gaussian-mixture, steps: 2, train_size: 256, panel: quick}
space: {tradeoff: {grid: [0.3, 0.7]}}
replicates: 1
resources: {pack: 2, concurrency: 1}
"""


def run_and_list_modules(code: str, *arguments: str) -> list[list[str]]:
    """Words of each line that a separate process prints; the last line lists its modules."""
    asked = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)", *arguments],
        env={**os.environ, "TMPDIR": "/tmp"}, capture_output=True, text=True,
        timeout=400, check=False,
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    return [line.split() for line in asked.stdout.splitlines()]


@pytest.mark.parametrize("code", [_PLANS, _ANSWERS, _SHOWS], ids=["plans", "answers", "shows"])
def test_planning_and_showing_load_no_torch(code: str) -> None:
    *_, modules = run_and_list_modules(code)
    assert "privnets.contract" in modules
    assert not TRAIN & set(modules)


def test_submitting_loads_neither_ray_nor_pandas() -> None:
    *_, modules = run_and_list_modules("import sweeps.cli.submit")
    assert not {"ray", "pandas", "torch"} & set(modules)


@pytest.mark.parametrize("command", ["points", "pareto", "compare"])
def test_tables_in_the_terminal_load_no_figures(command: str) -> None:
    *_, modules = run_and_list_modules(_READS, command)
    assert "sweeps.analysis.results" in modules
    assert not {"matplotlib", "plotly", "torch"} & set(modules)


@pytest.mark.ray
def test_only_workers_of_a_run_load_torch(
    tmp_path: Path,
) -> None:
    file = tmp_path / "light.yaml"
    file.write_text(_STUDY)
    worker, status, driver = run_and_list_modules(_RUNS, str(file), str(tmp_path))
    assert {"torch", "privnets.adversarial.stages"} <= set(worker)
    assert status == ["finished", "finished"]
    assert (tmp_path / "light" / "information-plane.png").exists()
    assert "sweeps.engine.scheduler" in driver
    assert "torch" not in driver
