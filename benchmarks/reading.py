"""Time to read a large sweep: whole commands in fresh processes, imports included.

10,000 points of 8 replicates with 15 and 60 metrics each, in packs of 800 replicates; and with 15
metrics in 2,000 packs of 40. Seconds are of the wall clock and of the processor, and megabytes the
most that was resident. On a machine that does other work, look at the processor's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.cleanup import run
from benchmarks.harness import publish
from benchmarks.large_ledger import SWEEP, large_plan, write_large

_LEDGERS: Mapping[str, tuple[int, int]] = {
    "15 metrics, 100 packs": (15, 800),
    "60 metrics, 100 packs": (60, 800),
    "15 metrics, 2000 packs": (15, 40),
}
_SWEEPS = str(Path(sys.executable).with_name("sweeps"))
_FRONT = "import sys, sweeps; r = sweeps.open_result(sys.argv[1], sys.argv[3]); r.points; r.front()"

# A process counts what the one that started it held in memory: here one that holds little.
_MEASURE = """
import json, resource, subprocess, sys, time
begun = time.perf_counter()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
wall, used = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""


def _commands(folder: Path) -> dict[str, list[str]]:
    """Contestant to its command, up to the sweep's name."""
    return {
        "sweeps points -o": [_SWEEPS, "points", "-o", str(folder / "points.parquet")],
        "sweeps points": [_SWEEPS, "points"],
        "sweeps pareto": [_SWEEPS, "pareto"],
        "open_result, points, front": [sys.executable, "-c", _FRONT],
    }


def _run(command: Sequence[str], storage: Path) -> tuple[float, float, float]:
    """Seconds of the wall clock and of the processor, and megabytes."""
    measured = [sys.executable, "-c", _MEASURE, *command, SWEEP, "--storage", str(storage)]
    told = subprocess.run(measured, stdout=subprocess.PIPE, check=True).stdout
    wall, processor, megabytes = json.loads(told)
    return wall, processor, megabytes


def _rows(ledger: str, storage: Path, rounds: int) -> list[dict[str, object]]:
    commands = _commands(storage.parent)
    taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            taken[name].append(_run(command, storage))
    return [
        {
            "contestant": name,
            "ledger": ledger,
            "rounds": rounds,
            "wall_seconds": round(statistics.median(wall), 2),
            "slowest": round(max(wall), 2),
            "processor_seconds": round(statistics.median(processor), 2),
            "megabytes": round(max(megabytes)),
        }
        for name, found in taken.items()
        for wall, processor, megabytes in [zip(*found, strict=True)]
    ]


def main() -> None:
    """Measure and publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3, help="of all contestants in turn")
    given = parser.parse_args()
    planned, rows = large_plan(given.points), []
    for name, (metrics, size) in _LEDGERS.items():
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            storage = Path(folder, "storage")
            write_large(str(storage), planned, metrics, size)
            rows += _rows(name, storage, given.rounds)
    publish("reading", rows)


if __name__ == "__main__":
    run(main)
