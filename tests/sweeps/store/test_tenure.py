"""A sweep takes the work of the run that began last, until it ends, and takes it once."""

from __future__ import annotations

import os
import threading
import time
import uuid
from pathlib import Path

import pytest
import torch
from pyarrow import fs
from test_ledger import parquet_of, point

from sweeps.errors import InputError
from sweeps.store.checkpoints import Checkpoint
from sweeps.store.filesystem import Directory
from sweeps.store.ledger import Ledger
from sweeps.store.tenure import RunSupersededError, check, tenure
from tracking import mounts


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(str(tmp_path), "sweep")
    made.directory.create()
    return made


def of_run(ledger: Ledger, run: str) -> Ledger:
    """The ledger as a worker of that run has it."""
    return Ledger(ledger.directory.parent.path, ledger.sweep, run)


def test_work_of_the_run_is_taken(ledger: Ledger) -> None:
    with tenure(ledger.directory) as run:
        of_run(ledger, run).write_pack("pack", [point()])
    assert ledger.finished_replicates() == {("p0", 0)}


def test_work_of_an_earlier_run_is_not_taken(ledger: Ledger) -> None:
    with tenure(ledger.directory) as first, tenure(ledger.directory):
        with pytest.raises(RunSupersededError):
            of_run(ledger, first).write_pack("pack", [point(artifacts={"a.png": b""})])
        with pytest.raises(RunSupersededError):
            keep(of_run(ledger, first))
    assert not (Path(ledger.directory.path) / "artifacts").exists()
    assert not (Path(ledger.directory.path) / "checkpoints").exists()
    assert ledger.pack_ids() == []


def test_work_of_a_run_that_has_ended_is_not_taken(ledger: Ledger) -> None:
    with tenure(ledger.directory) as run:
        pass
    with pytest.raises(RunSupersededError):
        of_run(ledger, run).write_pack("pack", [point()])


def test_work_of_a_killed_run_is_taken_until_the_next_one_begins(ledger: Ledger) -> None:
    killed = uuid.uuid4().hex
    ledger.directory.write(".run", killed.encode())
    of_run(ledger, killed).write_pack("a", [point()])
    with tenure(ledger.directory), pytest.raises(RunSupersededError):
        of_run(ledger, killed).write_pack("b", [point(seed=1)])
    assert ledger.finished_replicates() == {("p0", 0)}


def keep(ledger: Ledger) -> None:
    Checkpoint(ledger, "pack", "label").save([], [("p0", 0)], {"x": torch.zeros(1)})


def test_a_pack_in_the_ledger_is_not_written_again(ledger: Ledger) -> None:
    """Else what was published of it, with its times, would be another's."""
    ledger.write_pack("pack", [point(finished_at=2.0)])
    before = parquet_of(ledger, "pack").stat()
    ledger.write_pack("pack", [point(finished_at=1.0)])
    assert parquet_of(ledger, "pack").stat() == before
    assert os.listdir(parquet_of(ledger, "pack").parent) == ["pack.parquet"]


def test_a_damaged_pack_is_written_again(ledger: Ledger) -> None:
    ledger.write_pack("pack", [point()])
    parquet_of(ledger, "pack").write_bytes(b"PAR1")
    ledger.write_pack("pack", [point()])
    assert ledger.finished_replicates() == {("p0", 0)}
    assert ledger.unreadable == {}


@pytest.mark.parametrize("filesystem", [fs.LocalFileSystem(), fs._MockFileSystem()])
def test_a_new_file_is_never_put_over_another(filesystem: fs.FileSystem, tmp_path: Path) -> None:
    place = Directory(filesystem, f"{tmp_path}/place".lstrip("/" if _is_mock(filesystem) else ""))
    assert place.create_exclusive("name", b"first")
    assert not place.create_exclusive("name", b"second")
    assert place.read("name") == b"first"
    assert not place.temporary_files()


def _is_mock(filesystem: fs.FileSystem) -> bool:
    return not isinstance(filesystem, fs.LocalFileSystem)


