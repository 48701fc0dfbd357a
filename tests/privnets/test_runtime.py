"""Run-time estimates from short runs."""

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
    """Uses the processor for some seconds."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_start_time_is_separated_from_time_per_unit() -> None:
    def work(units: int) -> None:
        busy(0.04 + 0.002 * units)

    found = extrapolate_seconds(work, least=5, whole=1000, seconds=0.2)
    assert found == pytest.approx(0.04 + 0.002 * 1000, rel=0.15)


@pytest.mark.parametrize("disturbed", [{1}, {1, 3}])
def test_a_disturbed_short_run_does_not_make_units_free(disturbed: set[int]) -> None:
    """Order of runs: an untimed one, the short one, the long one, and both again."""
    runs: list[int] = []

    def work(units: int) -> None:
        busy(0.002 * units + 0.1 * (len(runs) in disturbed))
        runs.append(units)

    found = extrapolate_seconds(work, least=5, whole=1000, seconds=0.2)
    assert 0.2 * 2.0 < found < 1.5 * 2.0


def test_runs_are_bounded_by_the_whole_and_by_the_time() -> None:
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


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[] if case in ("game", "linear") else pytest.mark.slow)
        for case in CASES
    ],
)
def test_estimates_are_near_the_run_time_of_a_stack(case: str) -> None:
    name, fields = CASES[case]
    experiment = privnets.experiment(name)
    configs = [experiment.Config.model_validate({**fields, "seed": s}) for s in range(4)]
    measured = []
    for _ in range(3):  # A busy machine may slow down one measurement of the two.
        said, taken = _measure_time(lambda: experiment.estimate_runtime(configs))
        _, whole = _measure_time(lambda: experiment.run(configs))
        assert said is not None
        measured.append((said, whole, taken))
        if whole / 2.5 < said < whole * 2.5 and taken < 6:
            return
    pytest.fail(f"estimated, measured and asked seconds: {measured}")


def test_the_estimate_includes_the_attackers() -> None:
    experiment = privnets.experiment("adversarial")

    def seconds(evaluation: str) -> float:
        fields = {**CASES["game"][1], "evaluation": evaluation}
        found = experiment.estimate_runtime([experiment.Config.model_validate(fields)])
        assert found is not None
        return found

    cost = experiment.cost(experiment.Config.model_validate(CASES["game"][1]))
    assert seconds("attackers") > seconds("exact") + cost.seconds


@pytest.mark.parametrize("name", ["game", "logistic"])
def test_different_structures_have_no_common_estimate(name: str) -> None:
    experiment = privnets.experiment(CASES[name][0])
    fields = CASES[name][1]
    configs: list[ExperimentConfig] = [
        experiment.Config.model_validate({**fields, "train_size": size}) for size in (64, 65)
    ]
    with pytest.raises(ValueError, match="one structure"):
        experiment.estimate_runtime(configs)


def _measure_time(work: Callable[[], T]) -> tuple[T, float]:
    start = time.process_time()
    found = work()
    return found, time.process_time() - start
