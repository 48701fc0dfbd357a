"""Baselines on raw records: computed once, and as good as the papers report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from privnets.adversarial.attackers import PROFILES
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evaluation.baselines import Baselines
from privnets.adversarial.evidence import Evidence
from privnets.adversarial.problem import Problem
from privnets.adversarial.problems import PROBLEMS
from privnets.adversarial.records import load_pool, raw_evidence
from tests.support import finish, requires_data

# arXiv 2310.18241: digits 97.25% and, balanced, thickness 91.5% on the original images.
DIGITS, THICKNESS = 0.9725, 0.915

pytestmark = pytest.mark.usefixtures("small_panel")


def _toy(seeds: Sequence[int]) -> tuple[Problem, list[AdversarialConfig], list[Evidence]]:
    settings = {"problem": "gaussian-mixture", "panel": "quick"}
    configs = [AdversarialConfig(seed=seed, **settings) for seed in seeds]
    problem = PROBLEMS.get("gaussian-mixture")
    pool, splits = load_pool(problem, configs, "cpu")
    return problem, configs, [raw_evidence(pool, split) for split in splits]


@pytest.fixture
def _empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVNETS_CACHE", str(tmp_path))


@pytest.mark.usefixtures("_empty")
def test_a_baseline_that_is_being_computed_is_awaited(tmp_path: Path):
    """The second process has no records from which to compute the baseline itself."""
    problem, configs, evidence = _toy([0, 0])
    first, second = Baselines(problem, configs, evidence), Baselines(problem, configs, [])
    working, waiting = first.compute(), second.get(1)
    next(working)
    assert list(second.compute()) == []
    assert [next(waiting) for _ in range(2)] == [None, None]
    list(working)
    shared, own = finish(waiting), finish(first.get(0))
    assert shared.attacker == own.attacker
    np.testing.assert_array_equal(shared.utility.log_p, own.utility.log_p)
    assert [path.suffix for path in tmp_path.iterdir()] == [""]  # and no lock is left


@pytest.mark.usefixtures("_empty")
def test_an_abandoned_baseline_is_computed_by_the_waiting_process():
    problem, configs, evidence = _toy([0])
    abandoned = Baselines(problem, configs, evidence).compute()
    next(abandoned)
    waiting = Baselines(problem, configs, evidence).get(0)
    assert next(waiting) is None
    abandoned.close()
    assert finish(waiting).attacker[0] > 0.9


@pytest.mark.usefixtures("_empty")
@pytest.mark.parametrize("edited", ["profile", "attacker_width"])
def test_other_attackers_have_a_baseline_of_their_own(edited: str, monkeypatch):
    problem, configs, evidence = _toy([0])
    list(Baselines(problem, configs, evidence).compute())
    assert list(Baselines(problem, configs, []).compute()) == []
    if edited == "profile":
        monkeypatch.setitem(PROFILES, "quick", replace(PROFILES["quick"], draws=2))
    else:
        monkeypatch.setattr(type(problem), "spec", replace(problem.spec, attacker_width=7))
    work = Baselines(problem, configs, evidence).compute()
    next(work)
    work.close()


def test_without_a_cache_directory_each_process_computes_its_own_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PRIVNETS_CACHE", str(tmp_path / "file" / "nowhere"))
    assert finish(Baselines(*_toy([0])).get(0)).attacker[0] > 0.9


@pytest.mark.slow
@pytest.mark.timeout(3600)
@requires_data("mnist")
def test_baselines_of_raw_images_reach_the_published_accuracies():
    config = AdversarialConfig(problem="amnist")
    problem = PROBLEMS.get("amnist")
    pool, splits = load_pool(problem, [config], "cpu")
    found = finish(Baselines(problem, [config], [raw_evidence(pool, splits[0])]).get(0))
    assert pool.utility is not None
    label = pool.utility.numpy()[splits[0].test]
    assert np.mean(found.utility.log_p.argmax(1) == label) >= DIGITS
    assert found.attacker[0] >= THICKNESS
