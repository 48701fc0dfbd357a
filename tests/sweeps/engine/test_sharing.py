"""Sharing of a cluster: what the rule gives to each sweep, and two sweeps on a real cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from ray_head import Head, ray_head
from small_sweeps import STUDY, study_file

import tracking
from cluster.ray_internals import delete_cluster_value, write_cluster_value
from sweeps.engine.executor import execute
from sweeps.engine.sharing import ClusterClaim, ClusterShare, fair_shares, may_request_more
from sweeps.planning.plan import make_plan
from sweeps.store.ledger import Ledger
from sweeps.study.loader import load
from sweeps.study.spec import Resources

if TYPE_CHECKING:
    from cluster.connection import Connection

_EXPERIMENT = Path(__file__).resolve().parents[2] / "benchmarks" / "trivial"
_TURNSTILE = Path(__file__).parents[1] / "turnstile"
_SECONDS = 240.0
_ASLEEP = """
name: {name}
experiment: trivial
fixed: {{seconds: {seconds}}}
space: {{x: {{grid: {points}}}}}
replicates: 1
resources: {{pack: 8}}
"""

_weights = st.sampled_from([0.5, 1.0, 2.0, 3.0])
_claims = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        ClusterClaim,
        weight=_weights,
        bundle=st.just({"CPU": 1.0}),
        wanted=st.integers(0, 12),
        held=st.integers(0, 3),
        usage=st.sampled_from([0.0, 100.0, 900.0]),
    ),
    min_size=1,
)


@given(claims=_claims, slots=st.integers(0, 20))
def test_no_slot_is_idle_while_a_sweep_wants_one(
    claims: dict[str, ClusterClaim], slots: int
) -> None:
    shares = fair_shares({"CPU": float(slots)}, claims)
    assert sum(shares.values()) == min(slots, sum(claim.wanted for claim in claims.values()))
    assert all(0 <= shares[name] <= claim.wanted for name, claim in claims.items())


@given(claims=_claims, slots=st.integers(0, 20))
def test_a_sweep_has_less_than_another_only_by_its_weight_or_one_pack(
    claims: dict[str, ClusterClaim], slots: int
) -> None:
    """Weighted max-min fairness in whole packs."""
    shares = fair_shares({"CPU": float(slots)}, claims)
    for name, claim in claims.items():
        if shares[name] < claim.wanted:
            for other, theirs in claims.items():
                if other != name and shares[other]:
                    assert (shares[other] - 1) / theirs.weight <= shares[name] / claim.weight


def test_shares_follow_weights_and_the_scarcest_resource() -> None:
    cpus, gpus = {"CPU": 1.0}, {"CPU": 1.0, "GPU": 0.5}
    claims = {"light": ClusterClaim(1, cpus, 99), "heavy": ClusterClaim(2, cpus, 99)}
    assert fair_shares({"CPU": 9}, claims) == {"light": 3, "heavy": 6}
    # Four packs take all GPUs; the other sweep needs none, and gets the rest.
    claims = {"cpu": ClusterClaim(1, cpus, 99), "gpu": ClusterClaim(1, gpus, 99)}
    assert fair_shares({"CPU": 20, "GPU": 2}, claims) == {"cpu": 16, "gpu": 4}


def test_new_capacity_is_for_the_sweep_with_the_smallest_share() -> None:
    held = {"a": 2, "b": 1}
    claims = {n: ClusterClaim(1, {"CPU": 1.0}, 9, held[n]) for n in "ab"}
    assert not may_request_more("a", {"CPU": 3}, claims)
    assert may_request_more("b", {"CPU": 3}, claims)
    # Not before the other has its share of what there is.
    claims["a"] = ClusterClaim(1, {"CPU": 1.0}, 9, held=1)
    assert not may_request_more("b", {"CPU": 3}, claims)


class _Drivers:
    """Drivers of sweeps that want all of a cluster, with a clock of their own."""

    def __init__(self, cpus: int, *sweeps: Resources) -> None:
        self.cpus, self.now = cpus, 0.0
        self.shares = {n: ClusterShare(r, n, cpus) for n, r in zip("abc", sweeps, strict=False)}
        self.store: dict[str, bytes] = {}

    def limits(self, seconds: int = 1, step: int = 1) -> list[int]:
        """Limits after some seconds, in which all write and read claims in each step."""
        for _ in range(0, seconds, step):
            self.now += step
            for name, share in self.shares.items():
                share.has_more = True
                self.store[name] = share.claim({"CPU": self.cpus}, self._most(share), self.now)
            for share in self.shares.values():
                share.update({"CPU": self.cpus}, self._most(share), self.store, self.now)
        return [share.limit for share in self.shares.values()]

    def _most(self, share: ClusterShare) -> int:
        return int(self.cpus // share.resources.pack_cpus)


@pytest.mark.parametrize("pack", [10, 1000])
def test_sweeps_use_the_only_slot_by_their_weights(pack: int) -> None:
    drivers, used = _Drivers(1, Resources(), Resources(weight=2)), [0, 0]
    first, second = drivers.shares.values()
    for start in range(0, 30_000, 10):
        drivers.limits(10, step=10)
        for share, other in ((first, second), (second, first)):
            if start % pack == 0:
                share.held = min(share.held, share.limit)
            share.held = max(share.held, min(share.limit, 1 - other.held))
        used = [used[0] + first.held, used[1] + second.held]
    assert used[1] / used[0] == pytest.approx(2, rel=0.1)


def test_the_claim_of_a_driver_that_died_counts_no_more() -> None:
    drivers = _Drivers(4, Resources(), Resources())
    drivers.limits()
    assert drivers.limits()[0] == 2
    del drivers.shares["b"]
    share = drivers.shares["a"]
    share.held = 2
    assert drivers.limits(10) == [2]
    assert drivers.limits(10)[0] >= 4
    assert share.update({"CPU": 4}, 4, drivers.store, drivers.now) == ["b"]


def test_a_share_that_a_sweep_cannot_use_is_for_others_after_a_minute() -> None:
    """Two free CPUs may lie on two nodes, where no pack of two CPUs fits."""
    drivers = _Drivers(4, Resources(), Resources(cpus=2))
    drivers.shares["a"].held = 4
    assert drivers.limits(100)[0] == 2  # a pack of the first has to end before
    drivers.shares["a"].held = 2
    assert drivers.limits(50)[0] == 2
    assert drivers.limits(50)[0] >= 4
    drivers.shares["a"].held = 4
    assert drivers.limits(100)[0] >= 4
    drivers.shares["a"].held, drivers.shares["b"].held = 2, 1
    assert drivers.limits()[0] == 2


def test_a_sweep_whose_nodes_left_still_asks_for_one() -> None:
    drivers = _Drivers(4, Resources(), Resources(cpus=8))
    drivers.limits()
    assert drivers.limits()[1] == 4


@contextmanager
def _running(
    head: Head, folder: Path, name: str, points: int, seconds: float = 0.25
) -> Iterator[subprocess.Popen[bytes]]:
    study = _study(folder, name, points, seconds)
    uri = tracking.create(f"sqlite:///{folder}/{name}.db")
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": head.token}
    process = subprocess.Popen(
        [sys.executable, "-m", "sweeps", "run", str(study), "--name", name, "--quiet",
         "--address", head.gcs, "--storage", str(folder), "--tracking-uri", uri],
        env={**os.environ, **token, "PYTHONPATH": _path()},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _study(folder: Path, name: str, points: int, seconds: float) -> Path:
    study, values = folder / f"{name}.yaml", [i / points for i in range(points)]
    study.write_text(_ASLEEP.format(name=name, points=values, seconds=seconds))
    return study


def _path() -> str:
    return os.pathsep.join([str(_EXPERIMENT), os.environ["PYTHONPATH"]])


def _packs(folder: Path, name: str) -> int:
    """Packs in training, by the driver's heartbeat."""
    path = folder / name / "progress.json"
    beat = json.loads(path.read_text()) if path.exists() else {}
    return int((beat.get("use") or {}).get("packs", 0))


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.ray
@pytest.mark.slow
def test_a_second_sweep_gets_half_of_the_cluster_until_it_dies(tmp_path: Path) -> None:
    with (
        ray_head(2, PYTHONPATH=_path()) as head,
        _running(head, tmp_path, "first", 4000),
    ):
        _wait_for(lambda: _packs(tmp_path, "first") == 2)
        with _running(head, tmp_path, "second", 4000) as second:
            _wait_for(lambda: [_packs(tmp_path, n) for n in ("first", "second")] == [1, 1])
            second.send_signal(signal.SIGKILL)
            _wait_for(lambda: _packs(tmp_path, "first") == 2)


