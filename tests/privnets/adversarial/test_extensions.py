"""Problems and attackers of other packages: found by entry points, and used like the built-in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import privnets
from privnets.adversarial.attackers import ATTACKERS
from privnets.adversarial.problems import PROBLEMS
from privnets.testing import check_problem
from tests.support import requires_data

EXPERIMENT = privnets.experiment("adversarial")
ENTRY_POINTS = """
[privnets.problems]
coins = added_release:Coins
broken = absent_package:Broken

[privnets.attackers]
coin_reader = added_release:CoinReader
coins.own_reader = added_release:OwnReader
"""
CODE = '''
import numpy as np

from privnets.adversarial.attackers.attacker import Posterior, ReleaseAttacker
from privnets.adversarial.problem import (
    Problem, ProblemSpec, RecordArrays, Splits, SplitSizes, stratified_split,
)


class Coins(Problem):
    """Vectors whose first number is the secret and whose second is useful."""

    spec = ProblemSpec(
        name="coins", secret_classes=2, utility_classes=2, releasers=("mlp",),
        defaults={"releaser_width": 8, "adversary_width": 8},
    )

    def whole_sizes(self, config):
        return SplitSizes(200, 200, 200, 200, (3,))

    def fingerprint(self, config):
        return "coins"

    def load_records(self, configs):
        random = np.random.default_rng(0)
        secret, utility = random.integers(0, 2, (2, 800))
        x = np.stack([secret, utility, random.normal(size=800)], 1).astype(np.float32)
        splits = [Splits(*stratified_split(secret, (1, 1, 1, 1), c.seed)) for c in configs]
        return RecordArrays(x, secret, utility), splits


class CoinReader(ReleaseAttacker):
    name = "coin_reader"

    def fit(self, view, seed):
        def log_p(part):
            share = 1 / (1 + np.exp(-part.x[:, :1].astype(float)))
            return np.log(np.hstack([1 - share, share]))

        parts = (view.tables.validation, view.tables.test)
        return Posterior(self.metric_name(view), *map(log_p, parts))


class OwnReader(CoinReader):
    name = "coins.own_reader"
'''
SMALL = {"steps": 10, "batch_size": 16, "panel": "quick"}


@pytest.fixture
def _added_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    about = tmp_path / "added_release-1.0.dist-info"
    about.mkdir()
    metadata = "Metadata-Version: 2.1\nName: added_release\nVersion: 1.0\n"
    (about / "METADATA").write_text(metadata)
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "added_release.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("added_release", None)
    for registry in (PROBLEMS, ATTACKERS):
        for name in ("coins", "coin_reader", "coins.own_reader"):
            registry._loaded.pop(name, None)


@pytest.mark.usefixtures("_added_package", "small_panel")
def test_an_added_problem_is_trained_and_attacked_like_the_others():
    config = EXPERIMENT.Config.model_validate({"problem": "coins", **SMALL})
    assert config.releaser_width == 8
    check_problem(PROBLEMS.get("coins"))
    (point,) = EXPERIMENT.run([config])
    assert point.status == "finished"
    assert tuple(sorted(point.replicates[0].metrics)) == EXPERIMENT.metric_keys(config)
    assert point.metrics["baseline/attacker_balanced_accuracy"] == 1
    for name in ("coin_reader", "own_reader"):
        assert point.metrics[f"privacy/attacker/{name}/balanced_accuracy"] > 0


@pytest.mark.usefixtures("_added_package")
def test_an_added_attacker_joins_every_panel_and_changes_the_points_identity():
    config = EXPERIMENT.Config.model_validate({"problem": "digits"})
    keys = EXPERIMENT.metric_keys(config)
    assert "privacy/attacker/coin_reader/auc" in keys
    assert "privacy/attacker/own_reader/auc" not in keys
    assert ATTACKERS.added_names() == ("coin_reader", "coins.own_reader")
    assert "coin_reader" in EXPERIMENT.fingerprint(config)


def test_without_added_packages_the_fingerprint_is_that_of_the_records():
    config = EXPERIMENT.Config.model_validate({"problem": "digits"})
    assert EXPERIMENT.fingerprint(config) == PROBLEMS.get("digits").fingerprint(config)


@pytest.mark.usefixtures("_added_package")
def test_a_problem_that_cannot_be_imported_is_a_validation_error():
    with pytest.raises(ValueError, match="cannot load problem 'broken'"):
        EXPERIMENT.Config.model_validate({"problem": "broken"})


@pytest.mark.parametrize(
    "name",
    [
        "gaussian-mixture",
        "digits",
        pytest.param("amnist", marks=requires_data("mnist")),
        pytest.param("eco", marks=requires_data("eco")),
    ],
)
def test_packaged_problems_pass_the_checks_of_packages(name):
    check_problem(PROBLEMS.get(name))
