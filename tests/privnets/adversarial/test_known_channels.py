"""The panel on samples of channels whose Bayes error is known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from privnets.adversarial.attackers import PROFILES
from privnets.adversarial.attackers.classical import (
    BoostedTrees,
    LogisticRegression,
    NearestNeighbours,
)
from privnets.adversarial.attackers.panel import Panel, score_releases
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evidence import AttackView, Evidence
from privnets.networks.mlp import Perceptron

ATTACKERS = {kind.name: kind() for kind in (BoostedTrees, NearestNeighbours, LogisticRegression)}
SIZES = (6_000, 2_000, 8_000)
OUTPUTS = np.arange(-20, 60)
"""Outputs of a geometric channel; the others have a probability below 1e-4."""


def geometric_channel(secrets: int, distance: int, rate: float) -> np.ndarray:
    """P(z|s), proportional to exp(-rate |z - distance s|); shape [secrets, outputs]."""
    table = np.exp(-rate * np.abs(OUTPUTS - distance * np.arange(secrets)[:, None]))
    return table / table.sum(1, keepdims=True)


def _sample(channel: np.ndarray, coordinates: int, seed: int) -> Evidence:
    """Uniform secrets; each coordinate of a release has its own digit of the secret in base S."""
    random = np.random.default_rng(seed)
    secrets = len(channel)

    def exposure(count: int) -> AttackView:
        digits = random.integers(0, secrets, (count, coordinates))
        cumulative = channel.cumsum(1)[digits]
        place = (random.random((count, coordinates, 1)) > cumulative).sum(2)
        secret = digits @ secrets ** np.arange(coordinates)
        z = OUTPUTS[np.minimum(place, len(OUTPUTS) - 1)]
        return AttackView(torch.tensor(z, dtype=torch.float32), torch.tensor(secret))

    return Evidence(*map(exposure, SIZES))


@pytest.mark.parametrize(
    ("secrets", "distance", "rate", "coordinates"),
    [(2, 3, 0.5, 1), pytest.param(8, 4, 0.4, 1, marks=pytest.mark.slow), (3, 3, 0.5, 2)],
)
def test_the_panel_comes_near_the_bayes_error_of_a_geometric_channel(
    secrets: int, distance: int, rate: float, coordinates: int
) -> None:
    channel = geometric_channel(secrets, distance, rate)
    bayes = (channel.max(0).sum() / secrets) ** coordinates
    classes = secrets**coordinates
    networks = {"network": Perceptron((coordinates, 64, 64, classes))}
    panel = Panel(networks, ATTACKERS, PROFILES["full"])
    config, evidence = AdversarialConfig(problem="digits"), _sample(channel, coordinates, seed=1)
    (result,) = (r for r in score_releases([evidence], panel, [config], [None]) if r is not None)
    key = "privacy/attacker_balanced_accuracy"
    assert bayes - 0.025 < result.metrics[key] < bayes + 3 * result.standard_errors[key]
    assert result.metrics["flag/attacker_not_converged"] == 0


def test_the_bayes_error_is_that_of_the_best_guess_for_every_output():
    """A slow check of the closed form: the best of all guesses for each pair of outputs."""
    channel = geometric_channel(3, 3, 0.5)
    total = 0.0
    for first, second in itertools.product(range(len(OUTPUTS)), repeat=2):
        guesses = np.outer(channel[:, first], channel[:, second]) / 9
        total += guesses.max()
    assert total == pytest.approx((channel.max(0).sum() / 3) ** 2)
