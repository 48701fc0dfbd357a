"""Measuring how long stacks take, and keeping it."""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

import privnets
from privnets.config import ExperimentConfig
from privnets.contract import Cost, Direction, Experiment, InvalidField, Stage, State
from sweeps.planning.calibration import (
    cache_curve,
    curve_key,
    measure_cost_curve,
    read_cached_curve,
)
from sweeps.planning.cost_curves import CostCurve
from sweeps.study.spec import Resources

CURVE = CostCurve((1, 2, 4), (3.0, 4.0, 6.5), 1234, complete=True)
ROOMY = 2**50


class Scripted(Experiment):
    """An experiment whose stacks take what a formula says."""

    name = "scripted"
    version = 1
    Config = ExperimentConfig
    objectives: ClassVar[Mapping[str, Direction]] = {"privacy/x": "min"}

    def __init__(self, seconds: Callable[[int], float | None]) -> None:
        self.seconds = seconds
        self.asked: list[int] = []

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
        self.asked.append(len(configs))
        return self.seconds(len(configs))

    def stages(
        self, configs: Sequence[ExperimentConfig], device: str = "cpu", state: State | None = None
    ) -> Iterator[Stage]:
        yield from ()


def measured(experiment: Experiment, members: int, **options: float) -> CostCurve | None:
    configs = [ExperimentConfig(seed=seed) for seed in range(members)]
    memory, seconds = int(options.get("memory", ROOMY)), options.get("seconds", 60.0)
    return measure_cost_curve(experiment, configs, device="cpu", memory=memory, seconds=seconds)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that holds the curve `a`."""
    monkeypatch.setenv("PRIVNETS_CACHE", str(tmp_path))
    cache_curve("a", CURVE)
    (path,) = tmp_path.iterdir()
    return path


def test_larger_stacks_are_measured_while_they_are_faster_per_member() -> None:
    """10 / K + 1 seconds each: doubling saves 3.6% from 128 to 256 and 1.9% to 512."""
    experiment = Scripted(lambda size: 10.0 + size)
    found = measured(experiment, 1000)
    assert experiment.asked == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert found is not None
    assert found.totals == tuple(10.0 + size for size in experiment.asked)
    assert found.complete


@pytest.mark.parametrize(
    ("members", "options", "sizes"),
    [
        (5, {}, [1, 2, 4]),
        (100, {"memory": 9000}, [1, 2, 4, 8]),
        (100, {"seconds": 0.0}, [1, 2]),
    ],
)
def test_members_memory_and_time_are_limits_and_a_curve_cut_short_says_so(
    members: int, options: dict[str, float], sizes: list[int]
) -> None:
    experiment = Scripted(lambda size: 1e6 + size)
    found = measured(experiment, members, **options)
    assert experiment.asked == sizes
    assert found is not None
    assert not found.complete


def test_an_experiment_that_cannot_rehearse_has_no_curve() -> None:
    assert measured(Scripted(lambda size: None), 10) is None
    assert measured(Scripted(lambda size: float("nan")), 10) is None


def test_a_disturbed_measurement_is_corrected_by_what_a_larger_stack_took() -> None:
    seconds = {1: 10.0, 2: 90.0, 4: 13.0, 8: 17.0}
    found = measured(Scripted(seconds.__getitem__), 8)
    assert found is not None
    assert found.totals == (10.0, 13.0, 13.0, 17.0)


@pytest.mark.parametrize(("fitting", "sizes"), [(8, (1, 2, 4, 8)), (1, None)])
def test_a_gpu_that_is_full_ends_the_curve(fitting: int, sizes: tuple[int, ...] | None) -> None:
    def seconds(size: int) -> float:
        if size > fitting:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return 100.0 + size

    found = measured(Scripted(seconds), 100)
    assert (None if found is None else found.sizes) == sizes
    assert found is None or found.complete


def test_another_failure_of_a_rehearsal_is_no_end_of_a_curve() -> None:
    def seconds(size: int) -> float:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        measured(Scripted(seconds), 100)


def test_a_curve_is_recalled_as_it_was_kept(kept: Path) -> None:
    assert read_cached_curve("a", 1000, ROOMY) == CURVE
    assert read_cached_curve("b", 1000, ROOMY) is None


def test_a_curve_cut_short_serves_sweeps_that_need_no_larger_stacks(kept: Path) -> None:
    cache_curve("short", CostCurve((1, 2, 4), (3.0, 4.0, 5.0), 10, complete=False))
    assert read_cached_curve("short", 7, ROOMY) is not None
    assert read_cached_curve("short", 8, ROOMY) is None


def test_a_curve_that_memory_ended_is_measured_again_only_where_there_is_more(kept: Path) -> None:
    found = measured(Scripted(lambda size: 1e6 + size), 100, memory=9000)
    assert found is not None
    cache_curve("ended", found)
    assert read_cached_curve("ended", 100, 9000) == found
    assert read_cached_curve("ended", 100, 16_000) is None


@pytest.mark.parametrize("damage", ["empty", "cut", "altered", "absent"])
def test_a_damaged_curve_is_as_good_as_none_and_is_replaced(kept: Path, damage: str) -> None:
    content = kept.read_bytes()
    if damage == "absent":
        kept.unlink()
    else:
        middle = len(content) // 2
        other = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        kept.write_bytes({"empty": b"", "cut": content[:-20], "altered": other}[damage])
    assert read_cached_curve("a", 10, ROOMY) is None
    cache_curve("a", CURVE)
    assert read_cached_curve("a", 10, ROOMY) == CURVE


@pytest.mark.parametrize(
    "changed",
    [
        {"sizes": np.array([1, 3, 4])},
        {"sizes": np.array([1.5, 2.0, 4.0])},
        {"sizes": np.array(7)},
        {"totals": np.array([1.0, -2.0, 3.0])},
        {"totals": np.array([1.0, np.nan, 3.0])},
        {"totals": np.array([1.0, 2.0])},
        {"totals": np.array(["a", "b", "c"])},
        {"memory": np.array(0)},
        {"memory": np.array([1, 2])},
    ],
)
def test_a_file_that_holds_no_curve_is_as_good_as_none(
    kept: Path, changed: Mapping[str, np.ndarray]
) -> None:
    arrays = {
        "sizes": np.array([1, 2, 4]),
        "totals": np.array([1.0, 2.0, 3.0]),
        "memory": np.array(10),
        "complete": np.array(True),
    }
    stream = io.BytesIO()
    np.savez(stream, **{**arrays, **changed})  # type: ignore[arg-type]
    kept.write_bytes(hashlib.sha256(stream.getvalue()).digest() + stream.getvalue())
    assert read_cached_curve("a", 10, ROOMY) is None


def test_processes_that_keep_and_recall_at_once_see_whole_curves(kept: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_rewrite, args=(float(i),)) for i in (1, 2)]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        found = read_cached_curve("a", 10, ROOMY)
        assert found is not None
        assert set(found.totals) in ({3.0, 4.0, 6.5}, {1.0}, {2.0})
        seen.add(found.totals)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]
    assert len(seen) > 1


def test_what_a_curve_holds_for_is_told_apart() -> None:
    adversarial = privnets.experiment("adversarial")
    plain = curve_key(adversarial, "s", Resources(), "")
    others = {
        curve_key(privnets.experiment("membership"), "s", Resources(), ""),
        curve_key(adversarial, "t", Resources(), ""),
        curve_key(adversarial, "s", Resources(cpus=2), ""),
        curve_key(adversarial, "s", Resources(gpus=0.5), ""),
        curve_key(adversarial, "s", Resources(), "NVIDIA H100"),
    }
    assert len(others | {plain}) == 6
    assert plain == curve_key(adversarial, "s", Resources(pack=3, concurrency=1), "")


def _rewrite(value: float) -> None:
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        cache_curve("a", CostCurve((1, 2, 4), (value, value, value), 10))
