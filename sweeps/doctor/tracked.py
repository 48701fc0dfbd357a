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
# Of what has no remedy of its own.
_LATER = "see to it, or leave --tracking-uri out and publish later with `sweeps sync`"
_AT_THE_HEAD = (
    "on the machine that leads the sweep, which is the cluster's head where it is submitted; the "
    "file needs no restart of Ray there, its environment does"
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
        self._look = Background(lambda: _look(named, default)) if named or default else None

    def check(self) -> Check:
        """What came of it."""
        if self._look is None:
            return _UNKNOWN
        found = self._look.result(SECONDS, SECONDS)
        if isinstance(found, Trouble):
            return Check(SUBJECT, "", "failed", found.reason, _LATER)
        return found


def _look(uri: str | None, here: bool) -> Check:
    import tracking
    from tracking.errors import CredentialsRejectedError

    try:
        resolved = tracking.resolve_uri(uri)
        tracking.check(resolved)
    except CredentialsRejectedError as error:
        remedy = error.remedy if here else f"{error.remedy}, {_AT_THE_HEAD}"
        return Check(SUBJECT, "", "failed", error.problem, remedy)
    except tracking.TrackingError as error:
        return Check(SUBJECT, "", "failed", error.problem, error.remedy or _LATER)
    return Check(SUBJECT, "", "ok", f"{tracking.redact(resolved)} can be used")
