"""Whether files that hold tokens and passwords are their owner's alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sweeps.doctor.check import Check

SUBJECT = "secret files"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def look() -> list[Check]:
    """Look at the token of Ray and the credentials of MLflow on this machine, if they are there."""
    found = [(path, path.stat()) for path in _files() if path.is_file()]
    problems = [check for path, status in found for check in _problems(path, status)]
    if problems:
        return problems
    listed = ", ".join(str(path) for path, _ in found) or "none"
    return [Check(SUBJECT, "", "ok", f"{listed}; nobody else can read them" if found else listed)]


def _problems(path: Path, status: os.stat_result) -> list[Check]:
    checks = []
    if status.st_mode & _OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        found = f"{path} holds a secret and has mode {mode:04o}, so that others can use it"
        remedy = f"chmod 600 {path}; if others had time to read it, change the secret too"
        checks.append(Check(SUBJECT, "", "failed", found, remedy))
    if status.st_uid not in (os.geteuid(), 0):
        found = f"{path} belongs to user {status.st_uid}, who can read and change it"
        remedy = f"put a copy of your own there: cp {path} COPY && mv COPY {path}"
        checks.append(Check(SUBJECT, "", "failed", found, remedy))
    return checks


def _files() -> list[Path]:
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    token = Path(named).expanduser() if named else Path.home() / ".ray" / "auth_token"
    return [token, Path.home() / ".mlflow" / "credentials"]
