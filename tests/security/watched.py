"""Runs readers of this package in a process of their own, watched by `audit_guard`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_CHECKOUT = _HERE.parent.parent
_SECONDS = 400


@dataclass(frozen=True)
class Watched:
    """Outcome of a reader.

    Attributes:
        said: What it gave, or the error that it raised.
        seen: What it did beyond reading.
    """

    said: str
    seen: list[str]


def run_watched(function: str, *arguments: str | Path, memory: int = 4 * 2**30) -> Watched:
    """Call a function of `readers`, watched, with so much memory at the most (bytes)."""
    command = [sys.executable, str(_HERE / "audit_guard.py"), "readers", function]
    ended = subprocess.run(
        [
            "/bin/sh",
            "-c",
            f'ulimit -v {memory >> 10}; exec "$@"',
            "sh",
            *command,
            *map(str, arguments),
        ],
        env={**os.environ, "PYTHONPATH": f"{_HERE}:{_CHECKOUT}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return Watched(**json.loads(ended.stdout.splitlines()[-1]))
