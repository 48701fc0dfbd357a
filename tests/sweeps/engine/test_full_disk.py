"""A full disk fails the packs that do not fit, with that reason, and harms no others."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from small_sweeps import small_plan, study_file

from sweeps.store.ledger import Ledger

pytestmark = pytest.mark.ray

_UNSHARE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
# Room for one or two packs of three, with Tune's own files.
_SIZE = "96k"


def can_mount(folder: Path) -> bool:
    try:
        tried = subprocess.run(
            [*_UNSHARE, f"mount -t tmpfs tmpfs {shlex.quote(str(folder))}"],
            capture_output=True, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        return False
    return tried.returncode == 0


@pytest.mark.slow
def test_packs_that_do_not_fit_fail_for_that_reason(tracking_uri: str, tmp_path: Path) -> None:
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    if not can_mount(disk):
        pytest.skip("no user namespace in which a small tmpfs can be mounted")
    overrides = ("replicates=3", "space.weight_decay={grid: [0.1]}", "resources.concurrency=1")
    arguments = [
        "run", str(study_file(tmp_path)), "--name", "full", "--storage", str(disk),
        "--tracking-uri", tracking_uri, *(part for o in overrides for part in ("--set", o)),
    ]  # fmt: skip
    command = [sys.executable, "-c", "from sweeps.cli.main import main; main()", *arguments]
    script = (
        f"mount -t tmpfs -o size={_SIZE} tmpfs {disk} && {shlex.join(command)}; code=$?; "
        f"cp -r {disk} {kept}; exit $code"
    )
    ran = subprocess.run(
        [*_UNSHARE, script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1, ran.stderr
    assert "failed: OSError" in ran.stderr
    assert "No space left on device" in ran.stderr
    ledger = Ledger(str(kept), "full")
    planned = {(r.point_id, r.seed) for r in small_plan(tmp_path, *overrides).replicates()}
    assert set() < ledger.finished_replicates() < planned
    assert len(ledger.read_points()) == 1
    assert ledger.unreadable == {}
