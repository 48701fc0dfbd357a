"""The examples below `docs/examples` run, from the data that their own scripts write."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import privnets
from privnets.membership.observations import Universe
from privnets.membership.user_models.module_stacks import StackInTraining, train
from privnets.membership.user_models.module_trials import ModuleSource
from sweeps.analysis.results import open_result
from sweeps.planning.plan import make_plan
from sweeps.study.loader import load

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "docs" / "examples"
NAMES = sorted(path.name for path in EXAMPLES.glob("own-*"))
SMALLER = {
    "own-table": ["fixed.records=8", "fixed.model.params.n_estimators=3"],
    "own-metric": ["fixed.records=40", "fixed.model.params.n_estimators=3"],
    "own-pipeline": ["fixed.records=8"],
    "own-images": ["fixed.problem.size=8", "fixed.steps=3", "fixed.releaser_width=8"],
    "own-fine-tuning": ["fixed.model.training.steps=3", "fixed.records=8"],
    "own-experiment": ["fixed.train_size=50"],
}
POINTS = {"own-fine-tuning": 9, "own-experiment": 6, "own-table": 5}  # 3 for the others


@pytest.fixture(scope="module")
def example(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Study of a copy of an example, beside its data."""
    folder = tmp_path_factory.mktemp("example") / request.param
    shutil.copytree(EXAMPLES / request.param, folder)
    if (folder / "write_data.py").exists():
        subprocess.run([sys.executable, "write_data.py"], cwd=folder, check=True)
    return folder / f"{request.param}.yaml"


@pytest.mark.parametrize("name", NAMES)
def test_an_example_takes_at_most_twenty_lines(name: str) -> None:
    assert len((EXAMPLES / name / f"{name}.yaml").read_text().splitlines()) <= 20


@pytest.mark.parametrize("example", NAMES, indirect=True)
def test_a_point_of_an_example_trains_at_a_small_size(example: Path) -> None:
    plan = make_plan(load(example, SMALLER[example.stem]))
    assert len(plan.points) == POINTS.get(example.stem, 3)
    experiment = privnets.experiment(plan.study.experiment)
    stages = experiment.stages([plan.points[0].config])
    assert next(stages).done > 0
    stages.close()


@pytest.mark.parametrize("example", ["own-fine-tuning"], indirect=True)
def test_fine_tuning_leaves_the_backbone_of_the_file(example: Path) -> None:
    plan = make_plan(load(example, SMALLER[example.stem]))
    weights = torch.load(example.parent / "backbone.pt", weights_only=True)
    for point in plan.points:
        config = point.config
        source = ModuleSource.load(config, Universe.load(config, "cpu"), "cpu")
        stack = StackInTraining.of([source.module(j) for j in range(2)], "cpu")
        x, y = source.x[:20].view(2, 10, -1), source.y[:20].view(2, 10)
        train(stack, [(x, y)] * 3, source.reference.training, lambda steps: None)
        frozen = {name: t for name, t in stack.buffers.items() if name.startswith("backbone")}
        is_frozen = config.model.params["tuned"] != "all"
        assert len(frozen) == (len(weights) if is_frozen else 0)
        for name, tensor in frozen.items():
            expected = weights[name.removeprefix("backbone.")]
            assert torch.equal(tensor, expected.expand_as(tensor))


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("example", NAMES, indirect=True)
def test_an_example_runs_as_a_user_runs_it(example: Path) -> None:
    command = [sys.executable, "-m", "sweeps", "run", example.name, "--name", "own"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=example.parent, env=environment, check=True)
    result = open_result("own", str(example.parent / "sweep-results"))
    assert result.counts["finished"] == POINTS.get(example.stem, 3)
