"""A head and a node that differ as tests of the doctor and of data on nodes need it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from ray_head import Head
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


@pytest.fixture(scope="session")
def pair_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair")
    for name in ("shared", "split", "data", "extra", "home"):
        (folder / name).mkdir()
    return folder


@pytest.fixture(scope="session")
def pair(cluster_nodes: ExitStack, head: Head, head_folder: Path, pair_folder: Path) -> Pair:
    own = {
        "PRIVNETS_DATA": str(pair_folder / "data"),
        "PYTHONPATH": f"{pair_folder / 'extra'}:{Path(__file__).parents[3]}",
        "HOME": str(pair_folder / "home"),
        "WHO": "the other",
    }
    node = cluster_nodes.enter_context(ray_node(head, own, pair_folder / "split"))
    return Pair(head, node, pair_folder, (head_folder / "data", pair_folder / "data"))


@pytest.fixture
def study(tmp_path: Path) -> str:
    path = tmp_path / "places.yaml"
    path.write_text(STUDY)
    return str(path)
