"""Commands of this program on a cluster, through its job server: arguments and replies.

Every user of the cluster can read the arguments and the files of a job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from cluster.errors import JobError
from cluster.jobs import last_line
from cluster.submission import COMMAND_SECONDS, JobSpec, run_command
from sweeps.errors import InputError
from tracking.redaction import holds_secret

M = TypeVar("M", bound=BaseModel)

PACKAGES: Final = ("sweeps", "privnets", "tracking", "cluster")
"""Packages that a job uses as they are installed here."""
DISTRIBUTION: Final = "privnets-sweeps"


def is_job_server(address: str) -> bool:
    """Whether an address is that of a job server, and not of a Ray to join."""
    return address.startswith(("http://", "https://"))


def check_public(option: str, value: str | None, remedy: str) -> None:
    """Refuse a value that holds credentials.

    Args:
        option: Whose value it is.
        value: As given; None if it was not.
        remedy: Where to put them instead.

    Raises:
        InputError: If it does.
    """
    if value is not None and holds_secret(value):
        raise InputError(
            f"{option} holds credentials, which everybody who may see the cluster could read; "
            f"{remedy}"
        )


def check_place(option: str, value: str | None) -> None:
    """Refuse a path that means something else on the cluster.

    Args:
        option: Whose value it is.
        value: As given; None if it was not.

    Raises:
        InputError: If it does.
    """
    if value is not None and "://" not in value and not value.startswith("/"):
        raise InputError(
            f"{option} must be a path from the root, or a URI, as the cluster's nodes see it; "
            f"got {value!r}"
        )


def answer(kind: type[M], text: str) -> M:
    """What a cluster printed as JSON, which is not trusted to be well-formed.

    Args:
        kind: What it should be.
        text: As printed.

    Raises:
        InputError: If it is nothing of that kind.
    """
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise InputError(
            "the cluster's answer is none that this version understands "
            f"({error.error_count()} problems, the first: {error.errors()[0]['msg']}); are both of "
            "one version?"
        ) from error


def run_on_cluster(
    address: str,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    files: Mapping[str, bytes] | None = None,
    timeout: float = COMMAND_SECONDS,
) -> str:
    """Runs a command of `sweeps` on a cluster's head, with the packages installed here.

    Args:
        address: Address of the job server, as `http://HEAD:8265`.
        arguments: Arguments of `sweeps`.
        environment: Variables of the command.
        files: Names and contents of files for the command's working directory.
        timeout: Seconds after which the command is stopped.

    Returns:
        Its standard output, if it exited with 0, or with 1 after printing something.

    Raises:
        InputError: If an argument or variable holds a password or key.
        JobError: With the command's own message, if it exited otherwise or took too long.
        ConnectError: If no job server answers there, or it rejects the token.
    """
    if any(map(holds_secret, [*arguments, *(environment or {}).values()])):
        raise InputError(
            "a password or key is not sent to a cluster, because every user of the cluster could "
            "read it: put it into the environment of the cluster's nodes"
        )
    spec = JobSpec(
        submission_id="",
        arguments=("-m", "sweeps", *arguments),
        packages=PACKAGES,
        distribution=DISTRIBUTION,
        environment=environment or {},
        files=files or {},
    )
    output = run_command(spec, address, timeout)
    if output.exit_code == 0 or (output.exit_code == 1 and output.stdout.strip()):
        return output.stdout
    _, is_refusal, message = output.stderr.rpartition("\nError: ")
    raise JobError(message.strip() if is_refusal else last_line(output.stderr) or "no message")
