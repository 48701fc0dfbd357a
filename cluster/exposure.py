"""Parts of this machine that others can reach: ports of Ray and MLflow, and Ray's logs.

Reads /proc, so it finds nothing on other systems than Linux, nor processes of other users.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

# Patterns of command lines, whose words end with \0, and names for people. Workers of Ray are left
# out: they are many, and listen where the raylet does.
_SERVERS: Final = {
    r"gcs_server": "Ray's head",
    r"raylet/raylet": "Ray's raylet",
    r"ray/dashboard/dashboard\.py": "Ray's dashboard",
    r"\Aray::DashboardAgent": "Ray's dashboard agent",
    r"\0-m\0ray\.util\.client\.server\0": "Ray's client server",
    r"\0-m\0mlflow\0|\A([^\0]*\0)?[^\0]*/mlflow\0|\0mlflow\.server[.:]": "MLflow",
}
_LISTENING: Final = "0A"
_LOOPBACK: Final = re.compile(r"[0-9A-F]{6}7F|0{24}01000000|0{16}FFFF0000[0-9A-F]{6}7F")


def open_ports() -> dict[str, list[int]]:
    """Returns the ports of Ray and MLflow that listen beyond loopback, by the server's name."""
    sockets = _open_sockets()
    ports: dict[str, set[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to another user
            command = (process / "cmdline").read_bytes().decode(errors="replace")
            name = next((n for pattern, n in _SERVERS.items() if re.search(pattern, command)), None)
            if name is None:
                continue
            for link in (process / "fd").iterdir():
                with suppress(OSError, KeyError):  # it was closed meanwhile, or does not listen
                    ports.setdefault(name, set()).add(sockets[os.readlink(link)])
    return {name: sorted(found) for name, found in sorted(ports.items()) if found}


def is_open_to_others(folder: Path) -> bool:
    """Returns whether users other than its owner and root can enter a directory."""
    above = [folder, *folder.parents]
    return all(each.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH) for each in above)


def _open_sockets() -> dict[str, int]:
    """Ports that listen beyond loopback, by the link that a process has to the socket."""
    sockets = {}
    for table in ("tcp", "tcp6"):
        path = Path("/proc/net", table)
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            _, local, _, state, *rest = line.split()
            address, _, port = local.partition(":")
            if state == _LISTENING and not _LOOPBACK.fullmatch(address):
                sockets[f"socket:[{rest[5]}]"] = int(port, 16)
    return sockets
