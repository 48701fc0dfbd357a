"""The toy sweep with stock Ray Tune, one configuration per trial, as `end_to_end` runs it.

`main(how, uri, folder, points, steps)`, where `how` is one of

- `callback`: a report every 20 steps through Ray Tune's own MLflow callback, all at defaults: a
  process per trial, Tune's CSV, JSON and TensorBoard files;
- `once`: the same with one report per trial, of metrics and the last value of each curve;
- `reused`: as an expert would set it up: actors are used again, torch and MLflow stay loaded in
  them, Tune writes no files of its own, and each trial logs itself by one `log_batch`, curves
  included, beside Tune's loop;
- `reused-fused`: the same, and the game's inference networks share one fused optimiser;
- `full`: as `once`, but a trial is this platform's own experiment with all its attackers, on one
  configuration.

All have two logical CPUs, and one thread in each of two trials at once. Ray is started as this
platform starts it: on loopback alone, without a dashboard.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from mlflow import MlflowClient
from ray import tune
from ray.air.integrations.mlflow import MLflowLoggerCallback

import cluster
from benchmarks import recorded
from benchmarks.plain_toy import Settings, play
from benchmarks.toy import DEPENDENCE, axes, fields, games
from privnets.config import nest


def often(parameters: dict[str, Any]) -> None:
    """A trial that reports as it goes."""
    torch.set_num_threads(1)
    play(Settings(**parameters), lambda step, values: tune.report(values))


def once(parameters: dict[str, Any]) -> None:
    """A trial that reports at its end."""
    torch.set_num_threads(1)
    last: dict[str, float] = {}
    play(Settings(**parameters), lambda step, values: last.update(values))
    tune.report(last)


def full(parameters: dict[str, Any]) -> None:
    """A trial of this platform's experiment, attackers and all."""
    import privnets

    torch.set_num_threads(1)
    experiment = privnets.experiment("adversarial")
    (point,) = experiment.run([experiment.Config(**nest(parameters))])
    (replicate,) = point.replicates
    curves = {f"curve/{name}": curve.values[-1] for name, curve in replicate.curves.items()}
    tune.report({**replicate.metrics, **curves})


class Logged(tune.Trainable):
    """A trial of one step that logs itself; its process serves the next trial too."""

    def setup(self, config: dict[str, Any], *, uri: str, experiment_id: str) -> None:
        """Take the first configuration."""
        torch.set_num_threads(1)
        self._client, self._experiment_id = MlflowClient(uri), experiment_id
        self._parameters = config

    def step(self) -> dict[str, Any]:
        """Play, and log everything at once."""
        told: dict[int, Mapping[str, float]] = {}
        play(Settings(**self._parameters), told.__setitem__)
        recorded.log(self._client, self._experiment_id, self._parameters, told)
        return {"done": True, **told[max(told)]}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next configuration."""
        self._parameters = new_config
        return True


def main(how: str, uri: str, folder: str, points: str, steps: str) -> None:
    """Run every point and have it in the store at `uri`; Tune's files go to `folder`."""
    space = _space(int(points), int(steps), how)
    config = tune.RunConfig(name="toy", storage_path=str(Path(folder) / "tune"), verbose=0)
    if how.startswith("reused"):
        os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
        experiment_id = recorded.experiment(MlflowClient(uri))
        trainable = tune.with_parameters(Logged, uri=uri, experiment_id=experiment_id)
        tuning = tune.TuneConfig(reuse_actors=True)
        # There is nothing to come back to in a trial of one step.
        config.checkpoint_config = tune.CheckpointConfig(checkpoint_at_end=False)
    else:
        callback = MLflowLoggerCallback(tracking_uri=uri, experiment_name=recorded.EXPERIMENT)
        config.callbacks = [callback]
        trainable = {"callback": often, "once": once, "full": full}[how]
        tuning = tune.TuneConfig()
    with cluster.connect(cpus=2):
        tuner = tune.Tuner(trainable, param_space=space, tune_config=tuning, run_config=config)
        if tuner.fit().errors:
            raise RuntimeError("a trial failed")


def _space(points: int, steps: int, how: str) -> dict[str, Any]:
    tradeoffs, dependences = axes(points)
    space: dict[str, Any] = dict(games(points, steps)[0])
    if how == "full":
        space = dict(fields(steps, "attackers"))
    elif how == "reused-fused":
        space["fused"] = True
    space["tradeoff"] = tune.grid_search(list(tradeoffs))
    name = DEPENDENCE if how == "full" else "dependence"
    space[name] = tune.grid_search(list(dependences))
    return space
