"""Attacks that installed packages add, and properties that every registered attack has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from privnets.attacks import ATTACKS
from privnets.testing import check_attack
from tests.privnets.test_registry import install_package

_CODE = """
import numpy as np
from privnets.attacks.base import Attack

class Coin(Attack):
    name, family, paper = "coin", "offline", "no paper"
    bounds = ("bound/advantage",)

    def score(self, view):
        return np.linspace(0, 1, view.signal.size).reshape(view.signal.shape)
"""

_RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
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
random = np.random.default_rng(0)
audit = privnets.audit_signals({"score": random.random((4, 60))}, random.random((4, 60)) < 0.5)
assert audit.table.loc["coin", "family"] == "offline"
"""


def test_a_package_adds_an_attack_to_sweeps_and_audits_with_one_entry_point(tmp_path: Path) -> None:
    install_package(tmp_path, "coin = coin_attack:Coin", _CODE, "coin_attack", "privnets.attacks")
    command = [sys.executable, "-c", _RUN, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert 0 <= float(ran.stdout) <= 1


@pytest.mark.parametrize("name", ATTACKS.names())
def test_every_attack_finds_strong_leaks_and_none_where_there_is_none(name: str) -> None:
    check_attack(ATTACKS.get(name))
