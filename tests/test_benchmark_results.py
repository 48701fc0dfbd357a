"""Result tables of benchmarks."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path

import pytest

_RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
_DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("path", sorted(_RESULTS.glob("*.csv")), ids=lambda path: path.stem)
def test_tables_tell_commit_and_rounds_of_every_row(path: Path) -> None:
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0][:3] == ["date", "machine", "commit"]
    assert "rounds" in rows[0]
    assert {len(row) for row in rows} == {len(rows[0])}


def test_the_page_has_the_newest_rows() -> None:
    command = [sys.executable, str(_DOCS / "benchmarks_page.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0, "run `make benchmarks-page`"


def test_every_table_of_the_page_is_made_from_rows() -> None:
    page = (_DOCS / "benchmarks.md").read_text(encoding="utf-8")
    by_hand = re.sub(r"<!-- table\n(?:(?!-->).*\n)*-->\n(?:\|.*\n)+", "", page)
    delimiter_rows = re.findall(r"^(?=.*\|)[ |:-]+$", by_hand, re.MULTILINE)
    assert not delimiter_rows, "describe each table in a comment, then run `make benchmarks-page`"
