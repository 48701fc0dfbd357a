"""Result tables of benchmarks."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

_RESULTS = Path(__file__).parent / "benchmarks" / "results"


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
