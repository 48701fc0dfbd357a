"""Commands of this program on a cluster, through its job server: arguments and replies.

Every user of the cluster can read the arguments and the files of a job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from cluster.errors import JobError
from cluster.jobs import JobClient, last_line
from cluster.submission import COMMAND_SECONDS, JobSpec, run_command
from privnets.credentials import holds_secret
from sweeps.errors import InputError
from sweeps.remote.environment import ADDRESS_VARIABLE, default_job_server
from sweeps.study.shipped_files import PACKAGES

T = TypeVar("T")

DISTRIBUTION: Final = "privnets-sweeps"
TRACKING_ADVICE: Final = (
    "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD in the environment of the cluster's "
    "head, or write ~/.mlflow/credentials there with mode 0600"
)


def connect_job_server(address: str | None) -> JobClient:
    """Connects to the job server at an address, or at RAY_ADDRESS."""
    address = address or default_job_server()
    if address is None:
        raise InputError(
            f"no cluster address; give --address http://HEAD:8265, or set {ADDRESS_VARIABLE} to it"
        )
    return JobClient(address)


def check_public(option: str, value: str | None, remedy: str) -> None:
    """Raises `InputError` with the remedy if an option holds a password or key."""
    if value is not None and holds_secret(value):
        raise InputError(
            f"{option} holds credentials, which every user of the cluster could read; {remedy}"
        )


def check_remote_path(option: str, value: str | None) -> None:
    """Raises `InputError` if an option is a place of one machine, or holds a password or key."""
    check_public(option, value, "set them in the environment of the cluster's nodes")
    if value is not None and "://" not in value and not value.startswith("/"):
        raise InputError(
            f"{option} must be an absolute path, or a URI, as the cluster's nodes see it; "
            f"got {value!r}"
        )


def run_remotely(
    cluster: str | JobClient,
    arguments: Sequence[str],
    *,
    module: str = "sweeps",
    data: str | None = None,
    files: Mapping[str, bytes] | None = None,
    timeout: float = COMMAND_SECONDS,
) -> str:
    """Runs a command of `sweeps` on a cluster's head; returns its standard output.

    Args:
        cluster: Address of the job server, or a client of it.
        arguments: Arguments of the command.
        module: Module of this project that runs as the command.
        data: Data directory on the nodes; None for their own.
        files: Names and contents of files for the command's working directory.
        timeout: Time limit in seconds.

    Raises:
        JobError: With the command's own message, if it failed or took too long.
    """
    spec = JobSpec(
        submission_id="",
        arguments=("-m", module, *arguments),
        packages=PACKAGES,
        distribution=DISTRIBUTION,
        environment={} if data is None else {"PRIVNETS_DATA": data},
        files=files or {},
    )
    output = run_command(spec, cluster, timeout)
    if output.exit_code == 0 or (output.exit_code == 1 and output.stdout.strip()):
        return output.stdout
    _, is_refusal, message = output.stderr.rpartition("\nError: ")
    raise JobError(message.strip() if is_refusal else last_line(output.stderr) or "no message")


def parse_reply(kind: type[T], text: str) -> T:
    """Parses JSON from a cluster; `InputError` if another version seems to run there."""
    try:
        return TypeAdapter(kind).validate_json(text)
    except ValidationError as error:
        raise InputError(
            f"cannot parse the cluster's reply ({error.errors()[0]['msg']}); check that both "
            "sides run the same version"
        ) from error
