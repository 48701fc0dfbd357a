"""Surveys: what is measured before packs are cut, on a real Ray."""

from __future__ import annotations

import json
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
from sweeps.engine.executor import execute
from sweeps.engine.progress import SweepProgress
from sweeps.planning.calibration import cache_curve, curve_key
from sweeps.planning.cost_curves import CostCurve
from sweeps.planning.measuring import Calibration, CalibrationSettings, cached_curves, calibrate
from sweeps.planning.plan import Plan, PlannedReplicate, make_plan
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


def planned(**space: Sequence[float]) -> Plan:
    study = {
        "name": "game",
        "experiment": "adversarial",
        "fixed": {name: value for name, value in GAME.items() if name not in space},
        "space": {name: {"grid": list(values)} for name, values in space.items()},
        "replicates": 4,
    }
    return make_plan(Study.model_validate(study))


def replicates(**space: Sequence[float]) -> list[PlannedReplicate]:
    return planned(**space).replicates()


class Told:
    """How often it was said that something is measured."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


def surveyed(
    members: list[PlannedReplicate], ray: Connection, *, stopped: bool = False, workers: int = 2
) -> tuple[Calibration, int]:
    told = Told()
    setting = CalibrationSettings(Resources(), ray.machines(), workers, MEMORY)
    found = calibrate("adversarial", members, setting, stopping=lambda: stopped, tell=told)
    return found, told.times


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this process; workers that live already keep theirs."""
    monkeypatch.setenv("PRIVNETS_CACHE", str(tmp_path))


def test_a_long_sweep_is_measured_once_and_of_its_structures_the_dearest(
    local_ray: Connection,
) -> None:
    members = replicates(tradeoff=(0.1, 0.5), batch_size=(32, 64, 128))
    found, told = surveyed(members, local_ray)
    assert (told, found.problems, found.memory) == (1, (), None)
    assert len(found.curves) == 3
    batches = {json.loads(s)["batch_size"]: curve for s, curve in found.curves.items()}
    assert all(curve.measured for curve in batches.values())
    assert all(b.seconds_per_member(8) < b.seconds_per_member(1) / 1.5 for b in batches.values())
    # The third has the form of one that was measured.
    ratios = {round(a / b, 6) for a, b in zip(batches[32].totals, batches[64].totals, strict=False)}
    assert len(ratios) == 1


def test_what_was_measured_is_known_from_then_on(
    local_ray: Connection,
) -> None:
    members = replicates(tradeoff=(0.1, 0.5, 0.6), steps=(30_000,))
    assert cached_curves("adversarial", members, Resources(), MEMORY) == {}
    measured, told = surveyed(members, local_ray)
    assert told == 1
    # The workers of this Ray were started with another cache than this test's.
    ((structure, curve),) = measured.curves.items()
    cache_curve(curve_key(privnets.experiment("adversarial"), structure, Resources(), ""), curve)
    assert surveyed(members, local_ray) == (measured, 0)
    assert cached_curves("adversarial", members, Resources(), MEMORY) == {structure: curve}


def test_a_structure_of_more_members_than_are_measured_is_known_by_those() -> None:
    members = replicates(tradeoff=tuple(i / 100 for i in range(100)))
    (structure,) = {member.config.structure() for member in members}
    sizes = tuple(2**i for i in range(9))  # up to 256 of 400
    curve = CostCurve(sizes, tuple(1.0 + size for size in sizes), 1000, complete=False)
    cache_curve(curve_key(privnets.experiment("adversarial"), structure, Resources(), ""), curve)
    assert cached_curves("adversarial", members, Resources(), MEMORY) == {structure: curve}


@pytest.mark.parametrize("case", ["short", "explicit", "nothing"])
def test_nothing_is_measured_where_it_would_not_pay(case: str, local_ray: Connection) -> None:
    members = replicates(tradeoff=(0.1,), steps=(100,) if case == "short" else (20_000,))
    told = Told()
    resources = Resources(pack=4) if case == "explicit" else Resources()
    setting = CalibrationSettings(resources, local_ray.machines(), 2, MEMORY)
    found = calibrate(
        "adversarial",
        [] if case == "nothing" else members,
        setting,
        stopping=lambda: False,
        tell=told,
    )
    assert (found, told.times) == (Calibration(), 0)


def test_who_stops_does_not_wait_for_measurements(local_ray: Connection) -> None:
    found, told = surveyed(replicates(tradeoff=(0.1, 0.2)), local_ray, stopped=True)
    assert (found, told) == (Calibration(), 1)


def test_an_interrupted_sweep_ends_while_pack_sizes_are_measured(
    local_ray: Connection, tracking_uri: str, tmp_path: Path
) -> None:
    told = []

    def interrupt(progress: SweepProgress) -> None:
        if progress.doing is not None:
            told.append(str(progress))
            os.kill(os.getpid(), signal.SIGINT)

    outcome = execute(
        planned(tradeoff=(0.1, 0.5)),
        sweep="measured",
        storage=str(tmp_path),
        tracking_uri=tracking_uri,
        on_progress=interrupt,
    )
    (said,) = told
    assert said.startswith("measuring pack sizes, 0 of 2 points done")
    assert (outcome.interrupted_by, outcome.problems) == (signal.SIGINT, ())
    assert not outcome.result.tradeoff_points


LOGICAL = """
import ray, sys
from test_measuring import replicates
from sweeps.errors import InputError
from sweeps.engine.executor import execute
from sweeps.planning.measuring import CalibrationSettings, calibrate
from sweeps.engine.capacity import cluster_capacity
from sweeps.study.spec import Resources
import cluster

ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, logging_level="error")
with cluster.connect() as connection:
    resources = Resources(cpus=0.5, gpus=0.3)
    machines = connection.machines()
    room = cluster_capacity(machines, resources)
    print("workers", room.workers)
    try:
        calibrate("adversarial", replicates(tradeoff=(0.1,)),
               CalibrationSettings(resources, machines, room.workers, room.memory),
               stopping=lambda: False, tell=lambda: None)
    except InputError as error:
        print("refused", error)
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a GPU here")
def test_gpus_that_torch_does_not_see_are_told_before_anything_is_trained(tmp_path: Path) -> None:
    """Ray counts what it is told; torch looks."""
    done = subprocess.run(
        [sys.executable, "-c", LOGICAL],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "workers 3" in done.stdout
    assert "refused resources.gpus: Ray gave this process 0.3 GPUs and torch" in done.stdout
