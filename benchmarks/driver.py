"""Work of a driver in its own process: plans of large sweeps, and the report at the end of one.

Each is done in a fresh process. Modules are loaded beforehand, as a driver loads them while it
waits for others.

- `plan`: 10,000 and 100,000 points of `digits-quick`, drawn at random in two fields.
- `report`: tables, figures and page of a finished sweep, which `--sweep STORAGE/NAME` names.

`--before FOLDER` adds the code of another commit, checked out in a folder, in alternating rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import publish

_ROOT = Path(__file__).resolve().parents[1]
_SIZES = (10_000, 100_000)
_START = """
import json, resource, sys, time
from sweeps.process import raise_gc_thresholds

raise_gc_thresholds()  # as the command line does

def measure(work):
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    work()
    seconds = time.process_time() - start
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps([seconds, kilobytes / 1e3]))
"""
_PLAN = """
import sweeps
from sweeps.planning.plan import make_plan

space = ["space.alpha={uniform: [1, 10]}", "space.privacy_weight={loguniform: [0.1, 10]}"]
search = "search={algorithm: random, num_points: 100}"
study = sweeps.load("digits-quick", overrides=[*space, search])
make_plan(study)  # loads modules and data
measure(lambda: make_plan(study, int(sys.argv[1])))
"""
_REPORT = """
import tempfile
from pathlib import Path
from sweeps.report import page, plots
from sweeps.report.display import open_displayed

storage, _, sweep = sys.argv[1].rpartition("/")
with tempfile.TemporaryDirectory() as folder:
    write = lambda: page.write_report_files(open_displayed(sweep, storage), Path(folder))
    measure(write)
"""


def main() -> None:
    """Measure and publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sweep", help="STORAGE/NAME of a finished sweep; without it no report")
    parser.add_argument("--before", type=Path, help="folder that is named as its commit")
    options = parser.parse_args()
    folders = {"this commit": _ROOT}
    if options.before is not None:
        folders[options.before.name] = options.before.resolve()
    rows = []
    for name, program, argument in _works(options.sweep):
        taken: dict[str, list[tuple[float, float]]] = {commit: [] for commit in folders}
        for _ in range(options.rounds):
            for commit, folder in folders.items():
                taken[commit].append(_measure(folder, program, argument))
        rows += [_row(commit, name, measured) for commit, measured in taken.items()]
    publish("driver", rows)


def _works(sweep: str | None) -> Iterator[tuple[str, str, str]]:
    """Name, program and argument of each work."""
    for points in _SIZES:
        yield f"plan of {points:,} points", _PLAN, str(points)
    if sweep:
        yield f"report of {Path(sweep).name}", _REPORT, str(Path(sweep).resolve())


def _measure(folder: Path, program: str, argument: str) -> tuple[float, float]:
    """Processor seconds of a work, and the growth of its process's peak memory in megabytes."""
    command = [sys.executable, "-c", _START + program, argument]  # imports from its directory first
    output = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    seconds, megabytes = json.loads(output.stdout)
    return seconds, megabytes


def _row(commit: str, work: str, taken: list[tuple[float, float]]) -> dict[str, object]:
    seconds, megabytes = zip(*taken, strict=True)
    return {
        "contestant": commit,
        "work": work,
        "rounds": len(taken),
        "median_processor_seconds": round(statistics.median(seconds), 3),
        "quickest": round(min(seconds), 3),
        "megabytes": round(max(megabytes)),
    }


if __name__ == "__main__":
    main()
