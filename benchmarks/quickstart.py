"""Points per minute of the quickstart study: this platform against stock Ray Tune with MLflow.

Both sides in fresh processes, one after the other in each round, from nothing to every point
recorded in a fresh SQLite tracking store: imports, starting Ray and building the store included.
`stock_quickstart` says what the stock side does; here it reports once per trial, of the means over
replicates. With `--all` two slower stock settings stand beside it: one report per replicate, and
seeds as trials (192 trials of one replicate, the way Ray Tune's own examples repeat).
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import sweeps
from benchmarks.cleanup import run
from benchmarks.harness import publish

_PLATFORM = "this platform"
_STOCK = {
    "stock, one point per trial, one report": "once",
    "stock, one point per trial": "per-replicate",
    "stock, one replicate per trial": "seeds",
}


def _seconds(contestant: str) -> float:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        if contestant == _PLATFORM:
            # The console script stands beside the interpreter.
            command = [str(Path(sys.executable).with_name("sweeps")), "run", "quickstart"]
            command += ["--storage", folder, "--tracking-uri", f"sqlite:///{folder}/mlflow.db"]
        else:
            call = f"main(pathlib.Path({folder!r}), {_STOCK[contestant]!r})"
            stock = f"import pathlib; from benchmarks.stock_quickstart import main; {call}"
            command = [sys.executable, "-c", stock]
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - start


def main() -> None:
    """Measure and publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="of all contestants in turn")
    parser.add_argument("--all", action="store_true", help="also the slower stock settings")
    options = parser.parse_args()
    study = sweeps.load("quickstart")
    points = 1
    for axis in study.space.values():
        points *= len(list(axis.values()))
    stock = list(_STOCK) if options.all else list(_STOCK)[:1]
    taken: dict[str, list[float]] = {name: [] for name in (_PLATFORM, *stock)}
    for _ in range(options.rounds):
        for name, seconds in taken.items():
            seconds.append(_seconds(name))
    ours = statistics.median(taken[_PLATFORM])
    publish(
        "quickstart",
        [
            {
                "contestant": name,
                "points": points,
                "replicates": study.replicates,
                "rounds": len(seconds),
                "median_seconds": round(statistics.median(seconds), 1),
                "slowest": round(max(seconds), 1),
                "quickest": round(min(seconds), 1),
                "points_per_minute": round(60 * points / statistics.median(seconds), 1),
                "this_platform_is_faster_by": round(statistics.median(seconds) / ours, 1),
            }
            for name, seconds in taken.items()
        ],
    )


if __name__ == "__main__":
    run(main)
