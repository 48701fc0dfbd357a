"""Result tables of benchmarks."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks import harness

_RESULTS = Path(__file__).parent / "benchmarks" / "results"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for words in (["init", "-q"], ["config", "user.email", "a@b.c"], ["config", "user.name", "a"]):
        _git(tmp_path, *words)
    (tmp_path / "results").mkdir()
    for name in ("code.py", "results/table.csv"):
        (tmp_path / name).write_text("1\n")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "Begin")
    return tmp_path


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("changed", [None, "results/table.csv"])
def test_code_as_committed_is_named_by_its_commit(repository: Path, changed: str | None) -> None:
    if changed:
        (repository / changed).write_text("2\n")
    assert harness._commit(repository) == _git(repository, "rev-parse", "--short", "HEAD")


def test_changed_code_is_named_as_such(repository: Path) -> None:
    (repository / "code.py").write_text("2\n")
    assert harness._commit(repository).endswith("+changes")


def test_code_outside_a_repository_has_no_commit(tmp_path: Path) -> None:
    assert harness._commit(tmp_path) == ""


def test_rows_are_added_to_those_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "_RESULTS", tmp_path)
    for seconds in (1, 2):
        harness.publish("a", [{"contestant": "us", "rounds": 3, "seconds, all": seconds}])
    with (tmp_path / "a.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert first["seconds, all"] == "1"
    assert second["seconds, all"] == "2"
    assert set(first) == {"date", "machine", "commit", "contestant", "rounds", "seconds, all"}


def test_rows_with_other_columns_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "_RESULTS", tmp_path)
    harness.publish("a", [{"contestant": "us", "rounds": 3}])
    with pytest.raises(ValueError, match="other columns"):
        harness.publish("a", [{"contestant": "us", "rounds": 3, "seconds": 1}])


def test_rows_must_tell_their_rounds() -> None:
    with pytest.raises(ValueError, match="rounds"):
        harness.publish("a", [{"contestant": "us"}])


@pytest.mark.parametrize("path", sorted(_RESULTS.glob("*.csv")), ids=lambda path: path.stem)
def test_tables_tell_commit_and_rounds_of_every_row(path: Path) -> None:
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0][:3] == ["date", "machine", "commit"]
    assert "rounds" in rows[0]
    assert {len(row) for row in rows} == {len(rows[0])}


def test_the_page_has_the_newest_rows() -> None:
    page = Path(__file__).parents[1] / "docs" / "benchmarks_page.py"
    done = subprocess.run([sys.executable, str(page), "--check"], check=False)
    assert done.returncode == 0, "run `make benchmarks-page`"
