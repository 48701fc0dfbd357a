"""Measurement of cost curves by one worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from privnets.config import ExperimentConfig
from privnets.contract import Cost, Direction, Experiment, InvalidField, Stage, State
from sweeps.planning.calibration import measure_cost_curve
from sweeps.planning.cost_curves import CostCurve, cache_curve, read_cached_curve

ROOMY = 2**50


class FormulaExperiment(Experiment):
    """Experiment whose run times follow a formula."""

    name = "scripted"
    version = 1
    Config = ExperimentConfig
    objectives: ClassVar[Mapping[str, Direction]] = {"privacy/x": "min"}

    def __init__(self, seconds: Callable[[int], float | None]) -> None:
        self.seconds = seconds
        self.sizes: list[int] = []

    def default_objectives(self, config: ExperimentConfig) -> Mapping[str, Direction]:
        return self.objectives

    def metric_keys(self, config: ExperimentConfig) -> tuple[str, ...]:
        return ("privacy/x",)

    def invalid_fields(self, config: ExperimentConfig) -> list[InvalidField]:
        return []

    def fingerprint(self, config: ExperimentConfig) -> str:
        return ""

    def cost(self, config: ExperimentConfig) -> Cost:
        return Cost(1.0, 1000)

    def estimate_runtime(
        self, configs: Sequence[ExperimentConfig], device: str = "cpu"
    ) -> float | None:
        self.sizes.append(len(configs))
        return self.seconds(len(configs))

    def stages(
        self, configs: Sequence[ExperimentConfig], device: str = "cpu", state: State | None = None
    ) -> Iterator[Stage]:
        yield from ()


def measure(experiment: Experiment, members: int, **options: float) -> CostCurve | None:
    configs = [ExperimentConfig(seed=seed) for seed in range(members)]
    memory, seconds = int(options.get("memory", ROOMY)), options.get("seconds", 60.0)
    return measure_cost_curve(experiment, configs, device="cpu", memory=memory, seconds=seconds)


def test_sizes_double_while_larger_stacks_are_faster_per_member() -> None:
    """10 / K + 1 seconds each: doubling saves 3.6% from 128 to 256 and 1.9% to 512."""
    experiment = FormulaExperiment(lambda size: 10.0 + size)
    curve = measure(experiment, 1000)
    assert experiment.sizes == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert curve is not None
    assert curve.totals == tuple(10.0 + size for size in experiment.sizes)
    assert curve.complete


@pytest.mark.parametrize(
    ("members", "options", "sizes"),
    [
        (5, {}, [1, 2, 4]),
        (100, {"memory": 9000}, [1, 2, 4, 8]),
        (100, {"seconds": 0.0}, [1, 2]),
    ],
)
def test_members_memory_and_time_limit_the_curve(
    members: int, options: dict[str, float], sizes: list[int]
) -> None:
    experiment = FormulaExperiment(lambda size: 1e6 + size)
    curve = measure(experiment, members, **options)
    assert experiment.sizes == sizes
    assert curve is not None
    assert not curve.complete


def test_an_experiment_without_estimates_has_no_curve() -> None:
    assert measure(FormulaExperiment(lambda size: None), 10) is None
    assert measure(FormulaExperiment(lambda size: float("nan")), 10) is None


def test_a_larger_stack_bounds_a_disturbed_measurement() -> None:
    seconds = {1: 10.0, 2: 90.0, 4: 13.0, 8: 17.0}
    curve = measure(FormulaExperiment(seconds.__getitem__), 8)
    assert curve is not None
    assert curve.totals == (10.0, 13.0, 13.0, 17.0)


@pytest.mark.parametrize(("fitting", "sizes"), [(8, (1, 2, 4, 8)), (1, None)])
def test_a_full_gpu_ends_the_curve(fitting: int, sizes: tuple[int, ...] | None) -> None:
    def seconds(size: int) -> float:
        if size > fitting:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return 100.0 + size

    curve = measure(FormulaExperiment(seconds), 100)
    assert (None if curve is None else curve.sizes) == sizes
    assert curve is None or curve.complete


def test_other_failures_are_raised() -> None:
    def seconds(size: int) -> float:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        measure(FormulaExperiment(seconds), 100)


def test_a_curve_that_memory_limited_is_reused_up_to_that_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVNETS_CACHE", str(tmp_path))
    curve = measure(FormulaExperiment(lambda size: 1e6 + size), 100, memory=9000)
    assert curve is not None
    cache_curve("ended", curve)
    assert read_cached_curve("ended", 100, 9000) == curve
    assert read_cached_curve("ended", 100, 16_000) is None
