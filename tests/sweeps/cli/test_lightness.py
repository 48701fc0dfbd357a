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

for command in sys.argv[1:]:
    sys.argv = ["sweeps", command, "missing"]
    with suppress(SystemExit):
        main()
"""

# Made-up points of an adversarial sweep, with an information plane.
_DRAWS = """
from synthetic_releases import toy_sweep
from sweeps.report.summary import write_summary
from sweeps.store.ledger import Ledger

print(*write_summary(Ledger(sys.argv[1], "made"), toy_sweep()))
"""
_REPORT = Path(__file__).parents[1] / "report"


def run_and_list_modules(code: str, *arguments: str) -> list[list[str]]:
    """Words of each line that a separate process prints; the last line lists its modules."""
    asked = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)", *arguments],
        env={**os.environ, "TMPDIR": "/tmp"}, capture_output=True, text=True,
        timeout=400, check=False,
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    return [line.split() for line in asked.stdout.splitlines()]


def test_planning_and_showing_load_no_torch() -> None:
    *_, modules = run_and_list_modules(_PLANS + _ANSWERS + _SHOWS)
    assert "privnets.contract" in modules
    assert not TRAIN & set(modules)


def test_submitting_loads_neither_ray_nor_pandas() -> None:
    *_, modules = run_and_list_modules("import sweeps.cli.submit")
    assert not {"ray", "pandas", "torch"} & set(modules)


def test_tables_in_the_terminal_load_no_figures() -> None:
    *_, modules = run_and_list_modules(_READS, "points", "pareto", "compare")
    assert "sweeps.analysis.results" in modules
    assert not {"matplotlib", "plotly", "torch"} & set(modules)


def test_figures_and_reports_load_no_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(_REPORT), os.environ["PYTHONPATH"]]))
    *_, files, modules = run_and_list_modules(f"import sys\n{_DRAWS}", str(tmp_path))
    assert {"report.html", "information-plane.png"} <= set(files)
    assert "torch" not in modules
