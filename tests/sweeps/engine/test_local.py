"""Training without Ray and MLflow: parts, a killed process, and their merge into one sweep."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stores import new_store

import sweeps
from privnets.data import DataError
from sweeps.engine.local import train
from sweeps.errors import InputError
from sweeps.store.ledger import Ledger

ROOT = Path(__file__).parents[3]
# Python imports a module of this name at its start.
BLOCK = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"ray", "mlflow", "optuna", "sqlalchemy", "moocore"}:
            raise ModuleNotFoundError(f"no module named {name}")

sys.meta_path.insert(0, Absent())
"""
CODE = """
import time

def run(x: float = 0.0, seconds: float = 0.0, seed: int = 0):
    time.sleep(seconds)
    if x == 7:
        raise ArithmeticError("seven")
    return {"privacy/leakage": x + seed / 10, "utility/accuracy": x * x}

run.metrics = {"privacy/leakage": "min", "utility/accuracy": "max"}
"""
STUDY = """
name: parts
experiment: "own_code:run"
fixed: {{seconds: {seconds}}}
space: {{x: {{grid: [{values}]}}}}
replicates: 2
"""


def written_study(folder: Path, seconds: float = 0.0, values: str = "0, 1, 2, 3, 4, 5") -> Path:
    (folder / "own_code.py").write_text(CODE)
    (folder / "study.yaml").write_text(STUDY.format(seconds=seconds, values=values))
    return folder / "study.yaml"


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that a test starts; none outlives it."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def start_part(study: Path, storage: Path, number: int) -> subprocess.Popen[bytes]:
    """A part of three, in an environment without Ray and MLflow."""
    (study.parent / "sitecustomize.py").write_text(BLOCK)
    command = [sys.executable, "-m", "sweeps", "train", str(study), "--storage", str(storage)]
    path = os.pathsep.join((str(study.parent), str(ROOT)))
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen([*command, "--part", f"{number}/3"], env=environment)


def test_three_parts_one_of_them_killed_merge_into_the_whole_sweep(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    study, storage = written_study(tmp_path, seconds=0.5), tmp_path / "nodes"
    started += (start_part(study, storage, number) for number in range(3))
    parts = tuple(started)
    killed = Ledger(str(storage), "parts-1-of-3")
    deadline = time.monotonic() + 120
    while not (storage.exists() and killed.pack_ids()):
        assert time.monotonic() < deadline
        assert parts[1].poll() is None
        time.sleep(0.05)
    parts[1].kill()
    assert [part.wait(120) for part in parts] == [0, -9, 0]
    before = killed.finished_replicates()
    assert 0 < len(before) < 4
    started.append(start_part(study, storage, 1))
    assert started[-1].wait(120) == 0
    names = [f"{storage}/parts-{number}-of-3" for number in range(3)]
    result = sweeps.run(
        study,
        name="whole",
        storage=str(tmp_path / "own"),
        tracking_uri=new_store(tmp_path),
        reuse=names,
        progress=False,
    )
    assert result.counts["finished"] == 6
    rows = result.replicates
    assert len(rows) == 12
    expected = rows["config/x"] + rows["seed"] / 10
    assert rows["privacy/leakage"].to_numpy() == pytest.approx(expected.to_numpy(), abs=1e-12)


def test_a_repeated_call_trains_nothing_again(tmp_path: Path) -> None:
    study, storage = written_study(tmp_path), str(tmp_path / "s")
    first = train(study, storage=storage, name="own")
    assert (first.trainings, first.finished, first.failures) == (12, 12, {})
    times = {r.finished_at for p in Ledger(storage, "own").read_points() for r in p.replicates}
    assert train(study, storage=storage, name="own").finished == 12
    again = {r.finished_at for p in Ledger(storage, "own").read_points() for r in p.replicates}
    assert again == times
    changes = ["space.x.grid=[0, 1]", "replicates=1"]
    assert train(study, changes, storage=storage, name="small").trainings == 2


def test_a_failing_point_leaves_the_others_and_names_the_line(tmp_path: Path) -> None:
    study = written_study(tmp_path, values="1, 7")
    outcome = train(study, storage=str(tmp_path / "s"), pack=4)
    assert outcome.finished == 2
    assert {reason.partition(" (")[0] for reason in outcome.failures.values()} == {
        "ArithmeticError: seven"
    }
    assert all("own_code.py, line 7" in reason for reason in outcome.failures.values())


def test_a_budget_is_refused_and_changed_code_trains_nothing(tmp_path: Path) -> None:
    study = written_study(tmp_path, values="1, 2")
    limited = sweeps.load(study, overrides=["search.budget=2"])
    with pytest.raises(InputError, match=r"search\.budget"):
        train(limited, storage=str(tmp_path / "s"))

    def edit(*_: object) -> None:
        (tmp_path / "own_code.py").write_text(CODE + "\n")

    with pytest.raises(DataError, match="not those that the sweep was planned with"):
        train(study, storage=str(tmp_path / "s"), pack=1, on_progress=edit)


def test_no_time_ends_at_once_and_a_search_is_refused(tmp_path: Path) -> None:
    study = written_study(tmp_path)
    outcome = train(study, storage=str(tmp_path / "s"), minutes=0.0)
    assert outcome.is_time_over
    assert outcome.finished == 0
    with pytest.raises(InputError, match="part must be"):
        train(study, storage=str(tmp_path / "s"), part=(3, 3))
    search = sweeps.load(
        {
            "name": "s",
            "experiment": "membership",
            "fixed": {"dataset": "digits", "model": "logistic", "train_size": 50},
            "space": {"weight_decay": {"loguniform": [0.1, 1.0]}},
            "search": {"algorithm": "frontier", "num_points": 8},
        }
    )
    with pytest.raises(InputError, match="needs results while it runs"):
        train(search, storage=str(tmp_path / "s"))
