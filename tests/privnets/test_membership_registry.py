"""Attacks that installed packages add, and properties that every registered attack has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from privnets.membership.config import ATTACKS
from privnets.testing import check_attack
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
assert "dp_accounting" not in sys.modules  # It loads most of scipy, for private models alone.
"""


def test_a_package_adds_an_attack_with_one_class_and_one_entry_point(tmp_path: Path) -> None:
    install_package(tmp_path, "coin = coin_attack:Coin", _CODE, "coin_attack", "privnets.attacks")
    command = [sys.executable, "-c", _RUN, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert 0 <= float(ran.stdout) <= 1


@pytest.mark.parametrize("name", ATTACKS.names())
def test_every_attack_finds_strong_leaks_and_none_where_there_is_none(name: str) -> None:
    check_attack(ATTACKS.get(name))
