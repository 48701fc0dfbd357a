"""Overhead of a sweep beside its trainings: points per second of an experiment without work.

Ten thousand points of 15 metrics through search, packs, Ray Tune and ledger, on this machine's
cores: once training alone, once as users run it, with progress, publisher (into a fresh SQLite
store), report and figures beside or after it. Each in a fresh process, in turn; and again with some
milliseconds of work in every training, so that the publisher has time to be in the way.

`running_per_second` counts trainings from the end of the first to the last pack's commit, and
`slowdown_percent` compares that time with training alone's; `first_seconds` goes from the command,
imports and Ray's start included, to the first committed pack, and `trained_seconds` to the last;
`whole_seconds` to the end of the process, by when everything is in MLflow.

Run as `python -m benchmarks.overhead [--points N] [--replicates N] [--busy S] [--rounds N]`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace

import tracking
from benchmarks.cleanup import run
from benchmarks.harness import publish
from benchmarks.trivial_sweeps import Order, Times, measure


def main() -> None:
    """Measure and append to the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--replicates", type=int, default=1)
    parser.add_argument("--pack", type=int, default=0, help="trainings in a pack; 0 sizes them")
    parser.add_argument("--busy", type=float, default=0.01, help="seconds of work in a training")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows = []
    for busy in (0.0, options.busy):
        order = Order(options.points, options.replicates, busy=busy, pack=options.pack)
        taken: dict[str, list[Times]] = {"training alone": [], "published": []}
        for _ in range(options.rounds):
            for times, published in zip(taken.values(), (False, True), strict=True):
                times.append(_measure_sweep(order, published))
        alone = statistics.median(map(_running, taken["training alone"]))
        rows += [_row(name, order, times, alone) for name, times in taken.items()]
    publish("overhead", rows)


def _measure_sweep(order: Order, published: bool) -> Times:
    if not published:
        return measure(order)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        uri = tracking.create(f"sqlite:///{folder}/mlflow.db")
        return measure(replace(order, tracking_uri=uri))


def _row(name: str, order: Order, taken: list[Times], alone: float) -> dict[str, object]:
    def median(of: Callable[[Times], float]) -> float:
        return round(statistics.median(map(of, taken)), 1)

    trainings = order.points * order.replicates
    running = statistics.median(map(_running, taken))
    return {
        "contestant": name,
        "points": order.points,
        "replicates": order.replicates,
        "work_ms": 1000 * order.busy,
        "packs": len(taken[0].commits),
        "rounds": len(taken),
        "running_per_second": round(trainings / running),
        "slowest": round(trainings / max(map(_running, taken))),
        "first_seconds": median(lambda times: times.commits[0]),
        "trained_seconds": median(lambda times: times.commits[-1]),
        "whole_seconds": median(lambda times: times.end),
        "slowdown_percent": round(100 * (running / alone - 1), 1),
    }


def _running(times: Times) -> float:
    return times.commits[-1] - times.ends[0]


if __name__ == "__main__":
    run(main)
