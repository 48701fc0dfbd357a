"""Attacks that installed packages add, and properties that every registered attack has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from privnets.membership.attacks import Trials
from privnets.membership.config import ATTACKS
from privnets.membership.scores import score_guesses
from tests.privnets.test_registry import install_package

_CODE = """
import torch
from privnets.membership.attacks import Attack, Guesses

class Coin(Attack):
    name = "coin"
    bounds = ("bound/advantage",)

    def guess(self, trials):
        score = torch.linspace(0, 1, trials.signal.numel()).view_as(trials.signal).double()
        return Guesses(score, score > 0.5)
"""

_RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import privnets

experiment = privnets.experiment("membership")
config = experiment.Config(
    dataset="diabetes", model="linear", train_size=20, features=3, records=8, draws=32
)
(point,) = experiment.run([config])
assert "privacy/attack/coin/auc" in experiment.objectives
assert set(point.replicates[0].metrics) == set(experiment.metric_keys(config))
print(point.metrics["privacy/attack/coin/auc"])
"""


def _trials(shift: float) -> Trials:
    random = np.random.default_rng(0)
    signal = torch.from_numpy(random.standard_normal((60, 80)))
    column = torch.arange(80)
    member = (column >= 40).expand_as(signal)
    signal = torch.where(member, signal + shift, signal)
    return Trials(
        member=member,
        fold=(column % 40 >= 20).long(),
        signal=signal,
        error=torch.special.ndtr(-signal),
        loss=torch.nn.functional.softplus(-signal),
        train_loss=torch.ones_like(signal),
        two_sided=False,
        log_ratio=signal * shift - shift**2 / 2,
    )


def test_a_package_adds_an_attack_with_one_class_and_one_entry_point(tmp_path: Path) -> None:
    install_package(tmp_path, "coin = coin_attack:Coin", _CODE, "coin_attack", "privnets.attacks")
    command = [sys.executable, "-c", _RUN, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert 0 <= float(ran.stdout) <= 1


@pytest.mark.parametrize("name", ATTACKS.names())
def test_every_attack_finds_strong_leaks_and_none_where_there_is_none(name: str) -> None:
    attack = ATTACKS.get(name)
    advantages = []
    for shift in (0.0, 3.0):
        trials = _trials(shift)
        assert attack.why_unavailable(trials) is None
        guesses = attack.guess(trials)
        assert guesses.score.shape == guesses.decision.shape == trials.signal.shape
        score = score_guesses(guesses, trials.member, shared_models=False)
        advantages.append(score.advantage)
        if shift == 0:
            assert abs(score.advantage) < 4 * score.advantage_error + 1e-12
        else:
            assert score.auc > 0.9
    assert advantages[1] > 0.3
