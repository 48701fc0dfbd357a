"""Pending work of a sweep, and what ends a run early."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import psutil
import pytest
from small_sweeps import STUDY, small_plan, study_file

import privnets
from sweeps.engine.pack_trainer import PackTrainer
from sweeps.planning.packing import Capacity, Pack
from sweeps.planning.pending import pack_costs, pending_packs, pending_replicates
from sweeps.planning.plan import Plan
from sweeps.store.filesystem import Directory
from sweeps.store.ledger import Ledger

_CAPACITY = Capacity(2, 2**30)
_TURNSTILE = Path(__file__).parents[1] / "turnstile"
_WAIT_SECONDS = 240.0


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return small_plan(tmp_path_factory.mktemp("study"), "resources.pack=3", "fixed.draws=48")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(str(tmp_path), "sweep")


def members(packs: Sequence[Pack]) -> Counter[tuple[str, int]]:
    return Counter((r.point_id, r.seed) for pack in packs for r in pack.replicates)


def packs_of(plan: Plan, ledger: Ledger) -> list[Pack]:
    return pending_packs(plan, ledger, pending_replicates(plan, ledger), _CAPACITY)


def train(ledger: Ledger, pack: Pack, stages: int | None = None) -> None:
    trainer = PackTrainer(pack, privnets.experiment("membership"), ledger, checkpoint_seconds=0.0)
    while stages is None or stages > 0:
        stages = None if stages is None else stages - 1
        if trainer.advance().committed:
            return


def test_replicates_in_the_ledger_are_not_pending(plan: Plan, ledger: Ledger) -> None:
    first, *others = packs_of(plan, ledger)
    train(ledger, first)
    assert members(packs_of(plan, ledger)) == members(others)


def test_a_checkpoint_that_cannot_be_read_now_is_kept(
    plan: Plan, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage that fails for a moment must not cost hours of training."""
    pack = packs_of(plan, ledger)[-1]
    train(ledger, pack, stages=1)

    def fail(*args: object) -> bytes:
        raise OSError(errno.EIO, "the disk failed")

    with monkeypatch.context() as patch:
        patch.setattr(Directory, "read_start", fail)
        with pytest.raises(OSError, match="the disk failed"):
            packs_of(plan, ledger)
    assert packs_of(plan, ledger)[0].pack_id == pack.pack_id


def test_a_pack_with_a_checkpoint_comes_first_and_unchanged(plan: Plan, ledger: Ledger) -> None:
    *others, last = packs_of(plan, ledger)
    train(ledger, last, stages=1)
    again = packs_of(plan, ledger)
    assert again[0].pack_id == last.pack_id
    assert members(again[:1]) == members([last])
    assert members(again[1:]) == members(others)


def test_packs_end_where_the_budget_ends(tmp_path: Path, ledger: Ledger) -> None:
    """A pack that an earlier run began continues whole."""
    plan = small_plan(tmp_path, "resources.pack=3", "fixed.draws=48", "search.budget=4")
    packs = packs_of(plan, ledger)
    assert 4 in accumulate(len(pack.replicates) for pack in packs)
    assert members(packs) == Counter((r.point_id, r.seed) for r in plan.replicates())
    begun = max(packs[2:], key=lambda pack: len(pack.replicates))
    train(ledger, begun, stages=1)
    again = packs_of(plan, ledger)
    assert members(again[:1]) == members([begun])
    assert 4 in accumulate(len(pack.replicates) for pack in again)


def test_a_damaged_checkpoint_is_removed_and_its_pack_stays_pending(
    plan: Plan, ledger: Ledger
) -> None:
    first, *_ = packs_of(plan, ledger)
    train(ledger, first, stages=1)
    for path in Path(ledger.directory.path, "checkpoints").glob("*/*"):
        path.write_bytes(b"")
    planned = Counter((r.point_id, r.seed) for r in plan.replicates())
    assert members(packs_of(plan, ledger)) == planned
    assert list(Path(ledger.directory.path, "checkpoints").iterdir()) == []


def test_a_pack_costs_as_much_as_its_replicates_and_shared_work_once(
    plan: Plan, ledger: Ledger
) -> None:
    packs = packs_of(plan, ledger)
    cost = privnets.experiment("membership").cost
    shared = [max(cost(r.config).shared for r in pack.replicates) for pack in packs]
    assert sum(pack_costs(packs).values()) == pytest.approx(plan.cost_seconds() + sum(shared))


@pytest.mark.ray
def test_a_run_whose_local_ray_dies_ends_in_order_and_says_how_to_continue(
    tracking_uri: str, tmp_path: Path
) -> None:
    """One pack finishes first; the others wait for tickets that never come."""
    tickets = tmp_path / "tickets"
    tickets.mkdir()
    (tickets / "one").touch()
    study = study_file(tmp_path, STUDY.replace("experiment: membership", "experiment: turnstile"))
    command = [
        sys.executable, "-m", "sweeps", "run", str(study), "--name", "broken",
        "--storage", str(tmp_path), "--tracking-uri", tracking_uri,
        "--set", "resources.concurrency=1",
    ]  # fmt: skip
    environment = {
        "PYTHONPATH": os.pathsep.join([str(_TURNSTILE), *sys.path]),
        "PRIVNETS_TURNSTILE": str(tickets),
    }
    driver = subprocess.Popen(
        command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True
    )
    try:
        ledger = tmp_path / "broken" / "ledger"
        deadline = time.monotonic() + _WAIT_SECONDS
        while not list(ledger.glob("*.parquet")):
            assert time.monotonic() < deadline
            assert driver.poll() is None
            time.sleep(0.1)
        children = psutil.Process(driver.pid).children(recursive=True)
        (victim,) = [child for child in children if child.name() == "raylet"]
        os.kill(victim.pid, signal.SIGKILL)
        _, errors = driver.communicate(timeout=_WAIT_SECONDS)
    finally:
        driver.kill()
        driver.wait()
    assert driver.returncode == 1, errors
    line = next(line for line in errors.splitlines() if "Ray's raylet process" in line)
    assert "nothing that finished is lost" in line
    assert f"sweeps resume broken --storage {tmp_path}" in line
    assert "core_worker" not in errors
    assert len(list(ledger.glob("*.parquet"))) == 1
