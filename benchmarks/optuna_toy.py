"""The toy sweep with Optuna alone, one configuration after the other in one process.

A study in memory with a grid sampler; each trial logs itself by one `log_batch`, curves included,
straight into the store.
"""

from __future__ import annotations

from collections.abc import Mapping

import optuna
import torch
from mlflow import MlflowClient

from benchmarks import recorded
from benchmarks.plain_toy import Settings, play
from benchmarks.toy import axes, games


def main(uri: str, points: str, steps: str, threads: str) -> None:
    """Runs every point on a number of threads, and records it in the store at `uri`."""
    torch.set_num_threads(int(threads))
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    tradeoffs, dependences = axes(int(points))
    fixed = games(int(points), int(steps))[0]
    client = MlflowClient(uri)
    experiment_id = recorded.experiment(client)

    def objective(trial: optuna.Trial) -> tuple[float, float]:
        chosen = {
            "tradeoff": trial.suggest_float("tradeoff", 0, 1),
            "dependence": trial.suggest_float("dependence", 0, 2),
        }
        told: dict[int, Mapping[str, float]] = {}
        play(Settings(**{**fixed, **chosen}), told.__setitem__)  # type: ignore[arg-type]
        recorded.log(client, experiment_id, {**fixed, **chosen}, told)
        last = told[max(told)]
        return last["exact/leakage"], last["exact/censored"]

    grid = {"tradeoff": list(tradeoffs), "dependence": list(dependences)}
    sampler = optuna.samplers.GridSampler(grid)
    study = optuna.create_study(sampler=sampler, directions=["minimize", "minimize"])
    study.optimize(objective, n_trials=int(points))
