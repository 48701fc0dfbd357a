"""Whether a machine has the memory that workers and Ray's object store take."""

from __future__ import annotations

import shutil
from pathlib import Path

from sweeps.doctor.check import Check

SUBJECT = "memory"
_WORKER_BYTES = 2**29
_LEAST_SHARED_BYTES = 2**26
_SHARED, _FACTS = Path("/dev/shm"), Path("/proc/meminfo")
_MIB = 2**20


def look(cpus: float) -> list[Check]:
    """Look at this machine.

    Args:
        cpus: That Ray counts here: as many workers may run.
    """
    checks = [check for check in (_available(cpus), _shared()) if check is not None]
    return checks or [Check(SUBJECT, "", "ok", "enough for a worker per CPU, and shared memory")]


def _available(cpus: float) -> Check | None:
    free, wanted = available_bytes(), int(max(cpus, 1) * _WORKER_BYTES)
    if free is None or free >= wanted:
        return None
    found = f"{free // _MIB:,} MiB are free, and {cpus:g} workers take {wanted // _MIB:,} MiB"
    remedy = "start Ray there with fewer CPUs (--num-cpus), or set resources.concurrency"
    return Check(SUBJECT, "", "warning", found, remedy)


def _shared() -> Check | None:
    if not _SHARED.is_dir() or (size := shutil.disk_usage(_SHARED).free) > _LEAST_SHARED_BYTES:
        return None
    found = f"{_SHARED} has {size // _MIB:,} MiB free, so that Ray's object store goes to disk"
    return Check(SUBJECT, "", "warning", found, "in a container: --shm-size=1g or more")


def available_bytes() -> int | None:
    """Bytes of memory that new work may take; None where the system does not say."""
    if not _FACTS.exists():
        return None
    lines = (line.split() for line in _FACTS.read_text().splitlines())
    found = {words[0]: int(words[1]) for words in lines if len(words) == 3}
    kibibytes = found.get("MemAvailable:")
    return None if kibibytes is None else kibibytes * 1024
