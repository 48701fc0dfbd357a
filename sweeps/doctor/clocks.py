"""Whether the clocks of all nodes agree."""

from __future__ import annotations

from collections.abc import Mapping

from sweeps.doctor.check import Check

SUBJECT = "clock"
TOLERATED_SECONDS = 3.0
_REMEDY = "keep its clock by NTP (chrony, systemd-timesyncd): times in records would mislead"


def compare(told: Mapping[str, float], before: float, after: float) -> list[Check]:
    """How far clocks are off.

    Args:
        told: Node to the time by its clock, seconds since 1970, at some moment in between.
        before: This machine's time when nodes were about to be asked.
        after: Its time when all had answered.
    """
    return [_of(node, max(before - time, time - after, 0.0)) for node, time in told.items()]


def _of(node: str, least: float) -> Check:
    """Of a clock that is off by so many seconds at least."""
    if least <= TOLERATED_SECONDS:
        return Check(SUBJECT, node, "ok", f"within {TOLERATED_SECONDS:g} s of the others")
    return Check(SUBJECT, node, "warning", f"off by {least:,.0f} s or more", _REMEDY)