@pytest.mark.parametrize("where", ["", "ledger", "checkpoints/pack", "artifacts/p0"])
def test_what_killed_writers_left_is_deleted_and_nothing_else(ledger: Ledger, where: str) -> None:
    folder = Path(ledger.directory.path, where)
    folder.mkdir(parents=True, exist_ok=True)
    half, whole = folder / f".name.{uuid.uuid4().hex}.{uuid.uuid4().hex}", folder / "name"
    for path in (half, whole, folder / ".lock"):
        path.write_bytes(b"x")
    with tenure(ledger.directory):
        assert not half.exists()
        half.write_bytes(b"x")
    assert not half.exists()
    assert {whole, folder / ".lock"} <= set(folder.iterdir())


def test_a_run_writes_so_that_the_next_one_knows_what_it_left(ledger: Ledger) -> None:
    written: list[bool] = []

    class Watched(Directory):
        def _flush(self, path: str) -> None:
            written.extend(ledger.directory.temporary_files().values())

    with tenure(ledger.directory) as run:
        for writer in (run, None):
            Watched(ledger.directory.filesystem, ledger.directory.path, writer).write("name", b"")
    assert written == [True, False]


def test_what_somebody_else_writes_meanwhile_is_left_until_it_is_old(ledger: Ledger) -> None:
    """As `sweeps sync` does, which is of no run."""
    folder = Path(ledger.directory.path)
    new, old = (folder / f".report.html.{uuid.uuid4().hex}" for _ in range(2))
    for path in (new, old):
        path.write_bytes(b"x")
    os.utime(old, (time.time() - 7200,) * 2)
    with tenure(ledger.directory):
        assert (new.exists(), old.exists()) == (True, False)
    assert new.exists()


def test_a_sign_that_is_seen_late_is_waited_for(ledger: Ledger) -> None:
    """As where a file system shows a directory as it was."""
    run = uuid.uuid4().hex
    later = threading.Timer(2.0, ledger.directory.write, (".run", run.encode()))
    later.start()
    check(ledger.directory, run, patience=60.0)
    later.join()
    with pytest.raises(RunSupersededError):
        check(ledger.directory, uuid.uuid4().hex, patience=1.5)


@pytest.fixture
def _shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that machines share, to go by what the system says."""
    told = tmp_path / "mounts"
    told.write_text(f"server:/export {tmp_path} nfs4 rw 0 0\n")
    monkeypatch.setattr(mounts, "_MOUNTS", told)


@pytest.mark.usefixtures("_shared")
def test_a_sweep_that_was_deleted_does_not_come_back(ledger: Ledger) -> None:
    ledger.directory.remove()
    with pytest.raises(RunSupersededError):
        check(ledger.directory, uuid.uuid4().hex, patience=1.5)
    assert not ledger.directory.exists()


@pytest.mark.usefixtures("_shared")
def test_a_checkpoint_is_loaded_from_a_directory_seen_as_it_is(ledger: Ledger) -> None:
    """A listing that is a minute old would have it empty, and deleted."""
    folder = Path(ledger.directory.path, "checkpoints", "pack")
    with tenure(ledger.directory) as run:
        keep(of_run(ledger, run))
    for place in (folder, folder.parent):
        os.utime(place, (0, 0))
    assert Checkpoint(ledger, "pack", "label").load().remaining == (("p0", 0),)
    for place in (folder, folder.parent):
        assert place.stat().st_mtime > 0, "written to"
    Checkpoint(ledger, "another", "label").load()
    assert os.listdir(folder.parent) == ["pack"]


def test_files_that_a_link_leads_to_are_left_alone(ledger: Ledger, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    half = other / f".name.{uuid.uuid4().hex}"
    half.write_bytes(b"x")
    Path(ledger.directory.path, "artifacts").symlink_to(other)
    with tenure(ledger.directory):
        assert half.exists()


def test_a_sweep_that_cannot_be_written_is_not_begun(tmp_path: Path) -> None:
    (tmp_path / "sweep").write_bytes(b"a file")
    with (
        pytest.raises(InputError, match="must be writable"),
        tenure(Ledger(str(tmp_path), "sweep").directory),
    ):
        pytest.fail("begun")
