"""Whether the tracking store answers, lets us in, and has the schema of the installed MLflow."""

from __future__ import annotations

import os

from sweeps.doctor.bounded import Background, Trouble
from sweeps.doctor.check import Check

SUBJECT = "tracking"
SECONDS = 30.0
_UNKNOWN = Check(
    SUBJECT,
    "",
    "warning",
    "not looked at: no store is named",
    "give --tracking-uri, or set MLFLOW_TRACKING_URI where the sweep is led from",
)


class Tracking:
    """A look at a store, beside other looks."""

    def __init__(self, uri: str | None, default: bool) -> None:
        """Begin.

        Args:
            uri: Of the store; MLFLOW_TRACKING_URI if None.
            default: Whether mlflow.db in the working directory will do where neither is given.
        """
        named = uri or os.environ.get("MLFLOW_TRACKING_URI")
        self._look = Background(lambda: _look(named)) if named or default else None

    def check(self) -> Check:
        """What came of it."""
        if self._look is None:
            return _UNKNOWN
        found = self._look.result(SECONDS, SECONDS)
        if not isinstance(found, Trouble):
            return Check(SUBJECT, "", "ok", found)
        remedy = (
            "start it, give its address and credentials, or leave it: `sweeps sync` publishes later"
        )
        return Check(SUBJECT, "", "failed", found.reason, remedy)


def _look(uri: str | None) -> str:
    import tracking

    resolved = tracking.resolve_uri(uri)
    tracking.check(resolved)
    return f"{tracking.redacted(resolved)} can be used"
