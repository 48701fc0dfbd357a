"""A sweep that the cluster knows is not submitted with places that would not be heeded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.jobs import Job, JobState
from sweeps.errors import InputError
from sweeps.remote.submission import SweepJob, check_same_sweep, default_sweep_name

SWEEP_JOB = SweepJob({"name": "s"}, "s", "/shared", "http://mlflow:5000", "/data")


def job(state: JobState) -> Job:
    return Job("sweep-s", state, metadata=SWEEP_JOB.metadata())


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "SUCCEEDED", "STOPPED", "FAILED"])
def test_the_same_places_may_be_named_again(state: JobState) -> None:
    check_same_sweep(SWEEP_JOB, job(state))
    check_same_sweep(replace(SWEEP_JOB, storage="/shared/"), job(state))


@pytest.mark.parametrize("state", ["RUNNING", "SUCCEEDED", "STOPPED", "FAILED"])
def test_points_that_are_elsewhere_are_told_of(state: JobState) -> None:
    with pytest.raises(InputError, match=r"storage /shared and not /new: omit --storage"):
        check_same_sweep(replace(SWEEP_JOB, storage="/new"), job(state))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"tracking_uri": "http://new:5000"},
            r"http://mlflow:5000 and not http://new:5000: .*sync",
        ),
        ({"data": "/new"}, r"data /data and not /new: omit --data, or stop"),
    ],
)
def test_a_sweep_that_is_run_or_done_keeps_its_places(change: dict[str, Any], said: str) -> None:
    for state in ("PENDING", "SUCCEEDED"):
        with pytest.raises(InputError, match=said):
            check_same_sweep(replace(SWEEP_JOB, **change), job(state))
    check_same_sweep(replace(SWEEP_JOB, **change), job("STOPPED"))


def test_places_of_the_nodes_own_are_places_too() -> None:
    plain = SweepJob({"name": "s"}, "s", "/shared")
    running = Job("sweep-s", "RUNNING", metadata=plain.metadata())
    with pytest.raises(InputError, match="tracking uri of its nodes and not http://mlflow"):
        check_same_sweep(SWEEP_JOB, running)
    check_same_sweep(plain, running)


def test_other_resources_are_the_same_sweep_which_must_not_run_to_change_them() -> None:
    study = {"name": "s", "resources": {"weight": 2.0}}
    assert default_sweep_name(study) == default_sweep_name({"name": "s"})
    with pytest.raises(InputError, match=r"runs with other resources; .* stop it"):
        check_same_sweep(replace(SWEEP_JOB, study=study), job("RUNNING"))
    check_same_sweep(replace(SWEEP_JOB, study=study), job("STOPPED"))
