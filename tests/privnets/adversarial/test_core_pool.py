"""Attackers fitted in threads: equal scores, and no thread left running."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from privnets.adversarial.attackers import PROFILES
from privnets.adversarial.attackers.classical import (
    BoostedTrees,
    LogisticRegression,
    NearestNeighbours,
)
from privnets.adversarial.attackers.panel import CorePool, Panel, PanelResult, score_releases
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evidence import AttackView, Evidence

ATTACKERS = {kind.name: kind() for kind in (BoostedTrees, NearestNeighbours, LogisticRegression)}


@pytest.fixture
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def _evidence(seed: int) -> Evidence:
    random = np.random.default_rng(seed)

    def exposure(count: int) -> AttackView:
        secret = random.integers(0, 2, count)
        z = random.standard_normal((count, 2)) + secret[:, None]
        return AttackView(torch.tensor(z, dtype=torch.float32), torch.tensor(secret))

    return Evidence(*map(exposure, (400, 300, 300)))


def _score(cores: int) -> Iterator[PanelResult | None]:
    torch.set_num_threads(cores)
    evidence = [_evidence(seed) for seed in range(3)]
    configs = [AdversarialConfig(problem="digits", seed=seed) for seed in range(3)]
    return score_releases(evidence, Panel({}, ATTACKERS, PROFILES["quick"]), configs, [None] * 3)


def _running() -> int:
    return sum(thread.name.startswith("privnets-attackers") for thread in threading.enumerate())


@pytest.mark.usefixtures("_threads")
def test_scores_do_not_depend_on_the_number_of_cores():
    alone, beside = ([v for v in _score(cores) if v is not None] for cores in (1, 3))
    for one, other in zip(alone, beside, strict=True):
        assert one.metrics == pytest.approx(other.metrics, abs=1e-6, nan_ok=True)
        assert one.strongest == other.strongest


@pytest.mark.usefixtures("_threads")
def test_interrupted_scoring_leaves_no_thread():
    work = _score(3)
    next(work)
    assert _running() > 0
    work.close()
    assert _running() == 0


@pytest.mark.usefixtures("_threads")
def test_one_core_needs_no_thread():
    work = _score(1)
    next(work)
    assert _running() == 0


@pytest.mark.parametrize("cores", [1, 2])
def test_an_error_of_the_work_is_raised_where_its_result_is_requested(cores):
    with CorePool(cores, caller_works=False) as beside:
        fine, broken = beside.submit(lambda: 1), beside.submit(lambda: 1 // 0)
        assert fine() == 1
        with pytest.raises(ZeroDivisionError):
            broken()


@pytest.mark.parametrize("cores", [1, 3])
def test_work_keeps_to_the_cores_of_the_pack(cores):
    """Every thread's libraries use one core."""
    before = _library_threads()
    with CorePool(cores, caller_works=False) as beside:
        waiting = [beside.submit(_library_threads) for _ in range(4)]
        found = [wait() for wait in waiting]
    assert all(set(threads.values()) == {1} for threads in found)
    assert _library_threads() == before


def test_a_working_caller_keeps_one_core():
    with CorePool(1, caller_works=True) as one, CorePool(3, caller_works=True) as three:
        started = [one.submit(_running), *(three.submit(_running) for _ in range(8))]
        assert max(wait() for wait in started) <= 1 + 2


def _library_threads() -> dict[str, int]:
    import sklearn.ensemble  # noqa: F401

    return {library["filepath"]: library["num_threads"] for library in threadpool_info()}
