"""One driver runs a sweep at a time, and only workers of its latest run write to it."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch
from pyarrow import fs
from test_ledger import parquet_of, point

from sweeps.errors import InputError
from sweeps.store.checkpoints import Checkpoint
from sweeps.store.filesystem import Directory
from sweeps.store.lease import (
    RunSupersededError,
    acquire_lease,
    check_lease,
)
from sweeps.store.ledger import Ledger
from sweeps.store.status import ResourceUse, SweepCounts, SweepStatus, read_status

_HOLDER = """
import sys
from sweeps.store.lease import acquire_lease
from sweeps.store.ledger import Ledger
with acquire_lease(Ledger(sys.argv[1], "sweep").directory):
    print("acquired", flush=True)
    sys.stdin.read()
"""
_USE = ResourceUse(packs=2, nodes=3, busy_nodes=2, cpus=8.0, busy_cpus=2.0, gpus=0.0, busy_gpus=0.0)
_NOW = datetime.now(UTC)
_STATUS = SweepStatus(updated_at=_NOW, points=4, share=0.25, rate=2.5, eta=60.0, use=_USE)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(str(tmp_path), "sweep")


@pytest.fixture
def bucket() -> Directory:
    """A sweep's directory on storage without locks."""
    return Directory(fs._MockFileSystem(), "bucket/sweep")


def ledger_of_run(ledger: Ledger, run_id: str | None) -> Ledger:
    """The ledger as a worker of that run has it."""
    return Ledger(ledger.storage, ledger.sweep, run_id)


def save_checkpoint(ledger: Ledger) -> None:
    Checkpoint(ledger, "pack", "label").save([], [("p0", 0)], {"x": torch.zeros(1)})


