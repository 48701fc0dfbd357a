"""Workers of a run as the driver knows them, without a Ray."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from ray.exceptions import RayActorError
from ray.tune.experiment import Trial
from small_sweeps import small_plan

from sweeps.engine import tune_backend
from sweeps.engine.pack_sources import PackSource
from sweeps.engine.tune_backend import Workers
from sweeps.planning.packing import Pack
from sweeps.study.spec import Resources

ENDED = {
    "share": 1.0, "live": {}, "node": "n", "has_ended": True,
    "problem": None, "failure": None, "details": None, "divides": False,
}  # fmt: skip


def test_a_pack_does_not_fail_because_the_pack_before_it_was_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report of a pack's end may lie in Tune's queue when its time limit is reached."""
    killed = Mock()
    monkeypatch.setattr("ray.kill", killed)
    first, second = (Pack.of("membership", [r]) for r in small_plan(tmp_path).replicates()[:2])
    study, failures = SimpleNamespace(resources=Resources(time_limit=1e-9)), list[Pack]()
    run: Any = SimpleNamespace(
        plan=SimpleNamespace(study=study),
        tracker=Mock(),
        fail_pack=lambda pack, *reasons: failures.append(pack),
    )
    source, handle = PackSource([first, second]), Mock()
    workers = Workers(source, run, 1)
    assert workers.request("trial")
    workers.start("trial")
    workers.report("trial", {"worker": handle})
    workers.poll()
    killed.assert_called_once_with(handle)
    workers.report("trial", ENDED)
    workers.end("trial", "Failure # 1\nThe actor died")
    assert failures == []
    assert workers.request("another")
    workers.start("another")
    workers.report("another", {"worker": handle})
    assert [second.pack_id in call.args[0] for call in handle.accept.remote.mock_calls] == [
        False,
        True,
    ]


class _Preempted(RayActorError):
    """Loss of an actor whose node was asked to end, as clouds and SLURM do."""

    preempted = True


def test_tune_restarts_no_worker_of_a_preempted_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trial, "local_path", None)
    trial = Trial("stub", stub=True)
    with tune_backend._quiet_tune():
        trial.handle_error(_Preempted())
    assert not trial.should_recover()
