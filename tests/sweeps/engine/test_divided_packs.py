"""A point that ends its worker is lost alone: its pack is divided until the others finish."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
import torch

from privnets.points import TradeoffPoint
from sweeps.cli.status import sweep_table
from sweeps.engine.executor import execute
from sweeps.engine.pack_sources import PackSource
from sweeps.engine.pack_trainer import may_succeed_in_parts
from sweeps.engine.progress import is_crash
from sweeps.planning.packing import Pack
from sweeps.planning.plan import make_plan
from sweeps.remote.status import read_overview
from sweeps.store.lease import RunSupersededError
from sweeps.study.loader import load

if TYPE_CHECKING:
    from cluster.connection import Connection

STUDY = """
name: odd
experiment: membership
fixed:
  dataset: {table: people.csv, target: outcome}
  model: {sklearn: "odd:Model"}
  train_size: 10
  draws: 32
  records: 4
space: {model.params.behaviour: {grid: [good, crash, interrupt, other]}}
replicates: 1
resources: {pack: 4, concurrency: 1}
"""
MODEL = """
import os

from sklearn.tree import DecisionTreeClassifier


class Model(DecisionTreeClassifier):
    def __init__(self, behaviour="good"):
        super().__init__()
        self.behaviour = behaviour

    def fit(self, x, y):
        if self.behaviour == "crash":
            os._exit(3)
        if self.behaviour == "interrupt":
            raise KeyboardInterrupt("of the model")
        return super().fit(x, y)
"""


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    """Four trainings of two points."""
    study = {
        "name": "s",
        "experiment": "membership",
        "fixed": {"dataset": "digits", "model": "logistic", "train_size": 100, "draws": 32},
        "space": {"weight_decay": {"grid": [0.1, 1.0]}},
        "replicates": 2,
    }
    return Pack.of("membership", make_plan(load(study)).replicates())


def test_halves_keep_the_replicates_of_a_point_together(pack: Pack) -> None:
    first, second = pack.halves()
    assert {*first.replicates} | {*second.replicates} == {*pack.replicates}
    assert [len({r.point_id for r in half.replicates}) for half in (first, second)] == [1, 1]
    quarters = [quarter for half in (first, second) for quarter in half.halves()]
    assert [len(quarter.replicates) for quarter in quarters] == [1] * 4
    assert len({each.pack_id for each in (pack, first, second, *quarters)}) == 7


def test_a_source_hands_out_the_halves_of_a_pack_and_ends_after_them(pack: Pack) -> None:
    source = PackSource([pack])
    assert source.take() == pack
    assert source.take() is None
    assert not source.is_finished
    halves = source.divide_pack(pack)
    assert (source.take(), source.take()) == halves
    for half in halves:
        assert not source.is_finished
        source.end_pack(half.pack_id)
    assert source.is_finished


def test_a_budget_counts_the_trainings_of_a_divided_pack_once(pack: Pack) -> None:
    source = PackSource([pack, *pack.halves()], 4)
    assert source.take() == pack
    assert source.take() is None
    assert not source.is_finished
    source.divide_pack(pack)
    taken = [source.take(), source.take()]
    assert sum(len(each.replicates) for each in taken if each is not None) == 4
    assert source.take() is None
    assert source.has_reached_budget


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("The actor died unexpectedly before finishing this task.", True),
        ("Worker unexpectedly exits with a connection error code 2.", True),
        ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered", True),
        ("The actor died because its node has died. Node Id: 1", False),
        ("privnets.data.files.DataError: node a: patients.csv is absent", False),
        ("OSError: [Errno 5] the disk failed", False),
    ],
)
def test_a_crash_is_told_from_a_lost_node_and_from_a_failing_storage(
    reason: str, expected: bool
) -> None:
    assert is_crash(reason) is expected


def test_a_stack_that_fills_a_gpu_is_divided_and_a_full_storage_divides_nothing() -> None:
    assert may_succeed_in_parts(torch.OutOfMemoryError("of a GPU"))
    assert may_succeed_in_parts(MemoryError())
    assert may_succeed_in_parts(SystemExit(3))
    assert not may_succeed_in_parts(torch.AcceleratorError("the process cannot use the GPU"))
    assert not may_succeed_in_parts(OSError(28, "the disk is full"))
    assert not may_succeed_in_parts(RunSupersededError("taken over"))


@pytest.mark.ray
def test_points_beside_one_that_ends_its_worker_finish(
    local_ray: Connection, tracking_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each retry starts a worker, which takes seconds; one retry shows as much as three.
    monkeypatch.setattr("sweeps.engine.tune_backend._MAX_RETRIES", 1)
    frame = pd.DataFrame({"age": range(60), "outcome": ["yes", "no"] * 30})
    frame.to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "odd.py").write_text(MODEL)
    (tmp_path / "odd.yaml").write_text(STUDY)
    plan = make_plan(load(tmp_path / "odd.yaml"))
    outcome = execute(plan, sweep="odd", storage=str(tmp_path), tracking_uri=tracking_uri)
    assert outcome.exit_code == 1
    assert outcome.result.counts == {"finished": 2, "failed": 2, "stopped": 0}
    finished: list[TradeoffPoint] = outcome.result.tradeoff_points
    assert {p.config["model.params.behaviour"] for p in finished} == {"good", "other"}
    interrupted = [reason for reason in outcome.failures.values() if "Interrupt" in reason]
    assert len(outcome.failures) == 2
    assert interrupted == [f"KeyboardInterrupt: of the model ({tmp_path}/odd.py, line 16)"]
    status = read_overview("odd", str(tmp_path))
    assert (status.finished, status.failed, status.pending) == (2, 2, 0)
    ((_, _, _, points, failed, _),) = sweep_table(str(tmp_path)).rows
    assert (points, failed) == ("2 of 4", "2")
    records = [json.loads(p.read_text()) for p in (tmp_path / "odd" / "failures").iterdir()]
    assert [len(record["members"]) for record in records] == [1, 1]
    assert not any((tmp_path / "odd").glob("checkpoints/*"))
