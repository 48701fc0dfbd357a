"""Sharing of a cluster: what the rule gives to each sweep, and two sweeps on a real cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray_head import Head, ray_head

import tracking
from sweeps.engine.sharing import Claim, fair_shares, may_request_more

_EXPERIMENT = Path(__file__).resolve().parents[2] / "benchmarks" / "trivial"
_SECONDS = 240.0
_STUDY = """
name: {name}
experiment: trivial
fixed: {{seconds: 0.25}}
space: {{x: {{grid: {points}}}}}
replicates: 1
resources: {{pack: 8}}
"""

_weights = st.sampled_from([0.5, 1.0, 2.0, 3.0])
_claims = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        Claim,
        weight=_weights,
        bundle=st.just({"CPU": 1.0}),
        wanted=st.integers(0, 12),
        joined=st.floats(0, 9),
    ),
    min_size=1,
)


@given(claims=_claims, slots=st.integers(0, 20), turn=st.integers(0, 9))
def test_no_slot_is_idle_while_a_sweep_wants_one(
    claims: dict[str, Claim], slots: int, turn: int
) -> None:
    shares = fair_shares({"CPU": float(slots)}, claims, turn)
    assert sum(shares.values()) == min(slots, sum(claim.wanted for claim in claims.values()))
    assert all(0 <= shares[name] <= claim.wanted for name, claim in claims.items())


@given(claims=_claims, slots=st.integers(0, 20), turn=st.integers(0, 9))
def test_a_sweep_has_less_than_another_only_by_its_weight_or_one_pack(
    claims: dict[str, Claim], slots: int, turn: int
) -> None:
    """Weighted max-min fairness in whole packs."""
    shares = fair_shares({"CPU": float(slots)}, claims, turn)
    for name, claim in claims.items():
        if shares[name] < claim.wanted:
            for other, theirs in claims.items():
                if other != name and shares[other]:
                    assert (shares[other] - 1) / theirs.weight <= shares[name] / claim.weight


def test_shares_follow_weights_and_the_scarcest_resource() -> None:
    cpus, gpus = {"CPU": 1.0}, {"CPU": 1.0, "GPU": 0.5}
    claims = {"light": Claim(1, cpus, 99), "heavy": Claim(2, cpus, 99)}
    assert fair_shares({"CPU": 9}, claims) == {"light": 3, "heavy": 6}
    # Four packs take all GPUs; the other sweep needs none, and gets the rest.
    claims = {"cpu": Claim(1, cpus, 99), "gpu": Claim(1, gpus, 99)}
    assert fair_shares({"CPU": 20, "GPU": 2}, claims) == {"cpu": 16, "gpu": 4}


def test_equal_sweeps_take_turns_with_the_only_slot() -> None:
    claims = {name: Claim(1, {"CPU": 1.0}, 9, joined=i) for i, name in enumerate("abc")}
    turns = [fair_shares({"CPU": 1}, claims, turn) for turn in range(3)]
    assert [[n for n in shares if shares[n]] for shares in turns] == [["a"], ["b"], ["c"]]


def test_new_capacity_is_for_the_sweep_that_has_least() -> None:
    held = {"a": 2, "b": 1}
    claims = {n: Claim(1, {"CPU": 1.0}, 9, held[n], joined=i) for i, n in enumerate("ab")}
    assert not may_request_more("a", {"CPU": 3}, claims)
    assert may_request_more("b", {"CPU": 3}, claims)
    # Not before the other has its share of what there is.
    claims["a"] = Claim(1, {"CPU": 1.0}, 9, held=1)
    assert not may_request_more("b", {"CPU": 3}, claims)


@contextmanager
def _running(head: Head, folder: Path, name: str, points: int) -> Iterator[subprocess.Popen[bytes]]:
    study = folder / f"{name}.yaml"
    study.write_text(_STUDY.format(name=name, points=[i / points for i in range(points)]))
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
