"""Tables made column by column are those that points make one by one."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_sweeps import plain

from privnets.points import Curve, Replicate, TradeoffPoint, merge_replicates
from sweeps.store.codec import is_fixed_column
from sweeps.store.columns import is_table_column, replicates
from sweeps.store.ledger import Ledger
from tracking.frame import points_frame, replicates_frame

SEEDS = frozenset({0, 1, 2})
# Infinities of either sign, and numbers whose squares, or even sums, are infinite.
ODD = [math.nan, math.inf, -math.inf, 1.5e308, -1.5e308, 1e200, 0.0, -0.0, 1e-300]
FLOATS = st.floats(-1e100, 1e100) | st.sampled_from(ODD)
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


def whole(points: list[TradeoffPoint]) -> list[TradeoffPoint]:
    """The complete points, by the plain rule."""
    return [p for p in merge_replicates(points) if {r.seed for r in p.replicates} >= SEEDS]


@settings(max_examples=60, deadline=None)
@given(packs_of_points())
def test_tables_are_those_of_the_points_themselves(packs: list[list[TradeoffPoint]]) -> None:
    """Whatever is repeated, lacking, undefined, failed, stopped or of another type."""
    with TemporaryDirectory() as folder:
        ledger = Ledger(folder, "sweep")
        for place, pack in enumerate(packs):
            ledger.write_pack(str(place), pack)
        found = replicates(ledger.read_tables(wanted=is_table_column)).complete(SEEDS)
        expected = whole(ledger.read_points())
    assert {name: count for name, count in found.counts().items() if count} == {
        how: sum(p.status == how for p in expected) for how in {p.status for p in expected}
    }
    same(found.points_frame("s"), points_frame(expected, "s"))
    same(found.replicates_frame("s"), replicates_frame(expected, "s"))


def same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(found, expected, check_exact=True)


def test_sums_that_are_not_finite_are_what_adding_gives() -> None:
    """And never an error, by either way: every three of the odd numbers."""
    points = [
        TradeoffPoint(
            f"p{index}",
            "membership",
            {"x": index},
            tuple(Replicate(seed, {"m": value}, finished_at=1.0) for seed, value in enumerate(odd)),
        )
        for index, odd in enumerate(product(ODD, repeat=3))
    ]
    with TemporaryDirectory() as folder:
        ledger = Ledger(folder, "sweep")
        ledger.write_pack("pack", points)
        found = replicates(ledger.read_tables(wanted=is_table_column)).complete(SEEDS)
    same(found.points_frame("s"), points_frame(points, "s"))
    means = {tuple(r.metrics["m"] for r in p.replicates): p.metrics["m"] for p in points}
    assert math.isnan(means[math.inf, -math.inf, 0.0])
    assert means[1.5e308, 1.5e308, 0.0] == math.inf
    assert means[0.0, 0.0, 1e200] == 1e200 / 3


def test_ordinary_numbers_are_summed_up_to_the_last_bit() -> None:
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
        found = replicates(ledger.read_tables(wanted=is_table_column)).complete({0})
    same(found.points_frame("s"), points_frame(points, "s"))


@pytest.mark.parametrize("wanted", [is_table_column, lambda name: name in ("seed", "point_id")])
def test_a_few_columns_are_read_of_just_the_files_that_are_whole(
    tmp_path: Path, wanted: Any
) -> None:
    """A byte changed in a column that is not read loses the file all the same."""
    ledger = Ledger(str(tmp_path), "sweep")
    curve = Curve(tuple(range(500)), tuple(np.random.default_rng(0).random(500).tolist()))
    point = TradeoffPoint("p", "e", {}, (Replicate(0, {"m": 1.0}, curves={"loss": curve}),))
    ledger.write_pack("pack", [point])
    path = tmp_path / "sweep" / "ledger" / "pack.parquet"
    content = path.read_bytes()
    assert [table.num_rows for table in ledger.read_tables(wanted=wanted)] == [1]
    for place in range(0, len(content), 97):
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        assert ledger.read_tables(wanted=wanted) == []
        assert ledger.finished_replicates() == set()
        assert "pack.parquet" in ledger.unreadable


@settings(max_examples=25, deadline=None)
@given(packs_of_points())
def test_notes_and_files_are_those_of_the_points_themselves(
    packs: list[list[TradeoffPoint]],
) -> None:
    with TemporaryDirectory() as folder:
        ledger = Ledger(folder, "sweep")
        for place, pack in enumerate(packs):
            ledger.write_pack(str(place), pack)
        found = replicates(ledger.read_tables(wanted=is_fixed_column)).complete(SEEDS)
        expected = whole(ledger.read_points())
        assert set(found.notes()) == {
            (p.point_id, *note) for p in expected for note in p.notes.items()
        }
        assert found.files() == {
            name
            for p in expected
            for r in p.replicates
            for name in r.artifacts
            if p.status == "finished"
        }
        for point in ledger.read_points():
            (alone,) = ledger.read_points(only={point.point_id})
            assert plain(alone) == plain(point)


def test_of_a_few_points_only_the_packs_that_hold_them_are_read_whole(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path), "sweep")
    for name in "abc":
        ledger.write_pack(name, [TradeoffPoint(name, "e", {}, (Replicate(0, {"m": 1.0}),))])
    (tmp_path / "sweep" / "ledger" / "b.parquet").write_bytes(b"PAR1")
    assert [point.point_id for point in ledger.read_points(only={"a", "b"})] == ["a"]
    assert list(ledger.unreadable) == ["b.parquet"]
