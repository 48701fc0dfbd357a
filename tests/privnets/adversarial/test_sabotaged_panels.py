"""Panels that cannot judge: each is flagged, and an intact one is not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from privnets.adversarial.attackers import PROFILES
from privnets.adversarial.attackers.neural import fit_utility
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evaluation.attacked import evaluate_by_attackers
from privnets.adversarial.evaluation.evaluator import release_records
from privnets.adversarial.evidence import Evidence, Release
from privnets.adversarial.problems import PROBLEMS
from privnets.adversarial.records import load_pool
from privnets.adversarial.training.game import Game
from privnets.points import Replicate, ScoredRecords
from tests.support import finish

PROBLEM = PROBLEMS.get("gaussian-mixture")


def train_release(dependence: float) -> Release:
    """A release for which only the useful bit has a weight; 1 makes both bits independent."""
    problem = {"gaussian-mixture": {"dependence": dependence}}
    config = AdversarialConfig(problem=problem, panel="quick", tradeoff=0.0, steps=100, seed=4)
    pool, (splits,) = load_pool(PROBLEM, [config], "cpu")
    splits = replace(splits, test=splits.test[:2_000])
    game = Game(PROBLEM, [config], pool, [splits])
    game.advance(100)
    return release_records(game, 0, pool, splits)


@pytest.fixture(scope="module")
def release() -> Release:
    """A release that leaks, although the useful bit is independent of the secret."""
    return train_release(dependence=1.0)


@pytest.fixture(scope="module")
def dependent_release() -> Release:
    """A release that must leak: it keeps the useful bit, which reveals most of the secret."""
    return train_release(dependence=0.1)


@pytest.fixture(scope="module")
def intact(dependent_release: Release) -> Replicate:
    return _judge(dependent_release)


PANEL = replace(PROFILES["quick"], records=800, steps=1_500, draws=4)


@pytest.fixture(autouse=True, scope="module")
def _own_baselines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRIVNETS_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setitem(PROFILES, "quick", PANEL)
        yield


def _judge(release: Release) -> Replicate:
    (replicate,) = (r for r in evaluate_by_attackers(PROBLEM, [release]) if r is not None)
    return replicate


def _flags(release: Release) -> set[str]:
    return _raised_flags(_judge(release))


def _raised_flags(replicate: Replicate) -> set[str]:
    return {k for k, v in replicate.metrics.items() if k.startswith("flag/") and v == 1}


def _with_secrets(evidence: Evidence, change) -> Evidence:
    """Evidence whose attackers are given other secrets than the true ones."""
    attack = replace(evidence.attack, secret=change(evidence.attack.secret))
    return replace(evidence, attack=attack)


def test_an_intact_panel_is_not_flagged_and_states_its_number_of_test_records(
    dependent_release, intact
):
    assert _raised_flags(intact) == set()
    assert intact.scored_on == ScoredRecords(None, len(dependent_release.original.test.z))


def test_shuffled_labels_are_flagged(release):
    source = torch.Generator().manual_seed(0)
    order = torch.randperm(len(release.released.attack.secret), generator=source)
    mislabelled = _with_secrets(release.released, lambda secret: secret[order])
    replicate = _judge(replace(release, released=mislabelled))
    assert "flag/attacker_below_adversary" in _raised_flags(replicate)
    # This flag needs no leak to be found, so it is raised for private releases too.
    assert "flag/attacker_fails_on_raw_data" in _raised_flags(replicate)
    note = replicate.notes["flag/attacker_fails_on_raw_data"]
    assert note == "secrets of the attack split differ from those of the raw records"


def test_leakage_below_the_bound_is_flagged(dependent_release, intact):
    """Attackers with wrong labels in all they see find no leakage, but the useful bit is kept."""
    assert intact.metrics["bound/gap"] == pytest.approx(
        sum(intact.metrics[key] for key in ("exact/leakage", "exact/censored"))
        - intact.metrics["bound/release"],
        abs=5 * intact.standard_errors["bound/gap"],
    )
    source, released = torch.Generator().manual_seed(0), dependent_release.released
    attack, validation = (
        replace(split, secret=split.secret[torch.randperm(len(split.secret), generator=source)])
        for split in (released.attack, released.validation)
    )
    mislabelled = replace(released, attack=attack, validation=validation)
    judged = _judge(replace(dependent_release, released=mislabelled))
    assert judged.metrics["bound/gap"] < -0.5 * judged.metrics["bound/release"]
    assert judged.metrics["flag/below_bound"] == 1
    assert "nats below the bound" in judged.notes["flag/below_bound"]


def test_a_release_never_tells_more_of_utility_than_its_record(
    dependent_release, tmp_path, monkeypatch
):
    """The network of raw records learns from exchanged labels, and the game has no other."""
    monkeypatch.setenv("PRIVNETS_CACHE", str(tmp_path))
    original = dependent_release.original
    wrong = replace(original.attack, utility=1 - original.attack.utility)
    poor = replace(original, attack=wrong)
    replicate = _judge(replace(dependent_release, original=poor, raw_utility=None))
    assert replicate.metrics["baseline/utility_accuracy"] < 0.6
    assert replicate.metrics["utility/censored"] == 0
    assert replicate.standard_errors["utility/censored"] > 0


def test_attackers_that_learn_nothing_from_raw_data_are_flagged(release, tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVNETS_CACHE", str(tmp_path))
    original = release.original
    splits = (
        replace(split, z=torch.zeros_like(split.z).normal_(generator=torch.manual_seed(i)))
        for i, split in enumerate(original.splits)
    )
    assert "flag/attacker_fails_on_raw_data" in _flags(replace(release, original=Evidence(*splits)))


def test_exchanged_labels_are_flagged(release, monkeypatch):
    # Of a sample, logistic regression guesses a constant, which is not below the floor.
    monkeypatch.setitem(PROFILES, "quick", replace(PANEL, records=10_000))
    mislabelled = _with_secrets(release.released, lambda secret: 1 - secret)
    assert "flag/attacker_below_floor" in _flags(replace(release, released=mislabelled))


def test_untrained_networks_are_flagged(release, monkeypatch):
    monkeypatch.setitem(PROFILES, "quick", replace(PANEL, steps=1))
    replicate = _judge(release)
    assert replicate.metrics["flag/attacker_not_converged"] == 1
    reasons = replicate.notes["flag/attacker_not_converged"].split("; ")
    assert "steps ran out before they could overtake: network, large_network" in reasons
    assert "steps ran out before they could overtake: utility/refitted_accuracy" in "; ".join(
        reasons
    )


def test_a_small_contrast_hides_no_utility(release):
    """Fresh utility networks standardise releases, as attackers do."""
    splits = (replace(split, z=100 + 1e-2 * split.z) for split in release.original.splits)
    (usual,), (faint,) = (
        finish(fit_utility(PROBLEM, [release.config], [evidence], "test"))
        for evidence in (release.original, Evidence(*splits))
    )
    assert usual.remaining_gain == 0
    assert (usual.log_p.argmax(1) == faint.log_p.argmax(1)).mean() > 0.99


def test_frozen_noise_is_flagged(release):
    frozen = replace(release.released, redraw=None)
    assert "flag/attacker_frozen_noise" in _flags(replace(release, released=frozen))
