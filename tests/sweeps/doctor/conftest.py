"""A head and a node that differ as tests of the doctor and of data on nodes need it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ray_head import Head, ray_head
from ray_node import ray_node
from ray_pair import Pair

STUDY = """
name: places
experiment: membership
fixed: {dataset: location30, model: logistic, train_size: 60, features: 5}
space: {weight_decay: {grid: [0.1, 1.0]}}
replicates: 2
resources: {cpus: 1}
"""


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home without token or credentials; the environment has none either."""
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture(scope="package")
def pair_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair")
    for name in ("shared", "split", "head-data", "node-data", "extra", "home", "head-home"):
        (folder / name).mkdir()
    return folder


@pytest.fixture(scope="package")
def head(pair_folder: Path) -> Iterator[Head]:
    own = {
        "PRIVNETS_DATA": str(pair_folder / "head-data"),
        "HOME": str(pair_folder / "head-home"),
        "WHO": "the head",
    }
    with ray_head(**own) as started:
        yield started


@pytest.fixture(scope="package")
def pair(head: Head, pair_folder: Path) -> Iterator[Pair]:
    own = {
        "PRIVNETS_DATA": str(pair_folder / "node-data"),
        "PYTHONPATH": f"{pair_folder / 'extra'}:{Path(__file__).parents[3]}",
        "HOME": str(pair_folder / "home"),
        "WHO": "the other",
    }
    with ray_node(head, own, pair_folder / "split") as node:
        yield Pair(head, node, pair_folder)


@pytest.fixture
def study(tmp_path: Path) -> str:
    path = tmp_path / "places.yaml"
    path.write_text(STUDY)
    return str(path)
