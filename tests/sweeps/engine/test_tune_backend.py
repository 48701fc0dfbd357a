"""The Tune backend: Tune's private parts, and what it leaves behind."""

from __future__ import annotations

import inspect
import logging
import os

from ray import tune
from ray.air._internal import usage
from ray.tune.execution import class_cache
from ray.tune.execution.tune_controller import TuneController
from ray.tune.trainable.metadata import _TrainingRunMetadata

from sweeps.engine.executor import RunOutcome


def tune_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("TUNE_")}


SETTINGS = tune_settings()  # at collection, so before any sweep


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
    uninterrupted: RunOutcome, tune_runs: list[tune.ExperimentAnalysis]
) -> None:
    """Histories of metrics would be most of the memory of a long sweep's driver."""
    assert class_cache.DEFAULT_ENV_VARS != {}
    assert usage.tag_callbacks.__module__ == usage.__name__
    assert tune_settings() == SETTINGS
    assert logging.getLogger("ray.tune").level < logging.CRITICAL
    (analysis,) = tune_runs
    trials = analysis.trials or ()
    assert len(trials) == len(uninterrupted.result.replicates)
    assert not any(trial.run_metadata.metric_n_steps for trial in trials)
    assert not any(trial.run_metadata.metric_analysis for trial in trials)
