"""Recorded sweeps: current, small, readable by name; the pages are written from them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import privnets
from sweeps import open_result
from sweeps.cli.main import main
from sweeps.errors import InputError
from sweeps.store.ledger import Ledger, list_sweeps
from sweeps.store.recorded import PREFIX, recorded_storage
from sweeps.store.reuse import find_sources

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS))
import recorded_pages  # noqa: E402

NAMES = list_sweeps(recorded_storage())
Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line that succeeds; returns its output."""

    def command(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["sweeps", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        return capsys.readouterr().out

    return command


def test_pages_are_those_of_the_recorded_sweeps() -> None:
    for name, text in recorded_pages.pages().items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, f"run `make pages`: {name}"


@pytest.mark.parametrize("name", NAMES)
def test_recorded_sweep_is_finished_current_small_and_names_no_place(name: str) -> None:
    result = open_result(PREFIX + name)
    experiment = privnets.experiment(result.study.experiment)
    assert result.manifest.plan.experiment_version == experiment.version
    assert not result.pending
    files = [file for file in (DOCS / "recorded" / name).rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= 2**20
    assert "/tmp" not in (text := (DOCS / "recorded" / name / "spec.yaml").read_text())
    assert "/home" not in text


def test_recorded_sweeps_are_listed_and_at_most_12_mib(run: Run) -> None:
    assert set(NAMES) <= {sweep.name for sweep in recorded_pages.listed_sweeps()}
    files = (file for file in (DOCS / "recorded").rglob("*") if file.is_file())
    assert sum(file.stat().st_size for file in files) <= 12 * 2**20
    shown = run("list", "--recorded")
    assert all(PREFIX + name in shown for name in NAMES)


def test_report_of_a_recorded_sweep_is_written_to_the_working_directory(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("report", PREFIX + NAMES[0]).strip() == f"{NAMES[0]}.html"
    assert [file.name for file in tmp_path.iterdir()] == [f"{NAMES[0]}.html"]


def test_recorded_trainings_are_sources_of_reuse(tmp_path: Path) -> None:
    (source,) = find_sources([PREFIX + NAMES[0]], Ledger(str(tmp_path), "own"))
    trained = open_result(PREFIX + NAMES[0]).replicates
    assert len(source.finished_replicates()) == len(trained)


def test_recorded_name_with_a_storage_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="names its own storage"):
        open_result(PREFIX + NAMES[0], str(tmp_path))


def test_unknown_recorded_sweep_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=NAMES[0]):
        open_result(PREFIX + NAMES[0][:-1])
