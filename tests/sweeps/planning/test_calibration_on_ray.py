"""Calibration of sweeps on a real Ray."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import privnets
from sweeps.engine.display import describe
from sweeps.engine.executor import execute
from sweeps.planning.calibration import Calibration, CalibrationSettings, cached_curves, calibrate
from sweeps.planning.cost_curves import CostCurve, cache_curve, curve_key
from sweeps.planning.plan import Plan, PlannedReplicate, make_plan
from sweeps.store.status import SweepStatus
from sweeps.study.spec import Resources, Study

if TYPE_CHECKING:
    from cluster import Connection

pytestmark = pytest.mark.ray

GAME = {
    "problem": "gaussian-mixture",
    "objective": "squared-kl",
    "evaluation": "exact",
    "train_size": 1024,
    "steps": 20_000,
}
MEMORY = 2**32


def make_game_plan(**space: Sequence[float]) -> Plan:
    study = {
        "name": "game",
        "experiment": "adversarial",
        "fixed": {name: value for name, value in GAME.items() if name not in space},
        "space": {name: {"grid": list(values)} for name, values in space.items()},
        "replicates": 4,
    }
    return make_plan(Study.model_validate(study))


def replicates(**space: Sequence[float]) -> list[PlannedReplicate]:
    return make_game_plan(**space).replicates()


def run_calibration(
    members: list[PlannedReplicate], ray: Connection, *, stopped: bool = False, workers: int = 2
) -> tuple[Calibration, int]:
    calls: list[None] = []
    settings = CalibrationSettings(Resources(), ray.machines(), workers, MEMORY)
    calibration = calibrate(
        "adversarial",
        members,
        settings,
        is_stopping=lambda: stopped,
        on_measure=lambda: calls.append(None),
    )
    return calibration, len(calls)


def run_complete_calibration(
    members: list[PlannedReplicate], ray: Connection
) -> tuple[Calibration, int]:
    """Calibrates until every curve has levelled off: a busy machine may measure too little."""
    for _ in range(6):
        calibration, calls = run_calibration(members, ray)
        if all(curve.complete for curve in calibration.curves.values()):
            break
    return calibration, calls


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the cache of this process; running workers keep theirs."""
    monkeypatch.setenv("PRIVNETS_CACHE", str(tmp_path))


def test_a_long_sweep_measures_its_most_expensive_structures(
    local_ray: Connection,
) -> None:
    members = replicates(tradeoff=(0.1, 0.5), batch_size=(32, 64, 128))
    calibration, calls = run_complete_calibration(members, local_ray)
    assert (calls, calibration.problems, calibration.memory) == (1, (), None)
    assert len(calibration.curves) == 3
    sizes = {member.config.structure(): member.config.batch_size for member in members}
    batches = {sizes[structure]: curve for structure, curve in calibration.curves.items()}
    assert all(len(curve.sizes) > 2 for curve in batches.values())
    assert all(b.seconds_per_member(8) < b.seconds_per_member(1) / 1.5 for b in batches.values())
    # The third curve is scaled from a measured one.
    ratios = {round(a / b, 6) for a, b in zip(batches[32].totals, batches[64].totals, strict=False)}
    assert len(ratios) == 1


def test_measured_curves_are_cached(
    local_ray: Connection,
) -> None:
    members = replicates(tradeoff=(0.1, 0.5, 0.6), steps=(30_000,))
    assert cached_curves("adversarial", members, Resources(), MEMORY) == {}
    calibration, calls = run_complete_calibration(members, local_ray)
    assert calls == 1
    # The workers of this Ray use another cache than this test.
    ((structure, curve),) = calibration.curves.items()
    cache_curve(curve_key(privnets.experiment("adversarial"), structure, Resources(), ""), curve)
    assert run_calibration(members, local_ray) == (calibration, 0)
    assert cached_curves("adversarial", members, Resources(), MEMORY) == {structure: curve}


