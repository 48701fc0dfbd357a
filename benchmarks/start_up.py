"""Start-up: from the command `sweeps run quickstart` to the first training step of a worker.

Seconds, and processor seconds of all processes until then, with imports, Ray's start and
publishing, in fresh processes and a fresh tracking store. Prepared data and MLflow's empty store
are cached, as after any earlier sweep. The sweep is killed at its first step.

`--before FOLDER` adds the code of another commit, checked out in a folder, in alternating rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.cleanup import run
from benchmarks.harness import publish

_ROOT = Path(__file__).resolve().parents[1]
# Ray's title of a worker in a call of `train`.
_TRAINING = "ray::ResourceTrainable.train"
_POLL_SECONDS = 0.02
_MAX_SECONDS = 120.0


def main() -> None:
    """Measure and publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--before", type=Path, help="folder that is named as its commit")
    options = parser.parse_args()
    folders = {"this commit": _ROOT}
    if options.before is not None:
        folders[options.before.name] = options.before.resolve()
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in folders}
    for is_counted in (False, *[True] * options.rounds):  # the first round fills caches
        for name, folder in folders.items():
            times = _measure(folder)
            if is_counted:
                taken[name].append(times)
    publish("start_up", [_row(name, times) for name, times in taken.items()])


def _measure(folder: Path) -> tuple[float, float]:
    """Seconds and processor seconds of one start."""
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as place:
        words = ["run", "quickstart", "--storage", place, "--quiet"]
        command = [sys.executable, "-m", "sweeps", *words]
        uri = f"sqlite:///{place}/mlflow.db"
        start = time.perf_counter()
        driver = psutil.Popen(
            [*command, "--tracking-uri", uri],
            env={**os.environ, "PYTHONPATH": str(folder)},
            cwd=place,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while not _is_training(driver):
                if driver.poll() is not None or time.perf_counter() > start + _MAX_SECONDS:
                    raise RuntimeError("no worker trained")
                time.sleep(_POLL_SECONDS)
            seconds = time.perf_counter() - start
            return seconds, sum(map(_processor_seconds, _family(driver)))
        finally:
            processes = _family(driver)
            driver.kill()
            driver.wait()
            psutil.wait_procs(processes, timeout=_MAX_SECONDS)  # the driver's Ray and publisher


def _family(driver: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return [driver, *driver.children(recursive=True)]
    return []


def _is_training(driver: psutil.Process) -> bool:
    for process in _family(driver):
        with suppress(psutil.NoSuchProcess):
            if process.cmdline()[:1] == [_TRAINING]:
                return True
    return False


def _processor_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def _row(name: str, taken: list[tuple[float, float]]) -> dict[str, object]:
    seconds, processor_seconds = zip(*taken, strict=True)
    return {
        "contestant": name,
        "rounds": len(taken),
        "median_seconds": round(statistics.median(seconds), 2),
        "quickest": round(min(seconds), 2),
        "slowest": round(max(seconds), 2),
        "processor_seconds": round(statistics.median(processor_seconds), 2),
    }


if __name__ == "__main__":
    run(main)
