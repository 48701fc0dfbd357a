"""The reader of a ledger gives the same tables and points as the objects themselves."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st
from small_sweeps import plain

from privnets.frames import points_frame, replicates_frame
from privnets.points import Curve, Replicate, TradeoffPoint, merge_replicates
from sweeps.analysis.results import build_points_frame, build_replicates_frame
from sweeps.store.codec import FIXED_COLUMNS
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import SeedRule
from sweeps.store.reader import (
    LedgerReader,
    PointReader,
    is_metric_column,
    replicate_table,
)

SEEDS = frozenset({0, 1, 2})
RULE = SeedRule(SEEDS)
FLOATS = st.floats(-1e3, 1e3) | st.sampled_from([math.nan, math.inf, -math.inf, -0.0])
TEXTS = st.sampled_from([None, None, None, "for a reason"])


@st.composite
def a_replicate(draw: st.DrawFn, seed: int) -> Replicate:
    metrics = draw(st.dictionaries(st.sampled_from(["a", "b/c", "d.e"]), FLOATS))
    return Replicate(
        seed,
        metrics,
        {key: abs(value) for key, value in metrics.items() if draw(st.booleans())},
        curves={"loss": Curve((1, 2), (0.5, 0.25))} if draw(st.booleans()) else {},
        notes=draw(st.dictionaries(st.sampled_from(["a", "flag"]), st.sampled_from("xy"))),
        artifacts=draw(st.dictionaries(st.sampled_from(["f.txt", "g"]), st.just(b"x"))),
        failure=draw(TEXTS),
        stopped=draw(TEXTS),
        finished_at=draw(st.floats(0, 2e9)),
    )


VALUES = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.sampled_from("xyz")


@st.composite
def packs_of_points(draw: st.DrawFn) -> list[list[TradeoffPoint]]:
    """Packs of some points that have each seed, and of some that lack one; some seeds twice."""
    members = []
    for name in draw(st.sets(st.sampled_from("abcde"))):
        config = draw(st.dictionaries(st.sampled_from("klm"), VALUES))
        seeds = [*draw(st.sampled_from([[0, 1, 2], [0, 2]])), *draw(st.lists(st.integers(0, 3)))]
        members += [
            TradeoffPoint(name, "membership", config, (draw(a_replicate(seed)),)) for seed in seeds
        ]
    mixed = draw(st.permutations(members))
    cut = draw(st.integers(0, len(mixed)))
    return [mixed[:cut], mixed[cut:]]


def complete_points(points: list[TradeoffPoint]) -> list[TradeoffPoint]:
    """The complete points, by the plain rule."""
    return [p for p in merge_replicates(points) if {r.seed for r in p.replicates} >= SEEDS]


def write_packs(ledger: Ledger, packs: list[list[TradeoffPoint]]) -> None:
    for index, pack in enumerate(packs):
        ledger.write_pack(str(index), pack)


def assert_equal(frame: pd.DataFrame, expected: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(frame, expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(packs_of_points())
def test_tables_equal_those_of_the_points(packs: list[list[TradeoffPoint]]) -> None:
    """Replicates may be repeated, missing, undefined, failed, stopped, or of mixed types."""
    with TemporaryDirectory() as folder:
        ledger = Ledger(folder, "sweep")
        write_packs(ledger, packs)
        replicates = replicate_table(ledger.read_tables(columns=is_metric_column)).complete(RULE)
        points = complete_points(ledger.read_points())
    counts = {name: count for name, count in replicates.counts.items() if count}
    assert counts == {
        how: sum(p.status == how for p in points) for how in {p.status for p in points}
    }
    assert_equal(build_points_frame(replicates, "s"), points_frame(points, "s"))
    assert_equal(build_replicates_frame(replicates, "s"), replicates_frame(points, "s"))


def test_means_of_infinite_values_equal_those_of_the_points() -> None:
    points = [
        TradeoffPoint(
            f"p{index}",
            "membership",
            {"x": index},
            tuple(Replicate(seed, {"m": value}, finished_at=1.0) for seed, value in enumerate(row)),
        )
        for index, row in enumerate(product([math.nan, math.inf, -math.inf, 0.0, 2.5], repeat=3))
    ]
    with TemporaryDirectory() as folder:
        ledger = Ledger(folder, "sweep")
        ledger.write_pack("pack", points)
        replicates = replicate_table(ledger.read_tables()).complete(RULE)
    assert_equal(build_points_frame(replicates, "s"), points_frame(points, "s"))


def test_means_of_ordinary_values_equal_those_of_the_points() -> None:
    random = np.random.default_rng(1)
    points = [
        TradeoffPoint(
            f"p{index}",
            "membership",
            {"x": index},
            tuple(
                Replicate(seed, {"m": float(random.lognormal(0, 3))}, {"m": 0.5}, finished_at=1.0)
                for seed in range(count)
            ),
        )
        for count in (1, 2, 3, 8, 16)
        for index in range(100 * count, 100 * count + 50)
    ]
    with TemporaryDirectory() as folder:
        ledger = Ledger(folder, "sweep")
        ledger.write_pack("pack", points)
        replicates = replicate_table(ledger.read_tables()).complete(SeedRule(frozenset({0})))
    assert_equal(build_points_frame(replicates, "s"), points_frame(points, "s"))


def test_damage_hides_a_pack_from_those_who_read_it_whole(tmp_path: Path) -> None:
    """So what cannot be published is trained again; readers of a few columns may still see it."""
    ledger = Ledger(str(tmp_path), "sweep")
    curve = Curve(tuple(range(500)), tuple(np.random.default_rng(0).random(500).tolist()))
    point = TradeoffPoint("p", "e", {}, (Replicate(0, {"m": 1.0}, curves={"loss": curve}),))
    ledger.write_pack("pack", [point])
    path = tmp_path / "sweep" / "ledger" / "pack.parquet"
    content = path.read_bytes()
    hidden = 0
    places = range(0, len(content), 97)
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        points = ledger.read_points()
        assert bool(points) != ("pack.parquet" in ledger.unreadable)
        assert bool(points) == bool(ledger.finished_replicates())
        assert bool(points) <= bool(ledger.read_tables(columns=is_metric_column))
        hidden += not points
    assert hidden > 0.7 * len(places)


@settings(max_examples=8, deadline=None)
@given(packs_of_points())
def test_notes_and_artifacts_equal_those_of_the_points(packs: list[list[TradeoffPoint]]) -> None:
    with TemporaryDirectory() as folder:
        ledger = Ledger(folder, "sweep")
        write_packs(ledger, packs)
        replicates = replicate_table(
            ledger.read_tables(columns=FIXED_COLUMNS.__contains__)
        ).complete(RULE)
        points = complete_points(ledger.read_points())
        notes = {(p.point_id, *note) for p in points for note in p.notes.items()}
        assert set(replicates.notes()) == notes
        assert replicates.artifact_names() == {
            name
            for p in points
            for r in p.replicates
            for name in r.artifacts
            if p.status == "finished"
        }
        for point in ledger.read_points():
            (alone,) = ledger.read_points(only={point.point_id})
            assert plain(alone) == plain(point)


def point_of(name: str, *seeds: int) -> TradeoffPoint:
    replicates = tuple(Replicate(seed, {"m": 1.0}, finished_at=1.0) for seed in seeds)
    return TradeoffPoint(name, "e", {}, replicates)


def test_selected_points_are_read_despite_a_damaged_pack(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path), "sweep")
    for name in "abc":
        ledger.write_pack(name, [point_of(name, 0)])
    (tmp_path / "sweep" / "ledger" / "b.parquet").write_bytes(b"PAR1")
    assert [point.point_id for point in ledger.read_points(only={"a", "b"})] == ["a"]
    assert list(ledger.unreadable) == ["b.parquet"]


def test_each_pack_is_read_once_and_a_damaged_one_when_it_is_replaced(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path), "sweep")
    reader = LedgerReader(ledger)
    ledger.write_pack("a", [point_of("a", 0)])
    ledger.write_pack("b", [point_of("b", 0)])
    path = tmp_path / "sweep" / "ledger" / "b.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:-9])
    assert [table["point_id"].to_pylist() for table in reader.read_new()] == [["a"]]
    path.write_bytes(content)
    assert [table["point_id"].to_pylist() for table in reader.read_new()] == [["b"]]
    assert reader.read_new() == []


def test_point_is_read_once_when_its_last_replicate_appears(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path), "sweep")
    reader = PointReader(ledger, RULE)
    ledger.write_pack("a", [point_of("p", 0, 2)])
    assert reader.read_new() == []
    ledger.write_pack("b", [point_of("p", 1)])
    assert [plain(point) for point in reader.read_new()] == [plain(point_of("p", 0, 1, 2))]
    ledger.write_pack("c", [point_of("p", 1)])
    assert reader.read_new() == []
