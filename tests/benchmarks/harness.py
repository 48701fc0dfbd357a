"""What benchmarks share: alternating rounds, a table, a row in the results file."""

from __future__ import annotations

import csv
import platform
import statistics
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
    """Print rows as a table and append them, with date and machine, to `results/<name>.csv`."""
    table = Table(title=name)
    for column in rows[0]:
        table.add_column(column, justify="left" if column == "contestant" else "right")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console(width=160).print(table)
    _RESULTS.mkdir(exist_ok=True)
    path = _RESULTS / f"{name}.csv"
    about = {"date": datetime.now(UTC).date().isoformat(), "machine": _machine()}
    fresh = not path.exists()
    if not fresh and path.read_text().splitlines()[0] != ",".join([*about, *rows[0]]):
        raise ValueError(f"{path} has other columns: move it away, or name these results otherwise")
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [*about, *rows[0]], lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerows({**about, **row} for row in rows)


def _machine() -> str:
    import os

    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"{platform.machine()}, {os.cpu_count()} cores, {device}, torch {torch.__version__}"
