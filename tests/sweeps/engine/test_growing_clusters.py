"""Clusters too small when a sweep begins: real nodes come because it asks, or join late."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ray_autoscaler import scaling_head
from ray_head import Head, ray_head
from ray_node import ray_node
from stores import new_store

pytestmark = pytest.mark.ray

_EXPERIMENT = Path(__file__).resolve().parents[3] / "benchmarks" / "trivial"
_SECONDS = 240.0
_FILLING_SECONDS = 90.0  # eight workers load torch on the cores of one machine
_STUDY = """
name: naps
experiment: trivial
fixed: {{seconds: {seconds}}}
space: {{x: {{grid: {points}}}}}
replicates: 1
resources: {{cpus: {cpus}, gpus: {gpus}, pack: 8, concurrency: {concurrency}}}
"""
_STATUS = """
import json, sys
from ray.autoscaler.v2.sdk import get_cluster_status
for line in sys.stdin:
    status = get_cluster_status(sys.argv[1])
    print(json.dumps({
        "nodes": len(status.active_nodes) + len(status.idle_nodes) - 1,
        "asked": [str(d) for d in status.resource_demands.placement_group_demand],
    }), flush=True)
"""


@dataclass
class Running:
    """A sweep that runs on a cluster, in a process of its own."""

    process: subprocess.Popen[bytes]
    folder: Path

    def progress(self) -> dict[str, Any]:
        """Heartbeat of the driver; empty before the first one."""
        path = self.folder / "naps" / "progress.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def busy_nodes(self) -> int:
        return self._use("busy_nodes")

    def packs(self) -> int:
        return self._use("packs")

    def _use(self, what: str) -> int:
        return int((self.progress().get("use") or {}).get(what, 0))

    def wait_for(self, condition: Callable[[], object], seconds: float = _SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.progress()
            time.sleep(0.2)

    def checkpoints(self) -> list[Path]:
        return [*(self.folder / "naps" / "checkpoints").iterdir()]

    def has_finished_a_pack(self) -> bool:
        return any((self.folder / "naps" / "ledger").glob("*.parquet"))

    def output(self) -> str:
        return (self.folder / "said").read_text()


@contextmanager
def running(
    head: Head,
    folder: Path,
    *,
    points: int,
    seconds: float,
    cpus: float = 1,
    gpus: float = 0,
    concurrency: int | str = "auto",
) -> Iterator[Running]:
    grid = [i / points for i in range(points)]
    study = folder / "naps.yaml"
    text = _STUDY.format(
        seconds=seconds, points=grid, cpus=cpus, gpus=gpus, concurrency=concurrency
    )
    study.write_text(text)
    uri = new_store(folder)
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "sweeps", "run", str(study), "--name", "naps",
             "--address", head.gcs, "--storage", str(folder), "--tracking-uri", uri],
            env=_environment(head), stdout=said, stderr=said,
        )  # fmt: skip
    try:
        yield Running(process, folder)
    finally:
        process.kill()
        process.wait()


def _environment(head: Head) -> dict[str, str]:
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": head.token}
    return {**os.environ, **token, "PYTHONPATH": str(_EXPERIMENT)}


@contextmanager
def observed(head: Head) -> Iterator[Callable[[], dict[str, Any]]]:
    """A function that returns the number of nodes beside the head, and the resources in demand."""
    process = subprocess.Popen(
        [sys.executable, "-c", _STATUS, head.gcs],
        env=_environment(head), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        ask, answer = process.stdin, process.stdout

        def status() -> dict[str, Any]:
            print(file=ask, flush=True)
            found: dict[str, Any] = json.loads(answer.readline())
            return found

        yield status


def _await_idleness(head: Head) -> None:
    deadline = time.monotonic() + _SECONDS
    with observed(head) as status:
        while (left := status()) != {"nodes": 0, "asked": []}:
            assert time.monotonic() < deadline, left
            time.sleep(0.2)


@pytest.mark.slow
def test_an_autoscaler_starts_the_nodes_that_a_sweep_can_use(tmp_path: Path) -> None:
    with (
        scaling_head({"CPU": 1}, 1, PYTHONPATH=str(_EXPERIMENT)) as head,
        running(head, tmp_path, points=800, seconds=0.5) as sweep,
        observed(head) as status,
    ):
        sweep.wait_for(lambda: sweep.busy_nodes() == 1)
        assert "waiting for a node with 1 CPU" in sweep.output()
        sweep.wait_for(lambda: status()["asked"])  # a second node, which there is not
        sweep.wait_for(sweep.has_finished_a_pack)
        sweep.process.send_signal(signal.SIGINT)
        assert sweep.process.wait(_SECONDS) == 130, sweep.output()
        assert status()["asked"] == []


@pytest.mark.slow
def test_nodes_of_several_cpus_are_busy_soon_after_they_join(tmp_path: Path) -> None:
    """Demand for more nodes takes no resources from packs."""
    with (
        scaling_head({"CPU": 4}, 2, PYTHONPATH=str(_EXPERIMENT)) as head,
        running(head, tmp_path, points=2000, seconds=0.5) as sweep,
        observed(head) as status,
    ):
        sweep.wait_for(lambda: status()["nodes"] == 2)
        sweep.wait_for(lambda: sweep.packs() == 8, _FILLING_SECONDS)
        sweep.process.send_signal(signal.SIGINT)
        assert sweep.process.wait(_SECONDS) == 130, sweep.output()
        assert len(sweep.checkpoints()) in (7, 8)  # one may just have ended
        assert status()["asked"] == []


@pytest.mark.slow
def test_a_sweep_ends_on_nodes_started_for_it_which_then_stop(tmp_path: Path) -> None:
    """With Ray's older autoscaler."""
    with (
        scaling_head({"CPU": 1}, 2, 1, PYTHONPATH=str(_EXPERIMENT)) as head,
        running(head, tmp_path, points=160, seconds=0.5) as sweep,
    ):
        sweep.wait_for(lambda: sweep.busy_nodes() == 2)
        assert sweep.process.wait(_SECONDS) == 0, sweep.output()
        _await_idleness(head)