@contextmanager
def other_driver(ledger: Ledger) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the lease."""
    command = [sys.executable, "-c", _HOLDER, ledger.storage]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"acquired\n"
        try:
            yield process
        finally:
            process.kill()


def pretend_elsewhere(ledger: Ledger) -> None:
    """Changes a lease to that of a driver on another machine."""
    path = Path(ledger.directory.path, "lease.json")
    lease = json.loads(path.read_text()) | {"host": "node7", "process": 4711}
    path.write_text(json.dumps(lease))


def make_heartbeat_old(ledger: Ledger, seconds: float) -> None:
    for name in ("lease.json", "progress.json"):
        os.utime(Path(ledger.directory.path, name), (time.time() - seconds,) * 2)


def write_remote_lease(bucket: Directory, **changes: object) -> None:
    lease = {"run_id": uuid.uuid4().hex, "host": "node7", "process": 4711}
    bucket.write("lease.json", json.dumps(lease | changes).encode())


def refusal(sweep: Directory) -> str:
    with pytest.raises(InputError) as raised, acquire_lease(sweep):
        pytest.fail("acquired")
    return str(raised.value)


def test_second_driver_is_refused_until_the_first_is_dead(ledger: Ledger) -> None:
    with other_driver(ledger) as first:
        message = refusal(ledger.directory)
        assert f"is being run by process {first.pid} on this machine" in message
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        with acquire_lease(ledger.directory) as heartbeat:
            check_lease(heartbeat.directory)


def test_lock_of_a_living_process_on_this_machine_is_never_taken_over(ledger: Ledger) -> None:
    with other_driver(ledger) as first:
        os.kill(first.pid, signal.SIGSTOP)
        make_heartbeat_old(ledger, 3600)
        assert "on this machine" in refusal(ledger.directory)


def test_driver_on_another_machine_keeps_its_lease_while_it_writes_heartbeats(
    ledger: Ledger,
) -> None:
    with other_driver(ledger):
        pretend_elsewhere(ledger)
        message = refusal(ledger.directory)
        assert "is being run by process 4711 on node7" in message
        assert "if it is dead, try again 60 s after its last heartbeat" in message


def test_lock_that_a_file_server_keeps_for_a_dead_machine_is_taken_over(ledger: Ledger) -> None:
    with other_driver(ledger) as stopped:
        os.kill(stopped.pid, signal.SIGSTOP)
        first = json.loads(Path(ledger.directory.path, "lease.json").read_text())["run_id"]
        pretend_elsewhere(ledger)
        make_heartbeat_old(ledger, 120)
        with acquire_lease(ledger.directory):
            with pytest.raises(RunSupersededError):
                ledger_of_run(ledger, first).write_pack("pack", [point()])
            assert "being run by process" in refusal(ledger.directory)


def test_second_driver_is_refused_on_storage_without_locks(bucket: Directory) -> None:
    with acquire_lease(bucket) as first:
        assert f"is being run by process {os.getpid()}" in refusal(bucket)
        check_lease(first.directory)
    with acquire_lease(bucket):
        pass


def test_remote_lease_is_refused_while_it_is_fresh(bucket: Directory) -> None:
    write_remote_lease(bucket)
    assert "is being run by process 4711 on node7" in refusal(bucket)


def test_remote_lease_without_heartbeats_is_taken_over(
    bucket: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_remote_lease(bucket)
    monkeypatch.setattr("sweeps.store.lease.ABANDONED_SECONDS", -1.0)
    with acquire_lease(bucket) as heartbeat:
        check_lease(heartbeat.directory)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"process": "x"}', "x" * 5000])
def test_damaged_lease_file_is_replaced(ledger: Ledger, content: str) -> None:
    Path(ledger.directory.path).mkdir()
    path = Path(ledger.directory.path, "lease.json")
    path.write_text(content)
    with acquire_lease(ledger.directory):
        assert json.loads(path.read_text())["process"] == os.getpid()


@pytest.mark.parametrize("trouble", ["file", "folder", "link"])
def test_directory_that_cannot_be_locked_is_reported(
    ledger: Ledger, tmp_path: Path, trouble: str
) -> None:
    sweep, other = tmp_path / "sweep", tmp_path / "other"
    other.write_text("untouched")
    if trouble == "file":
        sweep.write_text("")
    else:
        sweep.mkdir()
    if trouble == "folder":
        (sweep / ".lock").mkdir()
    elif trouble == "link":
        (sweep / ".lock").symlink_to(other)
    assert "must be a writable directory on a file system with locks" in refusal(ledger.directory)
    assert other.read_text() == "untouched"


def test_workers_of_the_run_write(ledger: Ledger) -> None:
    with acquire_lease(ledger.directory) as heartbeat:
        ledger_of_run(ledger, heartbeat.directory.run_id).write_pack("pack", [point()])
    assert ledger.finished_replicates() == {("p0", 0)}


def test_workers_of_an_earlier_run_write_nothing(ledger: Ledger) -> None:
    with acquire_lease(ledger.directory) as first:
        pass
    superseded = ledger_of_run(ledger, first.directory.run_id)
    with acquire_lease(ledger.directory):
        with pytest.raises(RunSupersededError):
            superseded.write_pack("pack", [point(artifacts={"a": b""})])
        with pytest.raises(RunSupersededError):
            save_checkpoint(superseded)
        with pytest.raises(RunSupersededError):
            superseded.write_failure("pack", [], "of an earlier run")
    assert not (Path(ledger.directory.path) / "artifacts").exists()
    assert not (Path(ledger.directory.path) / "checkpoints").exists()
    assert not (Path(ledger.directory.path) / "failures").exists()
    assert ledger.pack_ids() == []


def test_workers_of_a_run_that_has_ended_write_nothing(ledger: Ledger) -> None:
    with acquire_lease(ledger.directory) as heartbeat:
        pass
    with pytest.raises(RunSupersededError):
        ledger_of_run(ledger, heartbeat.directory.run_id).write_pack("pack", [point()])


def test_workers_of_a_killed_driver_write_until_the_next_run_begins(ledger: Ledger) -> None:
    with other_driver(ledger) as driver:
        lease = json.loads(Path(ledger.directory.path, "lease.json").read_text())
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
    ledger_of_run(ledger, lease["run_id"]).write_pack("a", [point()])
    with acquire_lease(ledger.directory), pytest.raises(RunSupersededError):
        ledger_of_run(ledger, lease["run_id"]).write_pack("b", [point(seed=1)])
    assert ledger.finished_replicates() == {("p0", 0)}


def test_workers_do_not_recreate_a_deleted_sweep(ledger: Ledger) -> None:
    with acquire_lease(ledger.directory) as heartbeat:
        ledger.directory.remove()
        with pytest.raises(RunSupersededError):
            ledger_of_run(ledger, heartbeat.directory.run_id).write_pack("pack", [point()])
    assert not Path(ledger.directory.path).exists()


def test_pack_in_the_ledger_is_not_written_again(ledger: Ledger) -> None:
    """A second write would change times that were published already."""
    ledger.write_pack("pack", [point(finished_at=2.0)])
    before = parquet_of(ledger, "pack").stat()
    ledger.write_pack("pack", [point(finished_at=1.0)])
    after = parquet_of(ledger, "pack").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert os.listdir(parquet_of(ledger, "pack").parent) == ["pack.parquet"]


def test_damaged_pack_is_written_again(ledger: Ledger) -> None:
    ledger.write_pack("pack", [point()])
    parquet_of(ledger, "pack").write_bytes(b"PAR1")
    ledger.write_pack("pack", [point()])
    assert ledger.finished_replicates() == {("p0", 0)}
    assert ledger.unreadable == {}


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_exclusive_create_replaces_no_file(kind: str, tmp_path: Path) -> None:
    local = Directory(fs.LocalFileSystem(), f"{tmp_path}/folder")
    folder = local if kind == "local" else Directory(fs._MockFileSystem(), "bucket/folder")
    assert folder.create_exclusive("name", b"first")
    assert not folder.create_exclusive("name", b"second")
    assert folder.read("name") == b"first"
    assert not folder.temporary_files()


@pytest.mark.parametrize("where", ["", "ledger", "checkpoints/pack", "artifacts/p0"])
def test_temporary_files_of_killed_writers_are_deleted(ledger: Ledger, where: str) -> None:
    folder = Path(ledger.directory.path, where)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".name.{uuid.uuid4().hex}.{uuid.uuid4().hex}"
    others = [folder / "name", folder / ".hidden"]
    for path in (temporary, *others):
        path.write_bytes(b"x")
    with acquire_lease(ledger.directory):
        assert not temporary.exists()
        temporary.write_bytes(b"x")
    assert not temporary.exists()
    assert set(others) <= set(folder.iterdir())


def test_temporary_files_of_commands_are_kept_until_they_are_old(ledger: Ledger) -> None:
    """`sweeps sync` writes without a run, perhaps right now."""
    folder = Path(ledger.directory.path)
    folder.mkdir()
    new, old = (folder / f".report.html.{uuid.uuid4().hex}" for _ in range(2))
    for path in (new, old):
        path.write_bytes(b"x")
    os.utime(old, (time.time() - 7200,) * 2)
    with acquire_lease(ledger.directory):
        assert (new.exists(), old.exists()) == (True, False)
    assert new.exists()


def test_temporary_files_behind_a_link_are_kept(ledger: Ledger, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    temporary = other / f".name.{uuid.uuid4().hex}.{uuid.uuid4().hex}"
    temporary.write_bytes(b"x")
    Path(ledger.directory.path).mkdir()
    Path(ledger.directory.path, "artifacts").symlink_to(other)
    with acquire_lease(ledger.directory):
        assert temporary.exists()


def test_last_heartbeat_shows_the_last_progress(ledger: Ledger) -> None:
    with acquire_lease(ledger.directory) as writer:
        writer.phase = "training"
        writer.update(_STATUS)
    heartbeat = read_status(ledger.directory)
    assert heartbeat is not None
    assert (heartbeat.phase, heartbeat.is_final) == ("ended", True)
    shown = (heartbeat.share, heartbeat.rate, heartbeat.eta, heartbeat.use)
    assert shown == (0.25, 2.5, 60.0, _USE)
    assert writer.problem is None


def test_driver_that_raises_has_stopped(ledger: Ledger) -> None:
    with pytest.raises(KeyboardInterrupt), acquire_lease(ledger.directory):
        raise KeyboardInterrupt
    heartbeat = read_status(ledger.directory)
    assert heartbeat is not None
    assert heartbeat.phase == "stopped"


def test_heartbeat_that_cannot_be_written_is_a_problem_and_no_error(ledger: Ledger) -> None:
    with acquire_lease(ledger.directory) as writer:
        Path(ledger.directory.path, "progress.json").unlink(missing_ok=True)
        Path(ledger.directory.path, "progress.json").mkdir()
    assert writer.problem is not None
    assert "progress.json could not be written" in writer.problem


def test_superseded_driver_writes_no_heartbeat(ledger: Ledger) -> None:
    with acquire_lease(ledger.directory) as writer:
        ledger.directory.write("lease.json", b'{"run_id": "another"}')
        ledger.directory.write("progress.json", b"of the other driver")
        assert not writer.is_superseded
    assert ledger.directory.read("progress.json") == b"of the other driver"
    assert writer.is_superseded
    assert writer.problem is not None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"{}",
        b'{"phase": "training"}',
        b'{"phase": "training", "updated_at": "2026-01-01T00:00:00Z", "share": 7}',
        b'{"phase": "training", "updated_at": "2026-01-01T00:00:00Z", "use": {"packs": "many"}}',
        b"[" * 100_000,
        b" " * 1_000_000,
        b"\xff\xfe",
    ],
)
def test_damaged_heartbeat_counts_as_none(ledger: Ledger, content: bytes) -> None:
    ledger.directory.write("progress.json", content)
    assert read_status(ledger.directory) is None


def test_status_survives_json() -> None:
    counts = SweepCounts(best={"bound/release": math.inf})
    status = _STATUS.model_copy(update={"counts": counts})
    assert SweepStatus.model_validate_json(status.model_dump_json()) == status
