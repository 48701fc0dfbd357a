"""Two sweeps on one cluster: Ray's queue shares it, and both finish."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ray_head import Head, ray_head

import tracking

_EXPERIMENT = Path(__file__).resolve().parents[3] / "benchmarks" / "trivial"
_SECONDS = 240.0
_STUDY = """
name: {name}
experiment: trivial
fixed: {{seconds: {seconds}}}
space: {{x: {{grid: {points}}}}}
replicates: 1
resources: {{pack: 4, concurrency: {concurrency}}}
"""


@contextmanager
def _running(
    head: Head, folder: Path, name: str, points: int, seconds: float, concurrency: int | str
) -> Iterator[subprocess.Popen[bytes]]:
    study, values = folder / f"{name}.yaml", [i / points for i in range(points)]
    study.write_text(
        _STUDY.format(name=name, points=values, seconds=seconds, concurrency=concurrency)
    )
    uri = tracking.create(f"sqlite:///{folder}/{name}.db")
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": head.token}
    process = subprocess.Popen(
        [sys.executable, "-m", "sweeps", "run", str(study), "--name", name, "--quiet",
         "--address", head.gcs, "--storage", str(folder), "--tracking-uri", uri],
        env={**os.environ, **token, "PYTHONPATH": _path()},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _path() -> str:
    return os.pathsep.join([str(_EXPERIMENT), os.environ["PYTHONPATH"]])


def _packs(folder: Path, name: str) -> int:
    """Packs in training, by the driver's heartbeat."""
    path = folder / name / "progress.json"
    beat = json.loads(path.read_text()) if path.exists() else {}
    return int((beat.get("use") or {}).get("packs", 0))


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.ray
@pytest.mark.slow
def test_a_sweep_with_less_concurrency_leaves_the_rest_to_another(tmp_path: Path) -> None:
    with (
        ray_head(2, PYTHONPATH=_path()) as head,
        _running(head, tmp_path, "first", 48, 0.5, concurrency=1) as first,
    ):
        _wait_for(lambda: _packs(tmp_path, "first") == 1)
        with _running(head, tmp_path, "second", 8, 0.1, concurrency="auto") as second:
            assert second.wait(_SECONDS) == 0
            assert first.wait(_SECONDS) == 0


@pytest.mark.ray
@pytest.mark.slow
def test_a_sweep_waits_for_another_that_has_all_cpus_and_then_finishes(tmp_path: Path) -> None:
    with (
        ray_head(2, PYTHONPATH=_path()) as head,
        _running(head, tmp_path, "first", 48, 0.5, concurrency="auto") as first,
    ):
        _wait_for(lambda: _packs(tmp_path, "first") == 2)
        with _running(head, tmp_path, "second", 8, 0.1, concurrency="auto") as second:
            assert first.wait(_SECONDS) == 0
            assert second.wait(_SECONDS) == 0