def test_a_curve_of_the_largest_measured_stack_serves_larger_groups() -> None:
    members = replicates(tradeoff=tuple(i / 100 for i in range(100)))
    (structure,) = {member.config.structure() for member in members}
    sizes = tuple(2**i for i in range(9))  # up to 256 of 400
    curve = CostCurve(sizes, tuple(1.0 + size for size in sizes), 1000, complete=False)
    cache_curve(curve_key(privnets.experiment("adversarial"), structure, Resources(), ""), curve)
    assert cached_curves("adversarial", members, Resources(), MEMORY) == {structure: curve}


@pytest.mark.parametrize("case", ["short", "explicit", "nothing"])
def test_short_sweeps_are_not_measured(case: str, local_ray: Connection) -> None:
    members = replicates(tradeoff=(0.1,), steps=(100,) if case == "short" else (20_000,))
    calls: list[None] = []
    resources = Resources(pack=4) if case == "explicit" else Resources()
    settings = CalibrationSettings(resources, local_ray.machines(), 2, MEMORY)
    calibration = calibrate(
        "adversarial",
        [] if case == "nothing" else members,
        settings,
        is_stopping=lambda: False,
        on_measure=lambda: calls.append(None),
    )
    assert (calibration, calls) == (Calibration(), [])


def test_stopping_cancels_measurements(local_ray: Connection) -> None:
    calibration, calls = run_calibration(replicates(tradeoff=(0.1, 0.2)), local_ray, stopped=True)
    assert (calibration, calls) == (Calibration(), 1)


def test_an_interrupted_sweep_ends_while_pack_sizes_are_measured(
    local_ray: Connection, tracking_uri: str, tmp_path: Path
) -> None:
    messages = []

    def interrupt(status: SweepStatus) -> None:
        if not messages and "measuring" in str(status.activity):
            messages.append(describe(status))
            os.kill(os.getpid(), signal.SIGINT)

    outcome = execute(
        make_game_plan(tradeoff=(0.1, 0.5)),
        sweep="measured",
        storage=str(tmp_path),
        tracking_uri=tracking_uri,
        on_progress=interrupt,
    )
    (message,) = messages
    assert message.startswith("measuring pack sizes, 0 of 2 points done")
    assert (outcome.interrupted_by, outcome.problems) == (signal.SIGINT, ())
    assert not outcome.result.tradeoff_points


LOGICAL = """
import ray, sys
from test_calibration_on_ray import make_game_plan, replicates
from sweeps.errors import InputError
from sweeps.engine.display import describe
from sweeps.engine.executor import execute
from sweeps.planning.calibration import CalibrationSettings, calibrate
from sweeps.engine.capacity import cluster_capacity
from sweeps.study.spec import Resources
import cluster

ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, logging_level="error")
plan = make_game_plan(tradeoff=(0.1,), steps=(20,))
outcome = execute(plan, sweep="automatic", storage=sys.argv[1], tracking_uri=sys.argv[2])
print("finished", outcome.result.counts["finished"], *outcome.problems)
with cluster.connect() as connection:
    resources = Resources(cpus=0.5, gpus=0.3)
    machines = connection.machines()
    room = cluster_capacity(machines, resources)
    print("workers", room.workers)
    try:
        calibrate("adversarial", replicates(tradeoff=(0.1,)),
               CalibrationSettings(resources, machines, room.workers, room.memory),
               is_stopping=lambda: False, on_measure=lambda: None)
    except InputError as error:
        print("refused", error)
"""


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a GPU here")
def test_gpus_that_torch_does_not_see_are_left_out_or_refused_before_training(
    tracking_uri: str, tmp_path: Path
) -> None:
    """Ray believes its configuration; torch looks at the hardware."""
    done = subprocess.run(
        [sys.executable, "-c", LOGICAL, str(tmp_path), tracking_uri],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "finished 1 GPUs of this machine were not used: torch" in done.stdout
    assert "workers 3" in done.stdout
    assert "refused resources.gpus: Ray gave this process 0.3 GPUs and torch" in done.stdout
