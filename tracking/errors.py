"""Errors of tracking stores; their messages hold no credentials."""

from __future__ import annotations

from tracking.redaction import redact


class TrackingError(Exception):
    """The tracking store cannot be used, or does not hold what was asked for.

    A caller that publishes may try again later: nothing here is left half-done for good.

    Attributes:
        found: What is wrong, in words.
        remedy: What to do about it, in words; empty where that is part of the former.
    """

    def __init__(self, found: str, remedy: str = "") -> None:
        """Tell both in one sentence, credentials blotted out."""
        self.found, self.remedy = redact(found), redact(remedy)
        super().__init__(f"{self.found}; {self.remedy}." if remedy else self.found)


class CredentialsRejectedError(TrackingError):
    """A tracking server answers, and does not let this account in."""


class RejectedRecordError(TrackingError):
    """The tracking store answers, and finds what it was sent wrong; it would do so again."""
