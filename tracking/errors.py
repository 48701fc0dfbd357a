"""Errors of tracking stores."""

from __future__ import annotations

from privnets.credentials import redact


class TrackingError(Exception):
    """Raised when a tracking store cannot be used, or lacks what was asked for.

    A later call may succeed: every write can be repeated.

    Attributes:
        problem: Description of the failure.
        remedy: Advice; empty where `problem` contains it.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        """Joins both parts into one sentence, with credentials redacted."""
        self.problem, self.remedy = redact(problem), redact(remedy)
        super().__init__(f"{self.problem}; {self.remedy}." if remedy else self.problem)


class CredentialsRejectedError(TrackingError):
    """Raised when a tracking server rejects the account."""


class RejectedRecordError(TrackingError):
    """Raised when a tracking store rejects a record as invalid; a retry would fail again."""
