"""Rehearsals: what a slice says of the whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
import torch

import privnets
from privnets.config import ExperimentConfig
from privnets.runtime import extrapolate_seconds

T = TypeVar("T")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def busy(seconds: float) -> None:
    """Keep this processor busy."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_what_begins_every_run_is_told_apart_from_what_each_unit_adds() -> None:
    def work(units: int) -> None:
        busy(0.04 + 0.002 * units)

    found = extrapolate_seconds(work, least=5, whole=1000, seconds=0.2)
    assert found == pytest.approx(0.04 + 0.002 * 1000, rel=0.15)


@pytest.mark.parametrize("disturbed", [{1}, {1, 3}])
def test_a_short_run_that_was_disturbed_does_not_make_the_rest_free(disturbed: set[int]) -> None:
    """Runs are a first one that is not timed, the short one, the long one, and both again."""
    runs: list[int] = []

    def work(units: int) -> None:
        busy(0.002 * units + 0.1 * (len(runs) in disturbed))
        runs.append(units)

    found = extrapolate_seconds(work, least=5, whole=1000, seconds=0.2)
    assert 0.2 * 2.0 < found < 1.5 * 2.0


def test_no_more_is_done_than_the_whole_and_not_much_longer_than_asked() -> None:
    asked: list[int] = []

    def work(units: int) -> None:
        asked.append(units)
        busy(0.001 * units)

    extrapolate_seconds(work, least=10, whole=7)
    assert max(asked) == 7
    asked.clear()
    extrapolate_seconds(work, least=10, whole=10**6, seconds=0.1)
    assert 10 < max(asked) < 1000


MEMBERSHIP = {"dataset": "digits", "records": 40, "train_size": 40, "features": 6}
CASES = {
    "game": (
        "adversarial",
        {
            "problem": "gaussian-mixture",
            "objective": "squared-kl",
            "evaluation": "exact",
            "steps": 300,
            "train_size": 1024,
        },
    ),
    "pretrained game": (
        "adversarial",
        {
            "problem": "gaussian-mixture",
            "objective": "squared-kl",
            "evaluation": "exact",
            "steps": 200,
            "train_size": 1024,
            "scenario": "fixed-utility",
            "pretrain_steps": 200,
        },
    ),
    "linear": (
        "membership",
        {"dataset": "diabetes", "model": "linear", "train_size": 40, "records": 100, "draws": 200},
    ),
    "logistic": ("membership", {**MEMBERSHIP, "model": "logistic", "draws": 200}),
    "mlp": ("membership", {**MEMBERSHIP, "model": "mlp", "draws": 32, "steps": 50}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("members", [1, 4])
def test_a_rehearsal_tells_about_how_long_a_stack_takes(case: str, members: int) -> None:
    name, fields = CASES[case]
    experiment = privnets.experiment(name)
    configs = [experiment.Config.model_validate({**fields, "seed": s}) for s in range(members)]
    said, taken = _timed(lambda: experiment.estimate_runtime(configs))
    _, whole = _timed(lambda: experiment.run(configs))
    assert said is not None
    assert whole / 2.5 < said < whole * 2.5
    assert taken < 3


def test_the_judging_of_a_game_is_part_of_what_is_told() -> None:
    experiment = privnets.experiment("adversarial")

    def seconds(evaluation: str) -> float:
        fields = {**CASES["game"][1], "evaluation": evaluation}
        found = experiment.estimate_runtime([experiment.Config.model_validate(fields)])
        assert found is not None
        return found

    cost = experiment.cost(experiment.Config.model_validate(CASES["game"][1]))
    assert seconds("attackers") > seconds("exact") + cost.seconds


@pytest.mark.parametrize("name", ["game", "logistic"])
def test_different_structures_are_not_rehearsed_together(name: str) -> None:
    experiment = privnets.experiment(CASES[name][0])
    fields = CASES[name][1]
    configs: list[ExperimentConfig] = [
        experiment.Config.model_validate({**fields, "train_size": size}) for size in (64, 65)
    ]
    with pytest.raises(ValueError, match="one structure"):
        experiment.estimate_runtime(configs)


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    start = time.process_time()
    found = work()
    return found, time.process_time() - start
