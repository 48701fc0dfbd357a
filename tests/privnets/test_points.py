"""What a point says of its replicates."""

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
def test_a_point_is_no_better_than_its_worst_replicate(
    replicates: list[Replicate], status: str
) -> None:
    assert TradeoffPoint("p", "e", {}, tuple(replicates)).status == status


def test_reasons_come_with_how_many_share_them() -> None:
    point = TradeoffPoint("p", "e", {}, (FINISHED, STOPPED, FAILED))
    assert point.failure == "diverged (1 of 3 replicates failed)"
    assert point.stopped == "dominated (1 of 3 replicates were stopped)"


def test_only_those_that_came_to_their_end_succeeded() -> None:
    assert TradeoffPoint("p", "e", {}, (FINISHED, STOPPED, FAILED)).succeeded == (FINISHED,)
