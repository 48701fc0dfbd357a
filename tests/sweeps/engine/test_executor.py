"""A sweep from its plan to its front, on a real Ray and a real tracking store."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from small_sweeps import STUDY, assert_same_numbers, contents, numbers, rows, small_plan, study_file
from stores import new_store
from typer.testing import CliRunner

import privnets
import tracking
from sweeps.analysis.results import Result, open_result
from sweeps.engine.executor import RunOutcome, execute
from sweeps.errors import InputError
from sweeps.report.figures import FIGURE_FILES
from sweeps.report.summary import SUMMARY_FILES, write_summary
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import read_manifest
from sweeps.store.status import SweepStatus
from tracking import TrackingError

if TYPE_CHECKING:
    from cluster import Connection


pytestmark = pytest.mark.ray

_TURNSTILE = Path(__file__).parents[1] / "turnstile"


def ledger_of(outcome: RunOutcome) -> Ledger:
    return Ledger(outcome.result.storage, outcome.result.sweep)


def test_every_replicate_is_in_the_ledger_once(uninterrupted: RunOutcome) -> None:
    plan = small_plan(Path(uninterrupted.result.storage))
    found = rows(ledger_of(uninterrupted))
    assert sorted(found) == sorted((r.point_id, r.seed) for r in plan.replicates())
    assert uninterrupted.exit_code == 0


def test_a_point_is_what_the_experiment_alone_computes(uninterrupted: RunOutcome) -> None:
    plan = small_plan(Path(uninterrupted.result.storage))
    alone = privnets.experiment("membership").run([r.config for r in plan.replicates()])
    expected = {(p.point_id, r.seed): dict(r.metrics) for p in alone for r in p.replicates}
    assert_same_numbers(numbers(ledger_of(uninterrupted)), expected)


def test_mlflow_holds_the_same_points(uninterrupted: RunOutcome, tracking_uri: str) -> None:
    result = uninterrupted.result
    assert uninterrupted.published.whole
    assert tracking.compare(result.tradeoff_points, "reference", tracking_uri) == []
    recorded = tracking.load_points("reference", tracking_uri).set_index("point_id")
    ours = result.points.set_index("point_id")
    columns = list(result.objectives)
    pd.testing.assert_frame_equal(
        recorded[columns].sort_index(), ours[columns].sort_index(), check_exact=True
    )


def test_the_sweep_leaves_its_summary_and_no_checkpoint(uninterrupted: RunOutcome) -> None:
    folder = Path(ledger_of(uninterrupted).directory.path)
    assert set(SUMMARY_FILES) - set(FIGURE_FILES) <= {path.name for path in folder.iterdir()}
    assert list(folder.glob("checkpoints/*")) == []
    assert "plotly" in (folder / "report.html").read_text()
    front = pd.read_parquet(folder / "front.parquet")
    assert sorted(front["point_id"]) == sorted(uninterrupted.result.front()["point_id"])


def test_the_log_is_complete_before_the_last_heartbeat(uninterrupted: RunOutcome) -> None:
    """A reader that follows the log stops at the last heartbeat."""
    folder = Path(ledger_of(uninterrupted).directory.path)
    log, heartbeat = folder / "log.txt", folder / "progress.json"
    assert "ended: 4 finished" in log.read_text().splitlines()[-1]
    assert log.stat().st_mtime_ns <= heartbeat.stat().st_mtime_ns


def test_an_error_that_ends_a_run_is_in_its_log(
    tracking_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(run: object) -> None:
        raise ZeroDivisionError("unforeseen")

    monkeypatch.setattr("sweeps.engine.executor.run_pending_packs", fail)
    with pytest.raises(ZeroDivisionError):
        execute(
            small_plan(tmp_path), sweep="ended", storage=str(tmp_path), tracking_uri=tracking_uri
        )
    assert "failed: ZeroDivisionError: unforeseen" in (tmp_path / "ended" / "log.txt").read_text()


def test_a_pack_that_fails_stops_no_other_and_only_missing_replicates_are_trained_later(
    local_ray: Connection,
    uninterrupted: RunOutcome,
    tracking_uri: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Each retry starts a worker, which takes seconds; one retry shows as much as three.
    monkeypatch.setattr("sweeps.engine.tune_backend._MAX_RETRIES", 1)
    # A file in the place of one point's artifact directory: that point cannot be written.
    changes = ("replicates=1", "resources.concurrency=1")
    plan = small_plan(tmp_path, *changes)
    lost, *kept = plan.points
    blocked = tmp_path / "broken" / "artifacts" / lost.point_id
    blocked.parent.mkdir(parents=True)
    blocked.write_bytes(b"")
    outcome = execute(plan, sweep="broken", storage=str(tmp_path), tracking_uri=tracking_uri)
    assert outcome.exit_code == 1
    (reason,) = outcome.failures.values()
    assert blocked.name in reason
    finished = {point.point_id for point in outcome.result.tradeoff_points}
    assert finished == {point.point_id for point in kept}
    assert tracking.compare(outcome.result.tradeoff_points, "broken", tracking_uri) == []

    blocked.unlink()
    absent, damaged, intact = sorted((tmp_path / "broken" / "ledger").glob("*.parquet"))
    absent.unlink()
    damaged.write_bytes(damaged.read_bytes()[:-1])
    before = intact.stat().st_mtime_ns, intact.read_bytes()
    states: list[SweepStatus] = []
    mended = execute(
        plan,
        sweep="broken",
        storage=str(tmp_path),
        tracking_uri=tracking_uri,
        on_progress=states.append,
    )
    assert (mended.exit_code, dict(mended.failures)) == (0, {})
    assert read_manifest(ledger_of(mended)).study.resources.gpus == "auto"
    assert (intact.stat().st_mtime_ns, intact.read_bytes()) == before
    assert states[-1].counts.complete == 4
    assert [s.counts.complete for s in states] == sorted(s.counts.complete for s in states)
    (seed,) = plan.seeds
    expected = numbers(ledger_of(uninterrupted))
    assert_same_numbers(
        numbers(ledger_of(mended)), {m: expected[m] for m in expected if m[1] == seed}
    )


def test_an_exception_of_user_code_fails_its_pack_at_once_with_file_and_line(
    local_ray: Connection,
    turnstile_tickets: Path,
    tracking_uri: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another attempt would fail alike; only lost workers are replaced."""
    from sweeps.cli.main import app

    monkeypatch.syspath_prepend(_TURNSTILE)
    attempts = turnstile_tickets / "failures"
    attempts.mkdir()
    text = STUDY.replace("experiment: membership", "experiment: turnstile")
    command = [
        "run", str(study_file(tmp_path, text)), "--name", "failing",
        "--set", "replicates=1", "--set", "space.weight_decay={grid: [0.1]}",
        "--storage", str(tmp_path), "--tracking-uri", tracking_uri,
    ]  # fmt: skip
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 1, ran.output
    assert "TypeError: a broken model (" in ran.stderr
    assert f"{_TURNSTILE / 'privnets_turnstile.py'}, line " in ran.stderr
    assert len(list(attempts.iterdir())) == 1
    shutil.rmtree(attempts)
    (failure,) = (tmp_path / "failing" / "failures").iterdir()
    assert "Traceback" in json.loads(failure.read_text())["details"]


