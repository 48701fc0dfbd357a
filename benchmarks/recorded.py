"""A toy sweep in MLflow: logging a game in one batch, and proof that a store holds all games."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run

from benchmarks.toy import CURVES, DEPENDENCE, EVERY, Value
from tracking.run_record import TABLE_FILE

EXPERIMENT = "toy"

Reports = Mapping[int, Mapping[str, float]]


@dataclass(frozen=True)
class Holdings:
    """Content of a store for one sweep.

    Attributes:
        runs: Finished ones, one per point.
        metric_keys: Of the run with fewest.
        curve_values: Of each run, all its curves together.
    """

    runs: int
    metric_keys: int
    curve_values: int


def experiment(client: MlflowClient) -> str:
    """Make the experiment whose runs a contestant logs by hand; gives its id."""
    return str(client.create_experiment(EXPERIMENT))


def log(client: MlflowClient, experiment_id: str, game: Mapping[str, Value], told: Reports) -> None:
    """Log one game as a run, all its values in one batch.

    Args:
        client: Of the store.
        experiment_id: Where the run belongs.
        game: Parameters.
        reports: Step to what was reported at it: curves all along, metrics at the last step alone.
    """
    run = client.create_run(experiment_id)
    now = int(time.time() * 1000)
    metrics = [Metric(k, v, now, step) for step, vs in told.items() for k, v in vs.items()]
    client.log_batch(run.info.run_id, metrics, [Param(k, str(v)) for k, v in game.items()])
    client.set_terminated(run.info.run_id)


def check(
    uri: str,
    games: Sequence[Mapping[str, Value]],
    metrics: Collection[str],
    *,
    last_only: bool = False,
) -> Holdings:
    """See that a store holds every game, finished, with all metrics and whole curves.

    Args:
        uri: The store, with this sweep in it and no other.
        games: All of them.
        metrics: Keys that every run is to have, beside `toy.CURVES`.
        last_only: Whether a curve's last value is all of it.

    Raises:
        ValueError: If anything is missing.
    """
    client = MlflowClient(uri)
    runs = [run for run in _runs(client) if "tradeoff" in run.data.params]
    found = sorted(_place(run.data.params) for run in runs)
    if found != sorted(_place(game) for game in games):
        raise ValueError(f"{len(found)} runs are recorded, and not those of {len(games)} games")
    steps = 1 if last_only else int(games[0]["steps"]) // EVERY
    for run in runs:
        _check_run(client, run, metrics, steps)
    return Holdings(len(runs), min(len(r.data.metrics) for r in runs), len(CURVES) * steps)


def _check_run(client: MlflowClient, run: Run, metrics: Collection[str], steps: int) -> None:
    if run.info.status != "FINISHED":
        raise ValueError(f"a run is {run.info.status}")
    curves = [f"curve/{name}" for name in CURVES]
    stored = {*run.data.metrics, *_tabulated_metrics(client, run.info.run_id)}
    if missing := {*metrics, *curves} - stored:
        raise ValueError(f"a run lacks {sorted(missing)}")
    for name in curves:
        values = client.get_metric_history(run.info.run_id, name)
        if len(values) != steps or len({value.step for value in values}) != steps:
            raise ValueError(f"{name} has {len(values)} values for {steps} steps")


def _tabulated_metrics(client: MlflowClient, run_id: str) -> list[str]:
    """Metrics in a run's table, which runs logged by hand lack."""
    if TABLE_FILE not in {file.path for file in client.list_artifacts(run_id)}:
        return []
    lines = Path(client.download_artifacts(run_id, TABLE_FILE)).read_text().splitlines()
    return [line.partition(",")[0] for line in lines[1:]]


def _runs(client: MlflowClient) -> list[Run]:
    homes = [home.experiment_id for home in client.search_experiments()]
    found, token = [], None
    while True:
        page = client.search_runs(homes, page_token=token)
        found += list(page)
        token = page.token
        if not token:
            return found


def _place(game: Mapping[str, object]) -> tuple[float, float]:
    dependence = game.get("dependence", game.get(DEPENDENCE))
    return float(str(game["tradeoff"])), float(str(dependence))
