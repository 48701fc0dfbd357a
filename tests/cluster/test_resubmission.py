"""A sweep that the cluster knows is not submitted with places that would not be heeded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.jobs import Job, State
from cluster.submission import Order, SubmissionRefused, check_same

ORDER = Order({"name": "s"}, "s", "/shared", "http://mlflow:5000", "/data")


def job(state: State) -> Job:
    return Job("sweep-s", state, metadata=ORDER.metadata())


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "SUCCEEDED", "STOPPED", "FAILED"])
def test_the_same_places_may_be_named_again(state: State) -> None:
    check_same(ORDER, job(state))
    check_same(replace(ORDER, storage="/shared/"), job(state))


@pytest.mark.parametrize("state", ["RUNNING", "SUCCEEDED", "STOPPED", "FAILED"])
def test_points_that_are_elsewhere_are_told_of(state: State) -> None:
    with pytest.raises(SubmissionRefused, match=r"storage /shared and not /new: leave --storage"):
        check_same(replace(ORDER, storage="/new"), job(state))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"tracking_uri": "http://new:5000"},
            r"http://mlflow:5000 and not http://new:5000: .*sync",
        ),
        ({"data": "/new"}, r"data /data and not /new: leave --data out, or stop"),
    ],
)
def test_a_sweep_that_is_run_or_done_keeps_its_places(change: dict[str, Any], said: str) -> None:
    for state in ("PENDING", "SUCCEEDED"):
        with pytest.raises(SubmissionRefused, match=said):
            check_same(replace(ORDER, **change), job(state))
    check_same(replace(ORDER, **change), job("STOPPED"))  # which goes on with what is said now


def test_places_of_the_nodes_own_are_places_too() -> None:
    plain = Order({"name": "s"}, "s", "/shared")
    running = Job("sweep-s", "RUNNING", metadata=plain.metadata())
    with pytest.raises(SubmissionRefused, match="tracking uri of its nodes and not http://mlflow"):
        check_same(ORDER, running)
    check_same(plain, running)
