"""What `cluster` refuses before it starts anything."""

from __future__ import annotations


class ConnectionFailed(RuntimeError):
    """There is no Ray to be had at the address."""


class ServingRefused(ValueError):
    """A server cannot be started as asked for; the message says what to change."""
