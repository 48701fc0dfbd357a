"""Processes are killed for good (`kill -9`) at several moments: nothing is lost or doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import psutil
import pytest
from mlflow_server import free_port, mlflow_server
from small_sweeps import (
    STUDY,
    assert_same_numbers,
    contents,
    numbers,
    rows,
    small_plan,
    study_file,
)
from stores import new_store

import tracking
from sweeps.analysis.results import open_result
from sweeps.engine.executor import RunOutcome, execute
from sweeps.publishing.publisher import publish_all
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import read_manifest

if TYPE_CHECKING:
    from cluster import Connection

T = TypeVar("T")
_PATIENCE = 240.0
_GONE_SECONDS = 120.0
PACKS = 8
_TURNSTILE = Path(__file__).parents[1] / "turnstile"

pytestmark = pytest.mark.ray


def wait_until(condition: Callable[[], T], over: threading.Event | None = None) -> T:
    """Waits until a condition is true, and returns its value; fails once `over` is set."""
    deadline = time.monotonic() + _PATIENCE
    while not (found := condition()):
        late = time.monotonic() > deadline or (over is not None and over.is_set())
        assert not late, "what the test waits for did not come about"
        time.sleep(0.05)
    return found


def count_packs(folder: Path) -> int:
    return len(list((folder / "ledger").glob("*.parquet")))


def assert_as_uninterrupted(storage: Path, sweep: str, uri: str, reference: RunOutcome) -> None:
    """None lost, none doubled, the same numbers, the same front; and MLflow agrees."""
    ledger = Ledger(str(storage), sweep)
    expected = Ledger(reference.result.storage, reference.result.sweep)
    assert sorted(rows(ledger)) == sorted(rows(expected))
    assert_same_numbers(numbers(ledger), numbers(expected))
    assert ledger.unreadable == {}
    result = open_result(sweep, str(storage))
    assert set(result.front()["point_id"]) == set(reference.result.front()["point_id"])
    assert tracking.compare(result.tradeoff_points, sweep, uri) == []
    assert list((storage / sweep).glob("checkpoints/*")) == []


@contextmanager
def meanwhile(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Runs a function beside the block; its event is set when the block ends."""
    failed: list[BaseException] = []
    over = threading.Event()

    def guard() -> None:
        try:
            work(over)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=guard)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if failed:
        raise failed[0]


def workers(but: set[int]) -> list[psutil.Process]:
    """The actors that are training, except those that were killed already."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            title = " ".join(process.cmdline())
        except psutil.NoSuchProcess:
            continue
        # Tune does not retry a pack whose actor dies while it is handed over.
        if title.strip().endswith("Trainable.train") and process.pid not in but:
            found.append(process)
    return found


def test_killed_workers_are_replaced_without_output(
    local_ray: Connection,
    uninterrupted: RunOutcome,
    tracking_uri: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    killed: set[int] = set()

    def kill_now_and_then(over: threading.Event) -> None:
        for moment in range(2):  # early: the rest takes long enough for the next to be seen
            wait_until(lambda n=moment: count_packs(tmp_path / "sweep") >= n, over)
            (victim, *_) = wait_until(lambda: workers(killed), over)
            victim.kill()
            killed.add(victim.pid)

    with meanwhile(kill_now_and_then):
        outcome = execute(
            small_plan(tmp_path, "resources.concurrency=1", "resources.pack=2"),
            sweep="sweep",
            storage=str(tmp_path),
            tracking_uri=tracking_uri,
        )
    assert len(killed) == 2
    assert (outcome.exit_code, dict(outcome.failures)) == (0, {})
    assert capfd.readouterr().out == ""
    assert_as_uninterrupted(tmp_path, "sweep", tracking_uri, uninterrupted)


@pytest.mark.slow
def test_a_killed_driver_is_resumed(
    uninterrupted: RunOutcome, tracking_uri: str, tmp_path: Path
) -> None:
    folder = tmp_path / "driven"
    started = lambda: (folder / "spec.yaml").exists()  # noqa: E731
    moments = [started, lambda: count_packs(folder) >= 2, lambda: count_packs(folder) == PACKS]
    command = ["run", str(study_file(tmp_path)), "--name", "driven"]
    before: dict[str, tuple[int, bytes]] = {}
    for moment in moments:
        driver = drive(tmp_path, tracking_uri, command)
        wait_until(moment)
        kill_with_descendants_watched(driver)
        now = read_packs(folder)
        assert {name: now[name] for name in before} == before, "a finished pack was trained again"
        before = now
        command = ["resume", "driven"]
    last = drive(tmp_path, tracking_uri, command)
    assert last.wait(_PATIENCE) == 0
    assert contents(folder / "ledger") == before
    assert_as_uninterrupted(tmp_path, "driven", tracking_uri, uninterrupted)
    assert drive(tmp_path, tracking_uri, ["verify", "driven"]).wait(_PATIENCE) == 0


def read_packs(sweep: Path) -> dict[str, tuple[int, bytes]]:
    """Packs in the ledger, without temporary files that a kill left behind."""
    found = contents(sweep / "ledger")
    return {name: content for name, content in found.items() if not name.startswith(".")}


def drive(
    storage: Path,
    uri: str,
    command: list[str],
    said: int | None = None,
    code: str = "from sweeps.cli.main import main; main()",
) -> subprocess.Popen[bytes]:
    """A `sweeps` command in a process of its own, as if typed in a terminal of its own."""
    arguments = [*command, "--storage", str(storage), "--tracking-uri", uri]
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=storage, stdout=said, stderr=said, start_new_session=True,
    )  # fmt: skip


def kill_with_descendants_watched(driver: subprocess.Popen[bytes]) -> list[Path]:
    """Kills a driver, and waits until every process it had started has ended by itself.

    Returns:
        The directories of its local Ray, which must be gone then.
    """
    descendants = psutil.Process(driver.pid).children(recursive=True)
    directories = []
    for process in descendants:
        with suppress(psutil.NoSuchProcess):
            if "cluster.local_ray" in (words := process.cmdline()):
                directories.append(Path(words[-1]))
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    _, alive = psutil.wait_procs(descendants, timeout=_GONE_SECONDS)
    assert [" ".join(p.cmdline()) for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []
    assert [directory for directory in directories if directory.exists()] == []
    return directories


@pytest.mark.slow
def test_a_stopped_driver_says_how_to_continue(
    uninterrupted: RunOutcome, tracking_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped with one pack more than before, as there are tickets for no others."""
    tickets = tmp_path / "tickets"
    tickets.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(_TURNSTILE))
    monkeypatch.setenv("PRIVNETS_TURNSTILE", str(tickets))
    study = study_file(tmp_path, STUDY.replace("experiment: membership", "experiment: turnstile"))
    command = ["run", str(study), "--name", "stopped"]
    before: dict[str, tuple[int, bytes]] = {}
    for number, code in ((signal.SIGUSR1, 138), (signal.SIGTERM, 143)):
        (tickets / "one").touch()
        said = stop(tmp_path, tracking_uri, command, len(before) + 1, number, code)
        assert f"sweeps resume stopped --storage {tmp_path}" in said
        now = contents(tmp_path / "stopped" / "ledger")
        assert {name: now[name] for name in before} == before
        assert len(now) == len(before) + 1
        before, command = now, ["resume", "stopped"]
    for ticket in range(PACKS):
        (tickets / str(ticket)).touch()
    assert drive(tmp_path, tracking_uri, command).wait(_PATIENCE) == 0
    after = contents(tmp_path / "stopped" / "ledger")
    assert {name: after[name] for name in before} == before
    assert_trained_as(tmp_path, "stopped", tracking_uri, uninterrupted)


