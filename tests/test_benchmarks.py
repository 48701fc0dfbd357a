"""Contestants of benchmarks do the same work."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from mlflow import MlflowClient
from stores import new_store

import privnets
from benchmarks import recorded, toy
from benchmarks.plain_toy import Settings, play

STEPS = 60
SEEDS = range(8)


@pytest.mark.parametrize(
    ("tradeoff", "dependence"), [pytest.param(0.2, 0.0, marks=pytest.mark.slow), (0.7, 0.4)]
)
def test_plain_game_ends_where_the_platforms_does(tradeoff: float, dependence: float) -> None:
    """Means over seeds differ by less than four standard errors, metrics and curves alike."""
    torch.set_num_threads(1)
    theirs = [_plain(tradeoff, dependence, seed) for seed in SEEDS]
    ours = _platform(tradeoff, dependence)
    assert set(ours[0]) == set(theirs[0])
    for key in ours[0]:
        mine, plain = ([one[key] for one in side] for side in (ours, theirs))
        error = math.hypot(_standard_error(mine), _standard_error(plain))
        assert statistics.mean(mine) == pytest.approx(
            statistics.mean(plain), abs=4 * error + 1e-9
        ), key


def test_shared_fused_optimiser_changes_nothing() -> None:
    """Adam updates every parameter separately, so sharing an optimiser changes nothing."""
    (game, *_) = toy.games(4, 40)
    ordinary, fused = ({}, {})
    play(Settings(**game), ordinary.__setitem__)
    play(Settings(**game, fused=True), fused.__setitem__)
    assert list(ordinary) == list(fused) == [20, 40]
    for step, values in ordinary.items():
        assert values == pytest.approx(fused[step], rel=1e-3, abs=1e-4)


def test_whole_sweep_is_found_complete_and_a_part_is_not(tmp_path: Path) -> None:
    """A run, a metric or a curve's value that is missing is noticed."""
    uri = new_store(tmp_path)
    games, client = toy.games(2, 40), MlflowClient(uri)
    home = recorded.experiment(client)
    values = {f"curve/{name}": 0.5 for name in toy.CURVES}
    whole = {20: values, 40: {**values, "exact/loss": 0.1}}
    recorded.log(client, home, games[0], whole)
    with pytest.raises(ValueError, match="1 runs"):
        recorded.check(uri, games, ["exact/loss"])
    recorded.log(client, home, games[1], whole)
    held = recorded.check(uri, games, ["exact/loss"])
    assert held == recorded.Holdings(2, len(toy.CURVES) + 1, 2 * len(toy.CURVES))
    with pytest.raises(ValueError, match="lacks"):
        recorded.check(uri, games, ["bound/gap"])
    with pytest.raises(ValueError, match="2 values for 1 steps"):
        recorded.check(uri, games, ["exact/loss"], last_only=True)


def _plain(tradeoff: float, dependence: float, seed: int) -> dict[str, float]:
    (game, *_) = toy.games(4, STEPS)
    settings = Settings(**{**game, "tradeoff": tradeoff, "dependence": dependence, "seed": seed})
    told: dict[int, dict[str, float]] = {}
    play(settings, told.__setitem__)
    return told[STEPS]


def _platform(tradeoff: float, dependence: float) -> Sequence[dict[str, float]]:
    experiment = privnets.experiment("adversarial")
    fields = {**toy.fields(STEPS, "exact"), "tradeoff": tradeoff}
    fields["problem"] = {"gaussian-mixture": {"dependence": dependence}}
    points = experiment.run([experiment.Config(**fields, seed=seed) for seed in SEEDS])
    replicates = [point.replicates[0] for point in points]
    # Flags judge a game; they are not part of it.
    metrics = [{k: v for k, v in r.metrics.items() if k[:5] != "flag/"} for r in replicates]
    return [
        {**own, **{f"curve/{n}": c.values[-1] for n, c in r.curves.items()}}
        for own, r in zip(metrics, replicates, strict=True)
    ]


def _standard_error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))