@pytest.mark.slow
def test_demand_of_a_killed_driver_ends(tmp_path: Path) -> None:
    with (
        scaling_head({"CPU": 1}, 2, PYTHONPATH=str(_EXPERIMENT)) as head,
        running(head, tmp_path, points=800, seconds=0.5) as sweep,
    ):
        sweep.wait_for(lambda: sweep.busy_nodes() == 2)
        sweep.process.kill()
        _await_idleness(head)


@pytest.mark.slow
def test_a_node_that_joins_late_trains(tmp_path: Path) -> None:
    with (
        ray_head(1, PYTHONPATH=str(_EXPERIMENT)) as head,
        running(head, tmp_path, points=800, seconds=0.5) as sweep,
    ):
        sweep.wait_for(lambda: sweep.busy_nodes() == 1)
        with ray_node(head, {"PYTHONPATH": str(_EXPERIMENT)}):
            sweep.wait_for(lambda: sweep.busy_nodes() == 2)


@pytest.mark.slow
def test_a_sweep_reports_a_lost_node_and_continues_on_the_next(tmp_path: Path) -> None:
    with (
        ray_head(0, PYTHONPATH=str(_EXPERIMENT)) as head,
        running(head, tmp_path, points=800, seconds=0.5) as sweep,
    ):
        with ray_node(head, {"PYTHONPATH": str(_EXPERIMENT)}) as node:
            sweep.wait_for(lambda: sweep.busy_nodes() == 1)
            os.killpg(node, signal.SIGKILL)
        sweep.wait_for(lambda: sweep.progress()["waiting"] == "waiting for a node with 1 CPU")
        assert sweep.progress()["eta"] is None
        assert sweep.progress()["use"]["packs"] == 0
        assert "continues from its last checkpoint" in sweep.output()
        with ray_node(head, {"PYTHONPATH": str(_EXPERIMENT)}):
            sweep.wait_for(lambda: sweep.progress()["use"]["packs"] == 1)


@pytest.mark.slow
def test_a_sweep_reports_that_it_waits_for_resources_of_another(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with (
        ray_head(1, PYTHONPATH=str(_EXPERIMENT)) as head,
        running(head, first, points=80, seconds=5.0) as holder,  # 40 s until a slot is free
    ):
        holder.wait_for(lambda: holder.busy_nodes() == 1)
        with running(head, second, points=8, seconds=0.1) as other:
            other.wait_for(lambda: "to become free (all are in use by others)" in other.output())
            assert (holder.progress()["waiting"], other.busy_nodes()) == (None, 0)
            holder.process.send_signal(signal.SIGINT)
            assert other.process.wait(_SECONDS) == 0, other.output()


@pytest.mark.slow
def test_a_sweep_with_less_concurrency_leaves_the_rest_to_another(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with (
        ray_head(2, PYTHONPATH=str(_EXPERIMENT)) as head,
        running(head, first, points=96, seconds=0.5, concurrency=1) as holder,
    ):
        holder.wait_for(lambda: holder.packs() == 1)
        with running(head, second, points=8, seconds=0.1) as other:
            assert other.process.wait(_SECONDS) == 0, other.output()
            assert holder.process.poll() is None
            assert holder.process.wait(_SECONDS) == 0, holder.output()
