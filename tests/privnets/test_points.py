"""Summaries of a point's replicates."""

from __future__ import annotations

import pytest

from privnets.points import Replicate, TradeoffPoint

FINISHED, STOPPED = Replicate(0, {}), Replicate(1, {}, stopped="dominated")
FAILED = Replicate(2, {}, failure="diverged")


@pytest.mark.parametrize(
    ("replicates", "status"),
    [
        ([], "failed"),
        ([FINISHED], "finished"),
        ([FINISHED, STOPPED], "stopped"),
        ([FAILED, STOPPED], "failed"),
    ],
)
def test_a_failed_replicate_fails_its_point(replicates: list[Replicate], status: str) -> None:
    assert TradeoffPoint("p", "e", {}, tuple(replicates)).status == status


def test_reasons_include_the_number_of_replicates() -> None:
    point = TradeoffPoint("p", "e", {}, (FINISHED, STOPPED, FAILED))
    assert point.failure == "diverged (1 of 3 replicates failed)"
    assert point.stopped == "dominated (1 of 3 replicates were stopped)"


def test_only_finished_replicates_succeed() -> None:
    assert TradeoffPoint("p", "e", {}, (FINISHED, STOPPED, FAILED)).succeeded == (FINISHED,)
