"""Which directories other machines may see too."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mounts")
_SHARED: Final = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "fuse",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "smb3",
        "virtiofs",
    }
)


def is_shared(folder: Path) -> bool:
    """Whether a directory is on a file system that several machines may have mounted.

    Args:
        folder: Absolute; what of it is not there yet is on the file system of what is.

    Returns:
        False also where the system does not say what is mounted.
    """
    if not _MOUNTS.exists():
        return False
    kinds: dict[Path, str] = {}
    for line in _MOUNTS.read_text().splitlines():
        _, mounted, kind, *_ = line.split(" ")
        kinds[Path(mounted.replace("\\040", " "))] = kind
    real = folder.resolve()
    nearest = next((kinds[place] for place in (real, *real.parents) if place in kinds), "")
    return nearest.partition(".")[0] in _SHARED
