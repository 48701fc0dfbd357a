"""The Tune backend: Tune's private parts, and what it leaves behind."""

from __future__ import annotations

import inspect
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ray import tune
from ray.air._internal import usage
from ray.tune.execution import class_cache
from ray.tune.execution.tune_controller import TuneController
from ray.tune.trainable.metadata import _TrainingRunMetadata
from small_sweeps import small_plan

from sweeps.engine.executor import execute

if TYPE_CHECKING:
    from cluster.connection import Connection


def test_tune_still_has_the_private_parts_that_the_backend_uses() -> None:
    """An upgrade of Ray that removes one needs a new look at `sweeps.engine.tune_backend`."""
    source = inspect.getsource(TuneController)
    collections = ("_actor_cache", "_actor_to_trial", "_trial_to_actor", "_stopping_actors")
    trials = ("_pending_trials", "_pending_trials_list", "_running_trials")
    sharing = ("_reuse_actors", "_unstage_trial_with_resources", "_cleanup_cached_actors")
    for name in ("_actor_manager", *collections, *trials, *sharing):
        assert f"self.{name}" in source
    metadata = _TrainingRunMetadata()
    assert {"metric_analysis", "metric_n_steps"} <= vars(metadata).keys()
    assert class_cache.DEFAULT_ENV_VARS.keys() == {"PL_DISABLE_FORK"}
    assert "mlflow" in inspect.getsource(usage).lower()
    assert "DEFAULT_ENV_VARS" in inspect.getsource(class_cache._ActorClassCache)


def test_a_sweep_leaves_no_patch_and_no_history_behind(
    local_ray: Connection, tracking_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Histories of metrics would be most of the memory of a long sweep's driver."""
    analyses: list[tune.ExperimentAnalysis] = []
    run = tune.run

    def recording_run(*arguments: Any, **options: Any) -> None:
        assert class_cache.DEFAULT_ENV_VARS == {}
        analyses.append(run(*arguments, **options))

    def process_state() -> tuple[object, ...]:
        level = logging.getLogger("ray.tune").level
        variables = {k: v for k, v in os.environ.items() if k.startswith("TUNE_")}
        return variables, level, dict(class_cache.DEFAULT_ENV_VARS), usage.tag_callbacks

    monkeypatch.setattr(tune, "run", recording_run)
    before = process_state()
    overrides = ("replicates=1", "space.weight_decay={grid: [0.1, 1.0]}", "resources.concurrency=1")
    plan = small_plan(tmp_path, *overrides)
    folder = str(tmp_path)
    outcome = execute(plan, sweep="light", storage=folder, tracking_uri=tracking_uri)
    assert outcome.exit_code == 0, outcome.problems
    assert process_state() == before
    trials = [trial for analysis in analyses for trial in analysis.trials or ()]
    assert len(trials) == 2
    assert not any(trial.run_metadata.metric_n_steps for trial in trials)
    assert not any(trial.run_metadata.metric_analysis for trial in trials)
