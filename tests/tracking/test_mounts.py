"""Network file systems are recognised by the mount that really contains a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracking.database import sqlite


@pytest.fixture
def _mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of mounts in the form of the kernel's."""
    lines = (
        "/dev/sda1 / ext4 rw 0 0",
        f"server:/export {tmp_path}/a\\040b nfs4 rw 0 0",
        f"/dev/sdb1 {tmp_path}/a\\040b/own xfs rw 0 0",
        f"ann@host: {tmp_path}/far fuse.sshfs rw 0 0",
        f"mirror {tmp_path}/mirror fuse rw 0 0",
        f"/dev/sdc1 {tmp_path}/stick fuseblk rw 0 0",
    )
    table = tmp_path / "mounts"
    table.write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(sqlite, "_MOUNTS", table)


@pytest.mark.usefixtures("_mounts")
@pytest.mark.parametrize(
    ("folder", "shared"),
    [
        ("a b", True),
        ("a b/sweeps/not there yet", True),
        ("a b/own/x", False),
        ("a", False),
        ("far/x", True),
        ("mirror", True),
        ("stick", False),
        ("link/x", True),
    ],
)
def test_the_nearest_mount_decides_also_behind_a_link(
    tmp_path: Path, folder: str, shared: bool
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a b")
    assert sqlite.is_on_network_filesystem(tmp_path / folder) == shared


def test_a_temporary_directory_is_this_machine_s_own(tmp_path: Path) -> None:
    assert not sqlite.is_on_network_filesystem(tmp_path)
