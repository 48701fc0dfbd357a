"""`sweeps doctor` in a process of its own, as it ends its process and joins one Ray at most."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


class DoctorReport:
    """Exit code, output and checks of a finished command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err
        is_report = code in (0, 1) and bool(out)
        self.checks: list[dict[str, Any]] = json.loads(out)["checks"] if is_report else []

    def of(self, subject: str) -> list[dict[str, Any]]:
        return [check for check in self.checks if check["subject"] == subject]

    def failures(self) -> dict[str, dict[str, Any]]:
        return {c["subject"]: c for c in self.checks if c["state"] == "failed"}


def doctor(*arguments: str, **environment: str) -> DoctorReport:
    ended = subprocess.run(
        [sys.executable, "-m", "sweeps", "doctor", *arguments, "--json"],
        env={**os.environ, **environment},
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    return DoctorReport(ended.returncode, ended.stdout, ended.stderr)