def assert_trained_as(storage: Path, sweep: str, uri: str, reference: RunOutcome) -> None:
    """Like `assert_as_uninterrupted`, for another experiment, whose points have other ids."""
    ledger = Ledger(str(storage), sweep)
    assert len(rows(ledger)) == PACKS
    expected = Ledger(reference.result.storage, reference.result.sweep)
    assert_same_numbers(by_knob(ledger), by_knob(expected))
    assert ledger.unreadable == {}
    assert tracking.compare(open_result(sweep, str(storage)).tradeoff_points, sweep, uri) == []
    assert list((storage / sweep).glob("checkpoints/*")) == []


def by_knob(ledger: Ledger) -> dict[tuple[str, int], dict[str, float]]:
    """Every replicate's metrics, by what is swept."""
    knobs = {point.point_id: str(point.config["weight_decay"]) for point in ledger.read_points()}
    return {(knobs[point], seed): found for (point, seed), found in numbers(ledger).items()}


def stop(storage: Path, uri: str, command: list[str], packs: int, number: int, code: int) -> str:
    """Send a driver a signal once packs are committed; what it said, after all its processes."""
    with (storage / "said").open("wb+") as said:
        driver = drive(storage, uri, command, said.fileno())
        wait_until(lambda: count_packs(storage / "stopped") >= packs)
        descendants = psutil.Process(driver.pid).children(recursive=True)
        os.kill(driver.pid, number)
        assert driver.wait(_PATIENCE) == code
        assert psutil.wait_procs(descendants, timeout=_GONE_SECONDS)[1] == []
        said.seek(0)
        return said.read().decode()


@pytest.mark.slow
def test_a_killed_tracking_server_does_not_stop_the_sweep(
    local_ray: Connection, uninterrupted: RunOutcome, tmp_path: Path
) -> None:
    server_folder, port = tmp_path / "server", free_port()
    server_folder.mkdir()
    store = new_store(server_folder)
    with mlflow_server(server_folder, port) as server:
        uri = server.uri

        def kill_in_the_middle(over: threading.Event) -> None:
            """Kills the server between the first and the last published point."""
            half = PACKS // 2
            wait_until(
                lambda: count_packs(tmp_path / "sweep") >= half or count_published(store), over
            )
            server.kill()

        with meanwhile(kill_in_the_middle):
            outcome = execute(
                small_plan(tmp_path), sweep="sweep", storage=str(tmp_path), tracking_uri=uri
            )
        assert outcome.exit_code == 0
        assert not outcome.published.whole
    with mlflow_server(server_folder, port) as server:
        ledger = Ledger(str(tmp_path), "sweep")

        def kill_in_the_middle_of_a_sync(over: threading.Event) -> None:
            wait_until(lambda: count_published(store) >= 2 or over.is_set())
            server.kill()

        with meanwhile(kill_in_the_middle_of_a_sync):
            publish_all(ledger, read_manifest(ledger), uri)
    with mlflow_server(server_folder, port):
        assert publish_all(ledger, read_manifest(ledger), uri).whole
        assert_as_uninterrupted(tmp_path, "sweep", uri, uninterrupted)


def count_published(store: str) -> int:
    """Number of points in a store, read without its server."""
    try:
        return len(tracking.load_points("sweep", store))
    except tracking.TrackingError:
        return 0
