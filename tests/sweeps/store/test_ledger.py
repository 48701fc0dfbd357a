"""The ledger keeps packs whole or not at all."""

from __future__ import annotations

import errno
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from small_sweeps import plain

from privnets.points import Curve, Replicate, ScoredRecords, TradeoffPoint
from sweeps.errors import InputError
from sweeps.store.codec import decode_table, encode_points, points_from_tables
from sweeps.store.filesystem import open_directory
from sweeps.store.ledger import Ledger

KEYS = st.sampled_from(["utility/mse", "privacy/attack/threshold/auc", "bound/x", "a key"])
NUMBERS = st.floats()


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    values = draw(st.lists(NUMBERS, max_size=4))
    return Curve(tuple(range(len(values))), tuple(values))


REPLICATES = st.builds(
    Replicate,
    seed=st.integers(0, 2**31 - 1),
    metrics=st.dictionaries(KEYS, NUMBERS),
    standard_errors=st.dictionaries(KEYS, NUMBERS),
    notes=st.dictionaries(KEYS, st.text()),
    curves=st.dictionaries(KEYS, curves()),
    failure=st.none() | st.text(),
    finished_at=st.floats(0, 2e9),
)
CONFIGS = st.dictionaries(
    st.sampled_from(["model", "train_size", "weight_decay"]),
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False)
    | st.text(),
)


def point(point_id: str = "p0", seed: int = 0, **changes: Any) -> TradeoffPoint:
    fields = {"metrics": {"utility/mse": 0.5}, "finished_at": 1.0, **changes}
    return TradeoffPoint(point_id, "membership", {"train_size": 10}, (Replicate(seed, **fields),))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(str(tmp_path), "sweep")


def parquet_of(ledger: Ledger, pack: str) -> Path:
    return Path(ledger.directory.path, "ledger", f"{pack}.parquet")


@given(st.lists(st.tuples(CONFIGS, REPLICATES), max_size=4))
def test_points_survive_encoding(drawn: list[tuple[dict[str, Any], Replicate]]) -> None:
    points = [TradeoffPoint(f"p{i}", "e", c, (r,)) for i, (c, r) in enumerate(drawn)]
    read = points_from_tables([decode_table(encode_points(points))], open_directory("/nowhere"))
    assert [plain(p) for p in read] == [plain(p) for p in points]


def test_artifacts_are_read_on_access(ledger: Ledger) -> None:
    ledger.write_pack("pack", [point(seed=3, artifacts={"figure.png": b"\x89PNG"})])
    (read,) = ledger.read_points()
    assert dict(read.artifacts) == {"figure.png": b"\x89PNG"}
    stored = Path(ledger.directory.path, "artifacts", "p0", "3-figure.png")
    assert stored.read_bytes() == b"\x89PNG"


def test_replicates_of_a_point_are_joined_across_packs(ledger: Ledger) -> None:
    ledger.write_pack("a", [point(seed=1), point("other")])
    ledger.write_pack("b", [point(seed=0)])
    read = {p.point_id: [r.seed for r in p.replicates] for p in ledger.read_points()}
    assert read == {"p0": [0, 1], "other": [0]}
    assert ledger.finished_replicates() == {("p0", 0), ("p0", 1), ("other", 0)}


def test_first_of_two_equal_replicates_counts(ledger: Ledger) -> None:
    ledger.write_pack("a", [point(metrics={"m": 2.0}, finished_at=20.0)])
    ledger.write_pack("b", [point(metrics={"m": 1.0}, finished_at=10.0)])
    (read,) = ledger.read_points()
    assert [dict(r.metrics) for r in read.replicates] == [{"m": 1.0}]


def test_truncated_pack_is_skipped_and_reported(ledger: Ledger) -> None:
    ledger.write_pack("whole", [point("kept")])
    ledger.write_pack("cut", [point("lost", curves={"c": Curve((1, 2), (0.5, 0.25))})])
    content = parquet_of(ledger, "cut").read_bytes()
    for length in range(0, len(content), 97):
        parquet_of(ledger, "cut").write_bytes(content[:length])
        reader = Ledger(str(Path(ledger.directory.path).parent), "sweep")
        assert [p.point_id for p in reader.read_points()] == ["kept"]
        assert reader.finished_replicates() == {("kept", 0)}
        assert set(reader.unreadable) == {"cut.parquet"}


