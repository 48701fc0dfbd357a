"""What recording a point in MLflow costs, on SQLite and through a server.

Run as `python tests/benchmarks/publishing.py [POINTS]`; prints a table.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mlflow_server import mlflow_server

import tracking
from privnets.points import Replicate, TradeoffPoint

METRICS = 30  # as a membership point has; MLflow gets four values for each


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    points = [_point(index) for index in range(count)]
    for point in points:
        _ = point.metrics  # worked out once per point; not what is measured
    print(f"{count} points of {METRICS} metrics (4 values each)")
    titles = ("new, ms/point", "again, ms/point", "one more, ms", "read, ms")
    print("store   " + "".join(f"{title:>17}" for title in titles))
    with tempfile.TemporaryDirectory() as folder:
        uri = tracking.create(f"sqlite:///{folder}/mlflow.db")
        _measure("sqlite", uri, points)
        with mlflow_server(Path(folder)) as server:
            _measure("server", server.uri, points)


def _measure(store: str, uri: str, points: list[TradeoffPoint]) -> None:
    tracking.record([_point(-1)], sweep=f"warm-{store}", tracking_uri=uri)

    def record(some: list[TradeoffPoint]) -> float:
        return _milliseconds(lambda: tracking.record(some, sweep=store, tracking_uri=uri))

    new, again = record(points) / len(points), record(points) / len(points)
    one = record([_point(len(points))])
    read = _milliseconds(lambda: tracking.load_points(store, uri))
    print(f"{store:8}{new:>17.1f}{again:>17.2f}{one:>17.1f}{read:>17.0f}")


def _milliseconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - start)


def _point(index: int) -> TradeoffPoint:
    replicates = tuple(
        Replicate(
            seed,
            {f"privacy/metric_{key}": math.sin(key + index + seed / 3) for key in range(METRICS)},
            finished_at=1.7e9 + index,
        )
        for seed in range(2)
    )
    config = {"train_size": 10 + index, "weight_decay": 10.0 ** -(1 + index % 6), "model": "linear"}
    return TradeoffPoint(f"{index:020x}", "membership", config, replicates)


if __name__ == "__main__":
    main()
