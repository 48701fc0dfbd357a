"""A target model and a search algorithm of an installed package work in a study."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import privnets
from privnets.membership.config import MODELS
from privnets.testing import check_experiment
from sweeps.planning.plan import make_plan
from sweeps.study.loader import load
from sweeps.study.search import SEARCHES
from sweeps.testing import check_search

NAMES = {MODELS: "packaged_logistic", SEARCHES: "middle_out"}
ENTRY_POINTS = """
[privnets.models]
packaged_logistic = packaged_extensions:PackagedLogistic

[sweeps.searches]
middle_out = packaged_extensions:MiddleOut
"""
CODE = '''
from privnets.membership.models import Logistic
from sweeps.study.search import Search


class PackagedLogistic(Logistic):
    """Logistic regression of a package."""

    name = "packaged_logistic"


class MiddleOut(Search):
    """Points on the diagonal of the space, from the middle outwards."""

    name = "middle_out"
    _proposed = 0

    def ask(self, count):
        numbers = range(self._proposed, self._proposed + count)
        self._proposed += count
        shares = [0.5 + (-1) ** i * (i + 1) // 2 / 2 / (self.spec.num_points + 1) for i in numbers]
        return [{name: axis.at(u) for name, axis in self.space.items()} for u in shares]
'''
STUDY = {
    "name": "packaged",
    "experiment": "membership",
    "fixed": {
        "dataset": "digits",
        "model": "packaged_logistic",
        "features": 4,
        "draws": 32,
        "records": 8,
        "train_size": 20,
    },
    "space": {"weight_decay": {"loguniform": [0.01, 1.0]}},
    "search": {"algorithm": "middle_out", "num_points": 2},
}


@pytest.fixture
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    about = tmp_path / "packaged_extensions-1.0.dist-info"
    about.mkdir()
    metadata = "Metadata-Version: 2.1\nName: packaged_extensions\nVersion: 1.0\n"
    (about / "METADATA").write_text(metadata)
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "packaged_extensions.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("packaged_extensions", None)
    for registry, name in NAMES.items():
        registry._loaded.pop(name, None)


@pytest.mark.usefixtures("_package")
def test_a_study_uses_a_model_and_a_search_of_a_package():
    plan = make_plan(load(STUDY))
    decays = sorted(point.config.weight_decay for point in plan.points)
    assert len(decays) == 2
    assert 0.01 < decays[0] < decays[1] < 1
    check_experiment(privnets.experiment("membership"), [p.config for p in plan.points])
    check_search("middle_out")


@pytest.mark.parametrize("name", SEARCHES.names())
def test_every_search_passes_the_checks_of_packages(name):
    check_search(name)