@pytest.mark.parametrize("scored", [None, ScoredRecords(None, 5), ScoredRecords("one", 5, 0.5)])
def test_test_sets_are_kept(ledger: Ledger, scored: ScoredRecords | None) -> None:
    whole = point()
    replicates = tuple(replace(r, scored_on=scored) for r in whole.replicates)
    ledger.write_pack("pack", [replace(whole, replicates=replicates)])
    (read,) = ledger.read_points()
    assert [r.scored_on for r in read.replicates] == [scored] * len(replicates)


def test_packs_of_earlier_versions_have_no_test_sets(ledger: Ledger) -> None:
    ledger.write_pack("new", [point()])
    path = Path(ledger.directory.path, "ledger", "new.parquet")
    table = pq.read_table(path).drop_columns(["test_set", "test_size", "test_overlap"])
    pq.write_table(table, path.with_name("old.parquet"), write_page_checksum=True)
    path.unlink()
    (old,) = ledger.read_points()
    assert (old, ledger.unreadable) == (point(), {})
    assert old.replicates[0].scored_on is None


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"other": [1]}),
        pa.table({"point_id": ["p"], "seed": ["zero"]}),
        pa.table({"point_id": pa.array([None], pa.string()), "seed": [0]}),
    ],
    ids=["other columns", "seed as text", "null point_id"],
)
def test_table_with_other_columns_is_skipped(ledger: Ledger, table: pa.Table) -> None:
    ledger.write_pack("good", [point()])
    pq.write_table(table, parquet_of(ledger, "bad"))
    assert [p.point_id for p in ledger.read_points()] == ["p0"]
    assert ledger.finished_replicates() == {("p0", 0)}
    assert "bad.parquet" in ledger.unreadable


def test_artifact_cannot_be_written_outside_its_directory(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="plain file name"):
        ledger.write_pack("bad", [point(artifacts={"../../evil": b""})])
    assert ledger.pack_ids() == []


@contextmanager
def small_files(limit: int) -> Iterator[None]:
    """Limits the size of files, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_failed_write_leaves_the_ledger_unchanged(ledger: Ledger) -> None:
    ledger.write_pack("a", [point()])
    with small_files(100), pytest.raises(OSError, match="File too large") as raised:
        ledger.write_pack("b", [point("new")])
    assert raised.value.errno == errno.EFBIG
    assert [path.name for path in parquet_of(ledger, "a").parent.iterdir()] == ["a.parquet"]
    assert [p.point_id for p in ledger.read_points()] == ["p0"]


def test_temporary_file_is_not_listed(ledger: Ledger) -> None:
    ledger.write_pack("a", [point()])
    parquet_of(ledger, "a").with_name(".b.parquet.0123").write_bytes(b"PAR1")
    assert ledger.pack_ids() == ["a"]
    assert ledger.unreadable == {}


def test_spec_above_the_size_limit_is_refused(ledger: Ledger) -> None:
    spec = {"command": "x" * 2**20}
    ledger.write_spec({})
    with pytest.raises(InputError, match="at most 1 MiB"):
        ledger.write_spec(spec)
    assert ledger.read_spec() == {}
    Path(ledger.directory.path, "spec.yaml").write_text(yaml.safe_dump(spec))
    with pytest.raises(InputError, match="too long"):
        ledger.read_spec()


def test_pack_and_its_name_are_flushed_to_the_disk(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is flushed before it is renamed, and its directory after."""
    flushed: list[tuple[bool, list[str]]] = []
    flush, folder = os.fsync, parquet_of(ledger, "a").parent

    def record_flush(descriptor: int) -> None:
        kind = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        flushed.append((kind, [path.name for path in folder.glob("*.parquet")]))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", record_flush)
    ledger.write_pack("a", [point()])
    assert flushed == [(False, []), (True, ["a.parquet"])]


def test_missing_sweep_is_reported_by_name(ledger: Ledger) -> None:
    with pytest.raises(InputError, match="sweep 'sweep' does not exist"):
        ledger.read_spec()


def test_uri_and_path_name_the_same_ledger(tmp_path: Path) -> None:
    Ledger(tmp_path.as_uri(), "sweep").write_pack("a", [point()])
    (read,) = Ledger(str(tmp_path), "sweep").read_points()
    assert plain(read) == plain(point())


def test_a_log_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    ledger, elsewhere = Ledger(str(tmp_path), "sweep"), tmp_path / "elsewhere.txt"
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "log.txt").symlink_to(elsewhere)
    ledger.log("a line")
    assert not elsewhere.exists()
    (tmp_path / "sweep" / "log.txt").unlink()
    ledger.log("a line")
    assert (tmp_path / "sweep" / "log.txt").read_text().endswith(" a line\n")
