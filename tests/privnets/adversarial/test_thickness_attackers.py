"""Thickness-computing attackers, on synthetic strokes and on the digits that define them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from privnets import data
from privnets.adversarial.attackers.attacker import ReleaseView
from privnets.adversarial.attackers.scores import balanced_accuracy, balanced_decision
from privnets.adversarial.attackers.thickness import (
    PUBLISHED_THRESHOLDS,
    LearnedThickness,
    RandomThickness,
    ThickThickness,
    ThinThickness,
)
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evidence import AttackView, Evidence
from privnets.adversarial.problem import class_frequencies
from privnets.adversarial.problems import PROBLEMS
from privnets.adversarial.problems.amnist import ROWS, digit_thresholds, scan_line_counts
from privnets.adversarial.records import known_rows, load_pool, raw_evidence
from privnets.data import mnist

ATTACKERS = (RandomThickness, ThinThickness, ThickThickness)


def _absent() -> bool:
    try:
        data.fingerprint("mnist")
    except data.DataError:
        return True
    return False


def _strokes(count: int, seed: int, thick: int, thin: int, grey: float = 0.0) -> AttackView:
    """Sevens whose scan line holds `thick` or `thin` pixels of ink, on a ground of `grey`."""
    random = np.random.default_rng(seed)
    secret = random.integers(0, 2, count)
    images = np.full((count, 1, 28, 28), grey, dtype=np.float32)
    for image, bit in zip(images, secret, strict=True):
        image[0, ROWS[7], : (thick if bit else thin)] = 0.8
    return AttackView(torch.tensor(images), torch.tensor(secret), torch.full((count,), 7))


def _success(exposures: list[AttackView], attackers=ATTACKERS) -> dict[str, float]:
    evidence = Evidence(*exposures)
    rows = known_rows(evidence.test)
    prior = class_frequencies(known_rows(evidence.attack).secret, 2)
    posteriors = [kind().fit(ReleaseView(evidence), 0) for kind in attackers]
    return {
        p.name: balanced_accuracy(balanced_decision(p.test, prior), rows, 2).value
        for p in posteriors
    }


def test_strokes_around_the_published_threshold_are_distinguished():
    found = _success([_strokes(200, i, thick=6, thin=2) for i in range(3)])
    assert found == {"thickness_random": 1.0, "thickness_thin": 1.0, "thickness_thick": 1.0}


def test_a_background_that_rounds_to_zero_is_not_counted():
    found = _success([_strokes(200, i, thick=6, thin=2, grey=0.4 / 255) for i in range(3)])
    assert set(found.values()) == {1.0}


def test_ink_everywhere_hides_thickness():
    found = _success([_strokes(200, i, thick=6, thin=2, grey=0.1) for i in range(3)])
    assert found["thickness_thin"] == found["thickness_thick"] == 0.5
    assert found["thickness_random"] == pytest.approx(0.5, abs=0.11)


def test_thresholds_adapt_to_strokes_that_all_grew():
    found = _success([_strokes(200, i, thick=20, thin=12) for i in range(3)])
    assert set(found.values()) == {1.0}


def test_normal_strokes_are_guessed_in_three_ways():
    """Thin strokes on the threshold are normal: thin is right, thick is blind, a coin is half."""
    found = _success(
        [_strokes(400, i, thick=5, thin=int(PUBLISHED_THRESHOLDS[7])) for i in range(3)]
    )
    assert found["thickness_thin"] == 1
    assert found["thickness_thick"] == pytest.approx(0.5)
    assert found["thickness_random"] == pytest.approx(0.75, abs=0.06)


@pytest.mark.parametrize(("grey", "thick", "thin"), [(0.0, 6, 2), (0.4, 6, 2), (0.1, 20, 12)])
def test_a_learned_rule_finds_grey_level_and_count_of_any_strokes(grey, thick, thin):
    splits = [_strokes(200, i, thick=thick, thin=thin, grey=grey) for i in range(3)]
    assert _success(splits, [LearnedThickness]) == {"thickness_learned": 1.0}


def test_a_learned_rule_finds_nothing_in_ink_of_one_thickness():
    splits = [_strokes(400, i, thick=5, thin=5) for i in range(3)]
    assert _success(splits, [LearnedThickness])["thickness_learned"] == pytest.approx(0.5, abs=0.09)


def test_a_learned_rule_is_the_best_of_all_cuts_and_counts():
    """An exhaustive search over grey levels and counts of one digit, on the attack split."""
    random = np.random.default_rng(0)
    secret = random.integers(0, 2, 300)
    z = random.random((300, 1, 28, 28)).astype(np.float32) * np.where(secret, 1.0, 0.8)[
        :, None, None, None
    ].astype(np.float32)
    split = AttackView(torch.tensor(z), torch.tensor(secret), torch.full((300,), 7))
    levels = np.rint(z[:, 0, ROWS[7]] * 255)
    best = max(
        (((levels > cut).sum(1) > limit) == secret)[secret == 1].mean() / 2
        + (((levels > cut).sum(1) > limit) == secret)[secret == 0].mean() / 2
        for cut in range(0, 255, 5)
        for limit in range(-1, 29)
    )
    found = _success([split] * 3, [LearnedThickness])["thickness_learned"]
    assert found == pytest.approx(best, abs=1e-9)


@pytest.mark.skipif(_absent(), reason="mnist is not in PRIVNETS_DATA")
def test_a_learned_rule_reads_raw_images_through_pixel_noise():
    """Published rules reach 64% at most on raw images with pixel noise 0.15, the learned 89%."""
    config = AdversarialConfig(problem="amnist")
    pool, (splits,) = load_pool(PROBLEMS.get("amnist"), [config], "cpu")
    source = torch.Generator().manual_seed(0)

    def noisy(part: AttackView) -> AttackView:
        noise = 0.15 * torch.randn(part.z.shape, generator=source)
        return replace(part, z=(part.z + noise).clamp(0, 1))

    exposures = [noisy(part) for part in raw_evidence(pool, splits).splits]
    found = _success(exposures, [LearnedThickness, *ATTACKERS])
    assert found.pop("thickness_learned") >= 0.89
    assert max(found.values()) < 0.66


@pytest.mark.skipif(_absent(), reason="mnist is not in PRIVNETS_DATA")
def test_published_thresholds_are_those_of_the_training_images():
    images = mnist.read()
    counts = scan_line_counts(images.train_x, images.train_y)
    np.testing.assert_array_equal(PUBLISHED_THRESHOLDS, digit_thresholds(counts, images.train_y))
