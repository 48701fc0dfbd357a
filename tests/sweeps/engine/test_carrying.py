"""Watching a run: trouble with showing it is told at the end, and does not end it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_sweeps import small_plan

from sweeps.engine.executor import RunOutcome
from sweeps.engine.progress import SweepProgress
from sweeps.engine.scheduler import ProgressTracker
from sweeps.store.ledger import Ledger


def test_a_display_that_fails_is_noted_once_and_left_alone(tmp_path: Path) -> None:
    calls: list[SweepProgress] = []

    def broken(progress: SweepProgress) -> None:
        calls.append(progress)
        raise BrokenPipeError(32, "Broken pipe")

    watch = ProgressTracker(Ledger(str(tmp_path), "sweep"), small_plan(tmp_path), broken)
    for _ in range(3):
        watch.show()
    assert len(calls) == 1
    (problem,) = watch.problems
    assert "Broken pipe" in problem


def test_a_ledger_that_cannot_be_listed_for_a_while_is_noted_and_shown_again_later(
    tmp_path: Path,
) -> None:
    states: list[SweepProgress] = []
    watch = ProgressTracker(Ledger(str(tmp_path), "sweep"), small_plan(tmp_path), states.append)
    folder = tmp_path / "sweep"
    folder.mkdir()
    (folder / "ledger").write_bytes(b"")  # a file in the folder's place
    watch.show()
    watch.show()
    assert (len(states), len(watch.problems)) == (0, 1)
    (folder / "ledger").unlink()
    watch.show()
    assert (len(states), len(watch.problems)) == (1, 1)


def test_an_interruption_is_no_trouble_to_be_passed_over(tmp_path: Path) -> None:
    watch = ProgressTracker(
        Ledger(str(tmp_path), "sweep"), small_plan(tmp_path), lambda progress: None
    )
    with pytest.raises(KeyboardInterrupt), watch.noting("anything"):
        raise KeyboardInterrupt


def test_output_that_nobody_reads_does_not_change_how_a_run_ends(
    uninterrupted: RunOutcome, tracking_uri: str, tmp_path: Path
) -> None:
    shutil.copytree(uninterrupted.result.storage, tmp_path, dirs_exist_ok=True)
    command = ["resume", "reference", "--storage", str(tmp_path), "--tracking-uri", tracking_uri]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        code = subprocess.run(
            [sys.executable, "-c", "from sweeps.cli.main import main; main()", *command],
            stdout=writer, stderr=writer, timeout=120, check=False,
        ).returncode  # fmt: skip
    finally:
        os.close(writer)
    assert code == 0
