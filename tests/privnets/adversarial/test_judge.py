"""The judge of a rung: near the best attacker of known channels, and honest about its error."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from privnets.adversarial.attackers.scores import balanced_accuracy, balanced_decision, leakage
from privnets.adversarial.evaluation.interim import predict_shares, select_beliefs
from privnets.adversarial.evidence import KnownRows
from privnets.statistics.estimates import Estimate

SIZES = 4_000, 2_000
PRIOR = np.full(2, 0.5)


def judge(z: np.ndarray, secret: np.ndarray, seed: int = 1) -> tuple[Estimate, Estimate]:
    """Balanced accuracy and leakage of a bit, measured on the last records."""
    fitted = SIZES[0]
    tables = (torch.tensor(part, dtype=torch.float32) for part in (z[:fitted], z[fitted:]))
    targets = torch.nn.functional.one_hot(torch.tensor(secret[:fitted]), 2).float()
    random = np.random.default_rng(seed)
    shares = predict_shares(*tables, targets, random, is_image=False)
    label, record = secret[fitted:], np.arange(SIZES[1])
    log_p = select_beliefs(shares, label, PRIOR, record % 2)
    rows = KnownRows(label, record, np.zeros_like(record), record)
    accuracy = balanced_accuracy(balanced_decision(log_p, PRIOR), rows, 2)
    return accuracy, leakage(log_p, np.broadcast_to(np.log(PRIOR), log_p.shape), rows)


def binary_entropy(p: np.ndarray) -> np.ndarray:
    return -p * np.log(p) - (1 - p) * np.log1p(-p)


def test_the_judge_comes_near_bayes_where_no_linear_attacker_does():
    """A secret that is the product of two signs, each behind Gaussian noise."""
    std, random = 0.7, np.random.default_rng(0)
    signs = random.choice([-1.0, 1.0], (sum(SIZES), 2))
    secret = (signs.prod(1) > 0).astype(np.int64)
    z = signs + std * random.standard_normal(signs.shape)
    right = norm.cdf(1 / std)
    bayes = right**2 + (1 - right) ** 2
    odds = np.tanh(z / std**2).prod(1)  # P(S=1|z) - P(S=0|z)
    exact = math.log(2) - binary_entropy((1 + odds) / 2).mean()
    accuracy, leaked = judge(z, secret)
    assert bayes - 0.03 < accuracy.value < bayes + 3 * accuracy.error
    assert exact - 0.03 < leaked.value < exact + 3 * leaked.error


def test_the_judge_finds_nothing_in_noise_and_its_error_is_honest():
    """The choice of penalty and confidence must not favour the records that it is scored on."""
    deviations, leaks = [], []
    for seed in range(40):
        random = np.random.default_rng(seed)
        z = random.standard_normal((sum(SIZES), 3))
        accuracy, leaked = judge(z, random.integers(0, 2, len(z)), seed)
        deviations.append((accuracy.value - 0.5) / accuracy.error)
        leaks.append(leaked.value)
    assert abs(np.mean(deviations)) < 3 / math.sqrt(40)
    assert np.std(deviations) == pytest.approx(1, abs=3 / math.sqrt(80))
    assert np.mean(leaks) < 1e-3


def test_intervals_of_the_judge_hold_its_success_on_the_whole_population():
    """Scored on disjoint validation records, estimates vary as their errors say."""
    random = np.random.default_rng(5)
    secret = random.integers(0, 2, 40 * SIZES[1] + SIZES[0])
    z = secret[:, None] + random.standard_normal((len(secret), 2))
    fitted = SIZES[0]
    found = []
    for i in range(40):
        chosen = np.r_[:fitted, fitted + i * SIZES[1] : fitted + (i + 1) * SIZES[1]]
        found.append(judge(z[chosen], secret[chosen]))
    for estimates in zip(*found, strict=True):
        values, errors = (np.array([getattr(e, n) for e in estimates]) for n in ("value", "error"))
        assert values.std(ddof=1) == pytest.approx(errors.mean(), rel=3 / math.sqrt(80))


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_units_of_a_release_do_not_matter(factor):
    random = np.random.default_rng(2)
    secret = random.integers(0, 2, sum(SIZES))
    z = secret[:, None] + random.standard_normal((len(secret), 2))
    for one, other in zip(judge(z, secret), judge(factor * z, secret), strict=True):
        assert one.value == pytest.approx(other.value, abs=2e-3)


@pytest.mark.parametrize("release", ["constant", "one direction", "outlier", "tiny"])
@pytest.mark.parametrize("is_image", [True, False])
def test_degenerate_releases_give_finite_predictions(release, is_image):
    random = np.random.default_rng(3)
    z = {
        "constant": np.full((500, 80), 0.3),
        "one direction": np.outer(random.standard_normal(500), random.standard_normal(80)),
        "outlier": np.where(np.arange(500)[:, None] == 7, 1e10, random.standard_normal((500, 80))),
        "tiny": 1e-20 * random.standard_normal((500, 80)),
    }[release]
    x = torch.tensor(z, dtype=torch.float32)
    targets = torch.eye(2)[torch.arange(500) % 2]
    assert np.isfinite(predict_shares(x, x, targets, random, is_image=is_image)).all()
