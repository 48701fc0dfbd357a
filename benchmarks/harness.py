"""Shared parts of benchmarks: alternating rounds, a table, a row in the results file."""

from __future__ import annotations

import csv
import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

_RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Timing:
    """Seconds of several rounds.

    Attributes:
        median: Of the rounds.
        low: The quickest.
        high: The slowest.
    """

    median: float
    low: float
    high: float


def alternate(
    contestants: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Time contestants in turn, so that a busy minute of the machine falls on all of them.

    Args:
        contestants: Name to the work; each runs once beforehand to warm up.
        rounds: How often each is timed.
        clock: Seconds; `time.process_time` leaves out what other processes take of a busy machine,
            for work on one core.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for work in contestants.values():
        work()
    for _ in range(rounds):
        for name, work in contestants.items():
            start = clock()
            work()
            seconds[name].append(clock() - start)
    return {n: Timing(statistics.median(s), min(s), max(s)) for n, s in seconds.items()}


def publish(name: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Print rows as a table and append them to `results/<name>.csv`.

    Before what a row has come date, machine and the commit measured, with "+changes" where files
    that git knows were changed, and empty without git.

    Args:
        name: Of the benchmark.
        rows: Columns to values, the same columns in all; `rounds` counts what a median is of.

    Raises:
        ValueError: If rows do not tell their rounds, or the file has other columns.
    """
    if "rounds" not in rows[0]:
        raise ValueError(f"rows of {name} must tell their rounds; got {', '.join(rows[0])}")
    table = Table(title=name)
    for column in rows[0]:
        table.add_column(column, justify="left" if column == "contestant" else "right")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console(width=160).print(table)
    _RESULTS.mkdir(exist_ok=True)
    path = _RESULTS / f"{name}.csv"
    date = datetime.now(UTC).date().isoformat()
    about = {"date": date, "machine": _machine(), "commit": _COMMIT}
    columns, fresh = [*about, *rows[0]], not path.exists()
    if not fresh and _columns(path) != columns:
        raise ValueError(f"{path} has other columns: move it away, or name these results otherwise")
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerows({**about, **row} for row in rows)


def _columns(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return next(csv.reader(file), [])


def _commit(folder: Path) -> str:
    """Commit of the checkout around a folder; empty without one."""
    commit = _git(folder, "rev-parse", "--short", "HEAD")
    # Results do not count as changes; an earlier benchmark may have added some.
    changed = _git(folder, "status", "--porcelain", "-uno", "--", ":/", ":!results")
    return f"{commit}+changes" if changed else commit


def _git(folder: Path, *words: str) -> str:
    git = shutil.which("git")
    if git is None:
        return ""
    command = [git, "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


# As it is when a benchmark begins; hours may pass until it ends.
_COMMIT = _commit(Path(__file__).parent)


def _machine() -> str:
    import os

    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"{platform.machine()}, {os.cpu_count()} cores, {device}, torch {torch.__version__}"
