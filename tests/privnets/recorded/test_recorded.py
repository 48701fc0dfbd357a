"""Replay of recorded points."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import privnets
from privnets.data import UserFormError
from sweeps.planning.plan import make_plan
from sweeps.study.loader import load

NOISE = 0.02


def curve(train_size: float, model: str) -> float:
    return 0.5 - 0.1 * math.log10(train_size) + 0.1 * (model == "mlp")


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    random = np.random.default_rng(0)
    rows = [
        {
            "config/train_size": size,
            "config/model": model,
            "status": "failed" if (size, model) == (1000, "mlp") else "finished",
            "privacy/membership_advantage": curve(size, model) + NOISE * random.standard_normal(),
            "utility/test_accuracy": 0.5 + size / 4000,
            "seconds": 1.0,
        }
        for size in (10, 20, 50, 100, 200, 500, 1000)
        for model in ("linear", "mlp")
        for _ in range(4)
    ]
    path = tmp_path_factory.mktemp("recorded") / "points.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def run(table: Path, mode: str, size: float, model: str = "linear", seeds: int = 1):
    experiment = privnets.experiment("recorded")
    configs = [
        experiment.Config(
            table=str(table), mode=mode, knobs={"train_size": size, "model": model}, seed=seed
        )
        for seed in range(seeds)
    ]
    return [point.replicates[0] for point in experiment.run(configs)]


def test_the_surrogate_lies_on_the_curve_between_points_and_has_the_noise_of_a_seed(table):
    replicates = run(table, "surrogate", 70.0, seeds=200)
    values = [r.metrics["privacy/membership_advantage"] for r in replicates]
    assert np.mean(values) == pytest.approx(curve(70, "linear"), abs=0.02)
    assert np.std(values) == pytest.approx(NOISE, rel=0.4)


def test_the_nearest_point_is_one_of_its_replicates(table):
    frame = pd.read_csv(table)
    rows = frame[(frame["config/train_size"] == 50) & (frame["config/model"] == "mlp")]
    values = {
        r.metrics["privacy/membership_advantage"] for r in run(table, "nearest", 60, "mlp", 30)
    }
    assert values == set(rows["privacy/membership_advantage"])


def test_results_depend_on_the_configuration_and_the_seed_alone(table):
    first, second, third = run(table, "surrogate", 30, seeds=3)
    assert first.metrics == run(table, "surrogate", 30)[0].metrics
    assert len({tuple(r.metrics.values()) for r in (first, second, third)}) == 3


def test_means_over_seeds_have_the_noise_of_one_seed(table, tmp_path):
    replicates = pd.read_csv(table)
    knobs = ["config/train_size", "config/model", "status"]
    metrics = ["privacy/membership_advantage", "utility/test_accuracy"]
    groups = replicates.groupby(knobs)[metrics]
    points = groups.mean().join(groups.std().add_suffix(".std")).reset_index()
    points.to_parquet(tmp_path / "points.parquet")
    replicates = run(tmp_path / "points.parquet", "surrogate", 70.0, seeds=200)
    values = [r.metrics["privacy/membership_advantage"] for r in replicates]
    assert np.std(values) == pytest.approx(NOISE, rel=0.4)


def test_training_fails_where_the_nearest_point_failed(table):
    assert run(table, "surrogate", 1000, "mlp")[0].failure
    assert run(table, "surrogate", 1000, "linear")[0].succeeded


def test_a_study_sweeps_the_knobs_of_a_table(table):
    study = load(
        {
            "name": "replay",
            "experiment": "recorded",
            "fixed": {"table": str(table)},
            "space": {
                "knobs.train_size": {"loguniform": [10, 1000]},
                "knobs.model": {"choice": ["linear", "mlp"]},
            },
            "search": {"algorithm": "sobol", "num_points": 8},
        }
    )
    plan = make_plan(study)
    assert len(plan.points) == 8
    assert plan.objectives == {
        "privacy/membership_advantage": "min",
        "utility/test_accuracy": "max",
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"knobs": {"width": 3}}, "knobs: got 'width'"),
        ({"table": "absent.csv"}, "table: got .*absent.csv"),
    ],
)
def test_a_missing_file_or_column_is_an_error(table, changes, message):
    experiment = privnets.experiment("recorded")
    raw = {"table": str(table), "knobs": {"train_size": 20}, **changes}
    with pytest.raises(UserFormError, match=message):
        experiment.run([experiment.Config(**raw)])
