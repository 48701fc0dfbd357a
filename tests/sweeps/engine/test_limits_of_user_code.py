"""User code that hangs or takes too much memory fails its own pack, with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from privnets.membership.user_models import estimator_training
from sweeps.engine.executor import RunOutcome, execute
from sweeps.planning.plan import make_plan
from sweeps.study.loader import load

if TYPE_CHECKING:
    from cluster.connection import Connection

pytestmark = pytest.mark.ray

STUDY = """
name: greedy
experiment: membership
fixed:
  dataset: {table: people.csv, target: outcome}
  model: {sklearn: "greedy:Model"}
  train_size: 10
  draws: 32
  records: 4
replicates: 1
resources: {pack: 1}
"""
MODEL = """
import time
from pathlib import Path
from uuid import uuid4

import numpy as np
from sklearn.tree import DecisionTreeClassifier


class Model(DecisionTreeClassifier):
    def __init__(self, behaviour="good"):
        super().__init__()
        self.behaviour = behaviour

    def fit(self, x, y):
        Path(__file__).with_name(f"attempt-{uuid4().hex}").touch()
        if self.behaviour == "hangs":
            time.sleep(3600)
        if self.behaviour == "takes an array":
            self.hoard = np.ones((1024, 1024, 1024))
        if self.behaviour == "collects":
            hoard = [bytearray(10_000_000) for _ in range(10_000)]
        return super().fit(x, y)
"""


def _run(folder: Path, tracking_uri: str, *overrides: str) -> RunOutcome:
    frame = pd.DataFrame({"age": range(60), "outcome": ["yes", "no"] * 30})
    frame.to_csv(folder / "people.csv", index=False)
    (folder / "greedy.py").write_text(MODEL)
    (folder / "greedy.yaml").write_text(STUDY)
    plan = make_plan(load(folder / "greedy.yaml", overrides))
    return execute(plan, sweep="greedy", storage=str(folder), tracking_uri=tracking_uri)


def test_a_pack_that_hangs_fails_at_its_time_limit_and_is_not_tried_again(
    local_ray: Connection, tracking_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimator_training, "_TRIAL_SECONDS", 1.0)
    overrides = ("fixed.model.params.behaviour=hangs", "resources.time_limit=4")
    outcome = _run(tmp_path, tracking_uri, *overrides)
    assert outcome.exit_code == 1
    assert list(outcome.failures.values()) == ["time limit of 4 s reached (resources.time_limit)"]
    assert len([*tmp_path.glob("attempt-*")]) <= 2  # one of them in the trial


@pytest.mark.slow
def test_a_point_beyond_its_memory_limit_fails_alone_with_the_line_of_the_code(
    local_ray: Connection, tracking_uri: str, tmp_path: Path
) -> None:
    behaviours = "space={model.params.behaviour: {grid: [good, takes an array, collects]}}"
    outcome = _run(tmp_path, tracking_uri, behaviours, "resources.memory_limit=0.5")
    assert outcome.exit_code == 1
    failures = {
        point.config["model.params.behaviour"]: replicate.failure
        for point in outcome.result.select_points().values()
        for replicate in point.replicates
    }
    assert failures["good"] is None
    for behaviour, line in (("takes an array", 20), ("collects", 22)):
        reason = failures[behaviour] or ""
        assert reason.startswith("memory limit of the process reached: ")
        assert f"greedy.py, line {line})" in reason
    assert len([*tmp_path.glob("attempt-*")]) == 1 + 32 + 2  # the trial, the good point, the others
