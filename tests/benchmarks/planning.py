"""Planning: processor seconds and memory for the points of a large sweep of `digits-quick`.

Each plan is made in a fresh process, after a small one that loads modules and data.

`--before FOLDER` adds the code of another commit, checked out in a folder, in alternating rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.harness import publish

_ROOT = Path(__file__).resolve().parents[2]
_SIZES = (10_000, 100_000)
_PLAN = """
import json, resource, sys, time
import sweeps
from sweeps.garbage import collect_rarely
from sweeps.planning.plan import make_plan

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3  # of kilobytes

points = int(sys.argv[1])
study = sweeps.load(
    "digits-quick",
    overrides=[
        "space.alpha={uniform: [1, 10]}",
        "space.privacy_weight={loguniform: [0.1, 10]}",
        "search={algorithm: random, num_points: 100}",
    ],
)
collect_rarely()  # as the command line does
make_plan(study)
before, start = peak(), time.process_time()
plan = make_plan(study, points)
seconds = time.process_time() - start
assert len(plan.points) == points
print(json.dumps([seconds, peak() - before]))
"""


def main() -> None:
    """Measure and publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--before", type=Path, help="folder that is named as its commit")
    options = parser.parse_args()
    folders = {"this commit": _ROOT}
    if options.before is not None:
        folders[options.before.name] = options.before.resolve()
    rows = []
    for points in _SIZES:
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in folders}
        for _ in range(options.rounds):
            for name, folder in folders.items():
                taken[name].append(_measure(folder, points))
        rows += [_row(name, points, measured) for name, measured in taken.items()]
    publish("planning", rows)


def _measure(folder: Path, points: int) -> tuple[float, float]:
    """Processor seconds of one plan, and the growth of the process's peak memory in megabytes."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", _PLAN, str(points)]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seconds, megabytes = json.loads(output.stdout)
    return seconds, megabytes


def _row(name: str, points: int, taken: list[tuple[float, float]]) -> dict[str, object]:
    seconds, megabytes = zip(*taken, strict=True)
    return {
        "contestant": name,
        "points": points,
        "rounds": len(taken),
        "median_processor_seconds": round(statistics.median(seconds), 3),
        "quickest": round(min(seconds), 3),
        "megabytes": round(max(megabytes)),
    }


if __name__ == "__main__":
    main()
