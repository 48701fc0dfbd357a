"""One process runs a sweep; one that is dead does not count, wherever it was."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sweeps.engine.signals import Interrupted, catch_stop_signals
from sweeps.errors import InputError
from sweeps.store.ledger import Ledger
from sweeps.store.locking import locked

_HOLDER = """
import sys
from sweeps.store.ledger import Ledger
from sweeps.store.locking import locked
with locked(Ledger(sys.argv[1], "sweep")):
    print("locked", flush=True)
    sys.stdin.read()
"""
_ELSEWHERE = {"kernel": "another", "host": "node7", "process": 4711}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(str(tmp_path), "sweep")


@contextmanager
def holder(
    ledger: Ledger, says: dict[str, object] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the lock, and perhaps is on another machine, to go by what it says."""
    command = [sys.executable, "-c", _HOLDER, ledger.directory.parent.path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        if says is not None:
            Path(ledger.directory.path, ".lock").write_text(json.dumps(says))
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("patience", [None, 60.0])
def test_a_second_run_on_a_machine_is_refused_at_once(
    ledger: Ledger, patience: float | None
) -> None:
    """Also where the file system may be another machine's."""
    with holder(ledger) as first:
        began = time.monotonic()
        with (
            pytest.raises(InputError, match="being run by another process"),
            locked(ledger, patience=patience),
        ):
            pytest.fail("begun")
        assert time.monotonic() - began < 10
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        with locked(ledger):
            pass


def test_the_lock_of_a_machine_that_is_gone_is_waited_for(
    ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    with holder(ledger, _ELSEWHERE) as dead:
        threading.Timer(3.0, dead.kill).start()
        with locked(ledger, patience=60.0):
            assert dead.wait() == -signal.SIGKILL
        assert (
            json.loads(Path(ledger.directory.path, ".lock").read_text())["process"] == os.getpid()
        )
    told = capsys.readouterr().err
    assert told.count("locked by a run on node7 (process 4711)") == 1
    assert "waiting for up to 60 s" in told


def test_the_lock_of_another_machine_is_not_waited_for_without_end(ledger: Ledger) -> None:
    with (
        holder(ledger, _ELSEWHERE),
        pytest.raises(InputError, match=r"on node7 .* not let go of its lock within 2 s;.*\.lock"),
        locked(ledger, patience=2.0),
    ):
        pytest.fail("begun")


def test_a_lock_that_was_deleted_while_it_was_waited_for_is_no_lock(ledger: Ledger) -> None:
    """Another run locks a new file then, and goes on when the holder of the old one dies."""
    waited, swapped, ended = threading.Event(), threading.Event(), []

    @contextmanager
    def waiting() -> Iterator[None]:
        waited.set()
        assert swapped.wait(60)
        yield

    def wait() -> None:
        try:
            with locked(ledger, waiting, patience=1.0):
                ended.append("begun")
        except InputError as error:
            ended.append(str(error))

    waiter = threading.Thread(target=wait)
    with holder(ledger, _ELSEWHERE) as dying:
        waiter.start()
        assert waited.wait(60)
        Path(ledger.directory.path, ".lock").unlink()
    assert dying.wait() == -signal.SIGKILL
    with holder(ledger, _ELSEWHERE | {"host": "node8"}):
        swapped.set()
        waiter.join()
    assert "is being run on node8" in ended[0]


def test_a_lock_that_is_deleted_just_before_it_is_locked_is_no_lock(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, flock = Path(ledger.directory.path, ".lock"), fcntl.flock

    def late(descriptor: int, operation: int) -> None:
        monkeypatch.undo()
        lock.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with locked(ledger), pytest.raises(InputError, match="another process"), locked(ledger):
        pytest.fail("begun")


def test_waiting_for_a_lock_ends_with_the_first_signal(ledger: Ledger) -> None:
    with holder(ledger, _ELSEWHERE), catch_stop_signals() as interruption:
        timer = threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGTERM))
        timer.start()
        with pytest.raises(Interrupted), locked(ledger, interruption.interruptible, patience=60.0):
            pytest.fail("begun")
        timer.join()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"process": "x"}', "x" * 5000])
def test_whatever_a_lock_holds_it_is_taken(ledger: Ledger, content: str) -> None:
    Path(ledger.directory.path).mkdir()
    lock = Path(ledger.directory.path, ".lock")
    lock.write_text(content)
    with locked(ledger):
        assert json.loads(lock.read_text())["process"] == os.getpid()


@pytest.mark.parametrize("trouble", ["file", "folder", "link", "name", "pipe"])
def test_a_place_that_cannot_be_locked_is_told_of(
    ledger: Ledger, tmp_path: Path, trouble: str
) -> None:
    """Nor is anything written to what a lock would lead to."""
    place, other = tmp_path / "sweep", tmp_path / "other"
    other.write_text("untouched")
    if trouble == "file":
        place.write_text("")
    else:
        place.mkdir()
    if trouble == "folder":
        (place / ".lock").mkdir()
    elif trouble == "link":
        (place / ".lock").symlink_to(other)
    elif trouble == "name":
        (place / ".lock").hardlink_to(other)
    elif trouble == "pipe":
        os.mkfifo(place / ".lock")
    with pytest.raises(InputError, match=r"sweep must be a directory .*with locks"), locked(ledger):
        pytest.fail("begun")
    assert other.read_text() == "untouched"
