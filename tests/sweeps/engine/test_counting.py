"""How a running sweep stands: counts that add up, the front so far, and little memory."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from privnets.points import Curve, Replicate, TradeoffPoint
from sweeps.engine.counting import BackgroundCall, SweepCounter, SweepCounts
from sweeps.store.ledger import Ledger

OBJECTIVES = {"privacy/advantage": "min", "utility/accuracy": "max"}


def replicate_of(
    name: str, seed: int, advantage: float, accuracy: float, **said: str
) -> TradeoffPoint:
    metrics = {"privacy/advantage": advantage, "utility/accuracy": accuracy, "other": 1.0}
    replicate = Replicate(seed, {} if said else metrics, **said)  # type: ignore[arg-type]
    return TradeoffPoint(name, "membership", {}, (replicate,))


def point(name: str, advantage: float, accuracy: float, **said: str) -> list[TradeoffPoint]:
    return [replicate_of(name, seed, advantage, accuracy, **said) for seed in (0, 1)]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(str(tmp_path), "sweep")


def overview(ledger: Ledger) -> SweepCounter:
    return SweepCounter(ledger, (0, 1), OBJECTIVES)  # type: ignore[arg-type]


def test_points_are_counted_once_and_by_their_worst_replicate(ledger: Ledger) -> None:
    mixed = [replicate_of("c", 0, 0, 0, stopped="beaten"), replicate_of("c", 1, 0, 0, failure="x")]
    ledger.write_pack("0", [*point("a", 0.1, 0.5), *point("b", 0.2, 0.7, stopped="beaten"), *mixed])
    follower = overview(ledger)
    now = follower.read()
    assert (now.complete, now.failed, now.stopped, now.front) == (3, 1, 1, 1)
    ledger.write_pack("1", [*point("a", 0.0, 0.9), replicate_of("d", 0, 0.3, 0.8)])
    assert follower.read() == replace(now, trainings=now.trainings + 1)
    ledger.write_pack("2", [replicate_of("d", 1, 0.3, 0.8)])
    assert follower.read().complete == 4


def test_the_front_so_far_is_that_of_all_points_however_they_came(ledger: Ledger) -> None:
    """In any order of packs: what failed, is undefined or is beaten stays out."""
    follower = overview(ledger)
    parts = [
        point("beaten later", 0.25, 0.6),
        point("a", 0.1, 0.5),
        point("undefined", math.nan, 0.99),
        point("b", 0.2, 0.7),
        point("beaten", 0.3, 0.6),
        point("failed", 0.0, 1.0, failure="diverged"),
    ]
    for index, part in enumerate(parts):
        ledger.write_pack(str(index), part)
        now = follower.read()
    assert now.front == 2
    assert now.best == {"privacy/advantage": 0.1, "utility/accuracy": 0.7}
    assert overview(ledger).read() == now


def test_a_sweep_without_points_stands_at_nothing(ledger: Ledger) -> None:
    assert overview(ledger).read() == SweepCounts()


def test_a_call_beside_never_waits_and_is_made_once_at_a_time() -> None:
    begun, go = threading.Semaphore(0), threading.Semaphore(1)
    calls: list[int] = []

    def work() -> int:
        begun.release()
        go.acquire()
        calls.append(len(calls))
        return len(calls)

    beside = BackgroundCall(work)
    begun.acquire()
    while not begun.acquire(timeout=0.01):  # until it has rested
        assert beside.poll() == 1
    assert [beside.poll() for _ in range(100)] == [1] * 100
    assert calls == [0]
    go.release()
    go.release()
    assert beside.now() == 3


def test_a_call_beside_that_fails_is_told_of_once() -> None:
    broken = False

    def work() -> str:
        if broken:
            raise OSError("away")
        return "fine"

    beside = BackgroundCall(work)
    broken = True
    with pytest.raises(OSError, match="away"):
        beside.now()
    broken = False
    assert beside.poll() == "fine"


_FOLLOW = """
import resource, sys
from sweeps.store.ledger import Ledger
from sweeps.engine.counting import SweepCounter

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

few, many = (Ledger(sys.argv[1], name) for name in ("few", "many"))
objectives = {"privacy/m0": "min", "privacy/m1": "min"}
SweepCounter(few, range(2), objectives).read()
before = peak()
overview = SweepCounter(many, range(2), objectives)
assert overview.read().complete == 1000
print(1024 * (peak() - before) / 1000)
"""


def test_a_complete_point_takes_little_memory_of_who_follows(tmp_path: Path) -> None:
    """Less than 20 kB each, its share of what is read at once included, though it holds 12 kB."""
    curve = Curve(tuple(range(20)), tuple(float(i) for i in range(20)))
    metrics = {f"privacy/m{key}": float(key) for key in range(60)}
    for name, count in (("few", 50), ("many", 1000)):
        ledger = Ledger(str(tmp_path), name)
        for start in range(0, count, 50):
            ledger.write_pack(
                str(start),
                [
                    TradeoffPoint(
                        f"{index:020}",
                        "membership",
                        {"x": index},
                        tuple(
                            Replicate(seed, metrics, metrics, curves={"a": curve, "b": curve})
                            for seed in range(2)
                        ),
                    )
                    for index in range(start, start + 50)
                ],
            )
    command = [sys.executable, "-c", _FOLLOW, str(tmp_path)]
    per_point = float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert per_point < 20_000
