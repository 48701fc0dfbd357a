"""A short chaos run: sweeps on a cluster of several nodes survive whatever happens to it."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from campaigns.chaos import lab, world
from campaigns.chaos.faults import FAULTS

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.ray


def campaign(results: Path, faults: int, seed: int) -> list[dict[str, str]]:
    """Run it; gives the table's rows."""
    if reason := world.missing_support():
        pytest.skip(f"a chaos run needs namespaces of Linux: {reason}")
    command = [
        sys.executable,
        "-m",
        "campaigns.chaos",
        "--faults",
        str(faults),
        "--seed",
        str(seed),
    ]
    said = results.with_suffix(".log")
    with said.open("wb") as file:
        run = subprocess.Popen(
            [*command, "--results", str(results)], cwd=ROOT, stdout=file, stderr=file,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = run.wait()
        finally:
            if run.poll() is None:  # the test was given up; with its leaders all of the run ends
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
    assert code == 0, said.read_text(errors="replace")[-20000:]
    with results.open() as file:
        return list(csv.DictReader(file))


def assert_harmless(rows: list[dict[str, str]], faults: int) -> None:
    assert sum(int(row["count"]) for row in rows) == faults
    wrong = {
        (row["fault"], column): row[column]
        for row in rows
        for column in ("lost", "doubled", "retrained", "other")
        if row[column] != "0"
    }
    assert wrong == {}


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_twenty_faults_of_all_kinds_do_no_harm(tmp_path: Path) -> None:
    rows = campaign(tmp_path / "chaos.csv", faults=20, seed=5)
    assert_harmless(rows, 20)
    kinds = set(FAULTS) - (set() if lab.clocks_can_jump() else {"clock"})
    assert {row["fault"] for row in rows} == kinds