def test_result_tables_have_a_row_per_point_and_per_replicate(uninterrupted: RunOutcome) -> None:
    result = open_result("reference", uninterrupted.result.storage)
    assert len(result.points) == 4
    assert len(result.replicates) == 8
    assert set(result.front()["point_id"]) <= set(result.points["point_id"])
    assert (result.pending, dict(result.failures), dict(result.unreadable)) == (0, {}, {})


@pytest.mark.parametrize("case", ["tracking", "address", "storage", "name"])
def test_bad_input_starts_and_writes_nothing(
    case: str, uninterrupted: RunOutcome, tracking_uri: str, tmp_path: Path
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_bytes(b"")
    good = {"sweep": "new", "storage": str(tmp_path / "s"), "tracking_uri": tracking_uri}
    bad: dict[str, dict[str, str]] = {
        "tracking": {"tracking_uri": "http://127.0.0.1:1"},
        "address": {"address": "127.0.0.1:1"},
        "storage": {"storage": str(blocked / "inside")},
        "name": {"sweep": "../new"},
    }
    with pytest.raises((InputError, TrackingError)):
        execute(small_plan(tmp_path), **{**good, **bad[case]})
    assert not (tmp_path / "s").exists()
    assert tracking_lacks("new", tracking_uri)


def test_a_machine_too_small_for_a_pack_is_reported_before_anything_is_written(
    tracking_uri: str, tmp_path: Path
) -> None:
    plan = small_plan(tmp_path, "resources.cpus=4096")
    with pytest.raises(InputError, match="4,096 CPUs"):
        execute(plan, sweep="new", storage=str(tmp_path / "s"), tracking_uri=tracking_uri)
    assert not (tmp_path / "s").exists()


def tracking_lacks(sweep: str, uri: str) -> bool:
    try:
        tracking.load_points(sweep, uri)
    except TrackingError as error:
        return "does not contain a sweep" in str(error)
    return False


def test_the_notice_of_a_scheduler_stops_a_run_in_order(
    local_ray: Connection, tracking_uri: str, tmp_path: Path
) -> None:
    """Tune has a handler of SIGUSR1 of its own, which would end the run as failed."""
    sent: list[int] = []

    def announce_end(progress: SweepStatus) -> None:
        if progress.use is not None and progress.use.packs and not sent:
            sent.append(signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGUSR1)

    outcome = execute(
        small_plan(tmp_path, "replicates=8", "resources.pack=1", "resources.concurrency=1"),
        sweep="noticed",
        storage=str(tmp_path),
        tracking_uri=tracking_uri,
        on_progress=announce_end,
    )
    assert sent
    assert (outcome.interrupted_by, outcome.exit_code) == (signal.SIGUSR1, 138)
    assert not outcome.has_report


@pytest.mark.parametrize(
    ("signals", "ending"),
    [(1, "Stopped."), pytest.param(2, "Stopped at once.", marks=pytest.mark.slow)],
)
def test_a_signal_after_training_lets_the_summary_be_written_and_a_second_does_not(
    signals: int,
    ending: str,
    uninterrupted: RunOutcome,
    tracking_uri: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sweeps.cli.main import app
    from sweeps.engine import executor as driver

    shutil.copytree(uninterrupted.result.storage, tmp_path, dirs_exist_ok=True)
    before = contents(tmp_path / "reference" / "ledger")
    report = tmp_path / "reference" / "report.html"
    report.unlink()

    def terminated(ledger: Ledger, result: Result) -> None:
        for _ in range(signals):
            os.kill(os.getpid(), signal.SIGTERM)
        write_summary(ledger, result)

    monkeypatch.setattr(driver, "write_summary", terminated)
    command = ["resume", "reference", "--storage", str(tmp_path), "--tracking-uri", tracking_uri]
    said = CliRunner().invoke(app, command)
    assert said.exit_code == 143
    assert f"{ending} Continue with:" in said.output
    assert report.exists() == (signals == 1)
    assert contents(tmp_path / "reference" / "ledger") == before
    assert ("4 of 4 points finished" in said.output) == (signals == 1)


def test_verify_and_sync_report_the_state_of_the_store(
    uninterrupted: RunOutcome, tracking_uri: str, tmp_path: Path
) -> None:
    from sweeps.cli.main import app

    empty = new_store(tmp_path, "other.db")
    where = ["reference", "--storage", uninterrupted.result.storage]
    runner = CliRunner()
    equal = runner.invoke(app, ["verify", *where, "--tracking-uri", tracking_uri])
    assert (equal.exit_code, "hold the same 4 points" in equal.output) == (0, True)
    first = runner.invoke(app, ["sync", *where, "--tracking-uri", empty])
    assert (first.exit_code, "4 points of reference are in" in first.output) == (0, True)
    assert runner.invoke(app, ["verify", *where, "--tracking-uri", empty]).exit_code == 0
    again = runner.invoke(app, ["sync", *where, "--tracking-uri", empty])
    assert again.exit_code == 0
    assert tracking.compare(uninterrupted.result.tradeoff_points, "reference", empty) == []
    lost = tracking.compare(uninterrupted.result.tradeoff_points[:3], "reference", empty)
    assert len(lost) == 1
    assert "only in MLflow" in lost[0]
