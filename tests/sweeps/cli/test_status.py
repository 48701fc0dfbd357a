"""`sweeps status` on a sweep in a ledger, and the status file of a cluster's job."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from small_sweeps import write_sweep
from typer.testing import CliRunner

from cluster.errors import UnreachableError
from cluster.jobs import Job
from privnets.membership.config import MembershipConfig
from privnets.points import Replicate
from sweeps.cli import submit
from sweeps.cli.main import app
from sweeps.planning.plan import make_plan
from sweeps.remote import logs
from sweeps.store.status import Outage, SweepStatus
from sweeps.study.spec import Study

SWEEP = "single"
ADVANTAGE, ACCURACY = "privacy/membership_advantage", "utility/test_accuracy"


FAILURE = "InvalidParameterError: The 'max_depth' parameter"


@pytest.fixture
def storage(tmp_path: Path) -> str:
    """A sweep of three points with one replicate each, so that no interval is defined."""
    study = Study.model_validate(
        {
            "name": "single",
            "experiment": "membership",
            "fixed": {"dataset": "digits", "model": "logistic"},
            "space": {"train_size": {"grid": [50, 100, 150]}},
            "replicates": 1,
            "objectives": {ADVANTAGE: "min", ACCURACY: "max"},
        }
    )

    def replicate_of(config: MembershipConfig, seed: int) -> Replicate:
        if config.train_size == 150:
            return Replicate(seed, dict.fromkeys((ADVANTAGE, ACCURACY), math.nan), failure=FAILURE)
        return Replicate(seed, {ADVANTAGE: 0.2, ACCURACY: 0.9}, finished_at=1.7e9)

    write_sweep(tmp_path, SWEEP, make_plan(study), replicate_of)
    return str(tmp_path)


def test_status_shows_a_sweep_with_one_replicate_and_reasons_of_failures(storage: str) -> None:
    ended = CliRunner().invoke(app, ["status", SWEEP, "--storage", storage])
    assert ended.exit_code == 0, ended.output
    assert "points   2 of 3 finished, 1 failed, 0 pending" in ended.output
    assert f"failed   1 point: {FAILURE}" in ended.output
    assert "front so far: 2 points" in ended.output
    assert "train_size" in ended.output


def test_status_names_an_outage_of_mlflow(storage: str) -> None:
    beat = SweepStatus(
        phase="training",
        updated_at=datetime.now(UTC),
        outage=Outage(1.7e9, "the server does not answer", 2),
    )
    Path(storage, SWEEP, "progress.json").write_text(beat.model_dump_json())
    shown = CliRunner().invoke(app, ["status", SWEEP, "--storage", storage]).output
    assert "outage   no points have reached MLflow since 2023-11-14" in shown
    assert "(2 wait, training continues): the server does not answer" in shown


class _ReplacedHead:
    """Job server that is away for a while, and then knows the sweep by a new job alone."""

    address = "http://head:8265"

    def __init__(self) -> None:
        running, done = Job("sweep-single", "RUNNING"), Job("sweep-single", "SUCCEEDED")
        away = UnreachableError("no answer from http://head:8265")
        self._replies: Iterator[tuple[Job | Exception | None, str]] = iter(
            [
                (running, "old: one\n"),
                (running, "old: one\nold: two\n"),
                (away, ""),
                (None, ""),
                (running, "new: one\n"),
                (done, "new: one\nnew: two\n"),
            ]
        )

    def find(self, job_id: str) -> Job | None:
        reply, self._text = next(self._replies)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def list_jobs(self) -> list[Job]:
        return []

    def log(self, job_id: str) -> str:
        return self._text


def test_following_a_log_survives_a_head_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    head = _ReplacedHead()
    monkeypatch.setattr(submit, "connect_job_server", lambda address: head)
    monkeypatch.setattr(logs, "_POLL_SECONDS", 0.0)
    shown = CliRunner().invoke(app, ["logs", SWEEP, "--follow", "--address", head.address])
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines() == ["old: one", "old: two", "new: one", "new: two"]
    assert shown.stderr.count("Connection lost, trying again") == 1
    assert "Connected again." in shown.stderr
