"""Counts of a running sweep add up, and take little memory."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from privnets.points import Replicate, TradeoffPoint
from sweeps.engine.progress import SweepCounter
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import SeedRule
from sweeps.store.status import SweepCounts

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


def make_counter(ledger: Ledger) -> SweepCounter:
    return SweepCounter(ledger, SeedRule(frozenset({0, 1})), OBJECTIVES)  # type: ignore[arg-type]


def test_points_are_counted_once_and_by_their_worst_replicate(ledger: Ledger) -> None:
    mixed = [
        replicate_of("c", 0, 0, 0, stopped="worse"),
        replicate_of("c", 1, 0, 0, failure="x"),
    ]
    ledger.write_pack("0", [*point("a", 0.1, 0.5), *point("b", 0.2, 0.7, stopped="worse"), *mixed])
    counter = make_counter(ledger)
    now = counter.read()
    assert (now.complete, now.failed, now.stopped, now.front) == (3, 1, 1, 1)
    ledger.write_pack("1", [*point("a", 0.0, 0.9), replicate_of("d", 0, 0.3, 0.8)])
    assert counter.read() == replace(now, trainings=now.trainings + 1)
    ledger.write_pack("2", [replicate_of("d", 1, 0.3, 0.8)])
    assert counter.read().complete == 4


def test_front_does_not_depend_on_the_order_of_packs(ledger: Ledger) -> None:
    """Failed, undefined and dominated points are not on it."""
    counter = make_counter(ledger)
    parts = [
        point("dominated later", 0.25, 0.6),
        point("a", 0.1, 0.5),
        point("undefined", math.nan, 0.99),
        point("b", 0.2, 0.7),
        point("dominated", 0.3, 0.6),
        point("failed", 0.0, 1.0, failure="diverged"),
    ]
    for index, part in enumerate(parts):
        ledger.write_pack(str(index), part)
        now = counter.read()
    assert now.front == 2
    assert now.best == {"privacy/advantage": 0.1, "utility/accuracy": 0.7}
    assert make_counter(ledger).read() == now


def test_sweep_without_points_has_zero_counts(ledger: Ledger) -> None:
    assert make_counter(ledger).read() == SweepCounts()
