"""Whether files that hold tokens and passwords are their owner's alone."""

from __future__ import annotations

import os
from pathlib import Path

from sweeps.doctor.check import Check, State

SUBJECT = "secret files"


def look(clustered: bool = True) -> list[Check]:
    """Look at the token of Ray and the credentials of MLflow on this machine, if they are there.

    Args:
        clustered: Whether the machine is part of a cluster, which the token is the key to. `ray
            get-auth-token --generate` makes one that others may read.
    """
    token = _token()
    found = [path for path in (token, Path.home() / ".mlflow" / "credentials") if path.is_file()]
    checks = [_judge(path, "failed" if clustered or path != token else "warning") for path in found]
    if problems := [check for check in checks if check is not None]:
        return problems
    listed = ", ".join(map(str, found))
    return [Check(SUBJECT, "", "ok", f"{listed}; nobody else can read them" if found else "none")]


def _judge(path: Path, state: State) -> Check | None:
    from cluster.auth import check_private
    from cluster.errors import SecretError

    try:
        check_private(path)
    except SecretError as error:
        remedy = f"{error.remedy}; if others had time to read it, change the secret too"
        return Check(SUBJECT, "", state, error.problem, remedy)
    return None


def _token() -> Path:
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    return Path(named).expanduser() if named else Path.home() / ".ray" / "auth_token"
