"""Reused trainings: wanted replicates are copied once, with their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from privnets.points import Replicate, TradeoffPoint
from sweeps.errors import InputError
from sweeps.store.ledger import Ledger
from sweeps.store.reuse import copy_replicates, find_origins, find_sources


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


def test_wanted_replicates_are_copied_once_with_their_files(tmp_path: Path) -> None:
    made_ledger(tmp_path, "first", ("a", 0), ("a", 1), ("b", 0))
    made_ledger(tmp_path / "other", "second", ("a", 1), ("c", 2))
    made_ledger(tmp_path, "broken", ("d", 0), failed=True)
    target = made_ledger(tmp_path, "target", ("b", 0))
    wanted = {("a", 0), ("a", 1), ("b", 0), ("c", 2), ("d", 0), ("e", 0)}
    sources = find_sources(["auto", f"{tmp_path}/other/second"], target)
    assert [source.sweep for source in sources] == ["broken", "first", "second"]
    origins = find_origins(sources, wanted)
    assert [(o.sweep, o.packs) for o in origins] == [
        ("first", ("a0", "a1", "b0")),
        ("second", ("c2",)),
    ]
    for _ in range(2):
        copy_replicates(origins, target, wanted)
    assert target.pack_ids() == ["b0", "reused-a0", "reused-a1", "reused-c2"]
    assert target.finished_replicates() == {("a", 0), ("a", 1), ("b", 0), ("c", 2)}
    (point,) = target.read_points(["reused-c2"])
    assert dict(point.replicates[0].artifacts) == {"a.json": b"second 2"}
    assert point.replicates[0].finished_at == 3.0


def test_a_sweep_to_reuse_must_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'absent' does not exist"):
        find_sources(["absent"], made_ledger(tmp_path, "target"))