@pytest.mark.ray
@pytest.mark.slow
def test_a_sweep_trains_all_its_packs_after_another_came_and_went(tmp_path: Path) -> None:
    """Its requests for workers beyond its share are withdrawn, and made again."""
    with (
        ray_head(2, PYTHONPATH=_path()) as head,
        _running(head, tmp_path, "first", 48, 2.0) as first,
    ):
        _wait_for(lambda: _packs(tmp_path, "first") == 2)
        with _running(head, tmp_path, "second", 8) as second:
            assert second.wait(_SECONDS) == 0
            assert first.poll() is None
            assert first.wait(_SECONDS) == 0


@pytest.mark.ray
@pytest.mark.slow
def test_a_sweep_waits_without_a_slot_and_then_trains_on(
    local_ray: Connection,
    turnstile_tickets: Path,
    tracking_uri: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another sweep, of which there is only the claim, waits for both slots for some seconds."""
    study = study_file(tmp_path, STUDY.replace("experiment: membership", "experiment: turnstile"))
    monkeypatch.syspath_prepend(str(_TURNSTILE))
    ledger, numbers = Ledger(str(tmp_path), "held"), []

    def claim_all() -> None:
        _wait_for(lambda: _packs(tmp_path, "held") == 2)
        for beat in range(24):
            other = ClusterClaim(1, {"CPU": 2.0}, 1, usage=-1e9, beat=beat)
            write_cluster_value("sweeps/claims/other", TypeAdapter(ClusterClaim).dump_json(other))
            if beat == 6:
                for ticket in range(4):
                    (turnstile_tickets / str(ticket)).touch()
            time.sleep(0.5)
        numbers.append(len(ledger.pack_ids()))
        delete_cluster_value("sweeps/claims/other")

    thread = threading.Thread(target=claim_all, daemon=True)
    thread.start()
    plan = make_plan(load(study, ("replicates=1",)))
    outcome = execute(plan, sweep="held", storage=str(tmp_path), tracking_uri=tracking_uri)
    thread.join()
    assert outcome.exit_code == 0, outcome.problems
    assert numbers == [2]
