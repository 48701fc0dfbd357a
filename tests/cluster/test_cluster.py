"""A real cluster: jobs are submitted once, its head is joined with the token, and monitored."""

from __future__ import annotations

import subprocess
import sys

import pytest
from ray_head import Head

import cluster
from cluster.jobs import JobClient
from cluster.probe import check_head, probe
from cluster.submission import JobSpec, run_command

pytestmark = pytest.mark.ray

SLEEP = "import sys, time; print('begun', file=sys.stderr); time.sleep(600)"


@pytest.fixture(autouse=True)
def _token(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", head.token)


@pytest.fixture
def client(head: Head) -> JobClient:
    return JobClient(head.address)


def python(code: str, submission_id: str = "command") -> JobSpec:
    return JobSpec(submission_id=submission_id, arguments=("-c", code))


def test_a_command_returns_its_output_and_exit_code(client: JobClient) -> None:
    code = "import sys; print('out\\n' * 3); print('err', file=sys.stderr); sys.exit(3)"
    output = run_command(python(code), client)
    assert (output.exit_code, output.stdout) == (3, "out\nout\nout")
    assert "err\n" in output.stderr
    assert "out" not in output.stderr.splitlines()


def test_a_command_uses_the_shipped_files_and_variables(client: JobClient) -> None:
    spec = JobSpec(
        submission_id="", arguments=("main.py", "a b", "$HOME"),
        files={"main.py": b"import os, sys\nprint(os.environ['X'], os.environ['Y'], sys.argv[1:])"},
        environment={"X": "1"}, defaults={"Y": "it's 2", "PATH": "not used"},
    )  # fmt: skip
    output = run_command(spec, client)
    assert output.stdout == "1 it's 2 ['a b', '$HOME']", output.stderr


def test_a_command_that_takes_too_long_is_stopped(client: JobClient) -> None:
    earlier = {job.job_id for job in client.list_jobs()}
    with pytest.raises(cluster.JobError, match="did not answer within 1 s"):
        run_command(python(SLEEP), client, timeout=1)
    (stopped,) = {job.job_id for job in client.list_jobs()} - earlier
    assert list(client.follow(stopped))[-1].state == "STOPPED"


def test_a_job_runs_once_and_again_only_after_a_failure(client: JobClient) -> None:
    assert cluster.submit(python(SLEEP, "job"), client).state == "submitted"
    outcome = cluster.submit(python(SLEEP, "job"), client)
    assert outcome.state == "running"
    assert outcome.existing is not None
    assert outcome.existing.is_active
    for job in client.follow("job"):
        if "begun" in client.log("job") or not job.is_active:
            break
    assert client.stop("job")
    assert list(client.follow("job"))[-1].state == "STOPPED"
    assert cluster.submit(python("print('done')", "job"), client).state == "resubmitted"
    assert list(client.follow("job"))[-1].is_finished
    assert cluster.submit(python("print('done')", "job"), client).state == "finished"
    assert client.log("job").strip().endswith("done")


def test_a_missing_job_is_an_error(client: JobClient) -> None:
    assert client.find("absent") is None
    for use in (client.stop, client.delete, client.log, lambda name: next(client.follow(name))):
        with pytest.raises(cluster.JobError, match="absent"):
            use("absent")


def test_a_head_accepts_its_own_token_alone(head: Head) -> None:
    assert probe(head.gcs, head.token, 10) == "accepted"
    assert probe(head.gcs, "0" * 64, 10) == "rejected"
    assert probe(head.gcs, None, 10) == "rejected"


def test_a_wrong_or_missing_token_is_reported(
    head: Head, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    check_head(head.gcs)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    with pytest.raises(cluster.ConnectError, match="rejects this token"):
        check_head(head.gcs)
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(cluster.ConnectError, match="requires a token"):
        check_head(head.gcs)


_OTHER_VERSION = """
import sys
import cluster
from ray._private import utils
utils.compute_version_info = lambda: ("9.9.9", "3.0", "f" * 40)
try:
    cluster.connect(sys.argv[1])
except cluster.ConnectError as error:
    print(error)
"""


def test_another_version_of_ray_is_reported(head: Head) -> None:
    joined = subprocess.run(
        [sys.executable, "-c", _OTHER_VERSION, head.gcs],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert "cannot join the Ray at" in joined.stdout, joined.stderr
    assert "9.9.9" in joined.stdout
