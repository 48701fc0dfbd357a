"""Errors of this package; their messages say what to do and hold no secret."""

from __future__ import annotations


class ClusterError(Exception):
    """Base of every error that this package raises on purpose."""


class ConnectError(ClusterError):
    """No Ray at the address can be used; the message says why."""


class UnreachableError(ConnectError):
    """The address does not answer now; a later attempt may succeed."""


class JobError(ClusterError):
    """A job on the cluster failed or is not available; the message says why."""


class SecretError(ConnectError):
    """A file of a token or password is missing, or other users can read it.

    Attributes:
        problem: Description of the fault.
        remedy: Command or advice that corrects it; may be empty.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        """Join both into one message."""
        self.problem, self.remedy = problem, remedy
        super().__init__(f"{problem}: {remedy}" if remedy else problem)
