"""Reused trainings: wanted replicates are copied once, with their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from privnets.points import Replicate, TradeoffPoint
from sweeps.errors import InputError
from sweeps.planning.plan import create_manifest, make_plan
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import read_manifest, write_manifest
from sweeps.store.reuse import ReusedSweeps, find_sources, record_sources, recorded_sources
from sweeps.study.spec import Study


def made_ledger(storage: Path, sweep: str, *keys: tuple[str, int], failed: bool = False) -> Ledger:
    ledger = Ledger(str(storage), sweep)
    ledger.write_spec({"sweep": sweep})
    for point, seed in keys:
        replicate = Replicate(
            seed,
            {"m": seed / 3},
            artifacts={"a.json": f"{sweep} {seed}".encode()},
            failure="diverged" if failed else None,
            finished_at=1.0 + seed,
        )
        made = TradeoffPoint(point, "membership", {"x": 1}, (replicate,))
        ledger.write_pack(f"{point}{seed}", [made])
    return ledger


def made_target(storage: Path, *keys: tuple[str, int]) -> Ledger:
    ledger = made_ledger(storage, "target", *keys)
    fixed = {"dataset": "digits", "model": "logistic", "train_size": 50}
    space = {"weight_decay": {"grid": [0.1]}}
    study = {"name": "s", "experiment": "membership", "fixed": fixed, "space": space}
    plan = make_plan(Study.model_validate(study))
    write_manifest(ledger, create_manifest(plan, "target", command="", tracking_uri=""))
    return ledger


def test_wanted_replicates_are_copied_once_with_their_files(tmp_path: Path) -> None:
    made_ledger(tmp_path, "first", ("a", 0), ("a", 1), ("b", 0))
    made_ledger(tmp_path / "other", "second", ("a", 1), ("c", 2))
    made_ledger(tmp_path, "broken", ("d", 0), failed=True)
    target = made_target(tmp_path, ("b", 0))
    sources = find_sources(["auto", f"{tmp_path}/other/second"], target)
    assert [source.sweep for source in sources] == ["broken", "first", "second"]
    reused = ReusedSweeps(target, sources)
    assert reused.copy([("a", 0), ("a", 1), ("d", 0), ("e", 0)]) == {("a", 0), ("a", 1)}
    assert reused.copy([("c", 2)]) == {("c", 2)}
    assert (reused.copied, reused.available) == (3, 4)
    names = [pack_id.rpartition("-")[0] for pack_id in target.pack_ids()]
    assert names == ["", "reused-a0", "reused-a1", "reused-c2"]
    assert [(o.sweep, o.packs) for o in read_manifest(target).reused] == [
        ("first", ("a0", "a1")),
        ("second", ("c2",)),
    ]
    (point,) = target.read_points([target.pack_ids()[-1]])
    assert dict(point.replicates[0].artifacts) == {"a.json": b"second 2"}
    assert point.replicates[0].finished_at == 3.0


def test_replicates_of_one_pack_can_be_copied_one_after_the_other(tmp_path: Path) -> None:
    source, target = made_ledger(tmp_path, "first"), made_target(tmp_path)
    replicates = (Replicate(0, {"m": 0.0}), Replicate(1, {"m": 1.0}))
    source.write_pack("both", [TradeoffPoint("a", "membership", {"x": 1}, replicates)])
    reused = ReusedSweeps(target, [source])
    assert [reused.copy([("a", seed)]) for seed in (0, 1)] == [{("a", 0)}, {("a", 1)}]
    assert target.finished_replicates() == {("a", 0), ("a", 1)}


def test_a_replicate_whose_files_are_missing_is_not_copied(tmp_path: Path) -> None:
    source, target = made_ledger(tmp_path, "first", ("a", 0), ("b", 0)), made_target(tmp_path)
    for file in (tmp_path / "first" / "artifacts" / "a").rglob("*.json"):
        file.unlink()
    assert ReusedSweeps(target, [source]).copy([("a", 0), ("b", 0)]) == {("b", 0)}
    assert target.finished_replicates() == {("b", 0)}


def test_recorded_sources_are_found_again_unless_only_the_manifest_names_a_server(
    tmp_path: Path,
) -> None:
    kept, gone = made_ledger(tmp_path, "kept"), Ledger(str(tmp_path), "gone")
    target = made_target(tmp_path)
    remote = Ledger("mock://bucket/storage", "remote")
    manifest = record_sources(read_manifest(target), [kept, gone, remote, kept])
    assert [origin.sweep for origin in manifest.reused] == ["kept", "gone", "remote"]
    assert [source.sweep for source in recorded_sources(manifest, target)] == ["kept"]


def test_a_sweep_to_reuse_must_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'absent' does not exist"):
        find_sources(["absent"], made_ledger(tmp_path, "target"))
