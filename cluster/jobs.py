"""Ray Jobs over HTTP: all that a machine outside a cluster needs of it.

`Jobs` is the client; `ask` runs one command of `sweeps` on the cluster and returns what it printed.
Importing this module does not load Ray.
"""

from __future__ import annotations

import shlex
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from cluster.errors import ConnectionFailed
from cluster.job_server import Unreachable, checked, client, knock, unreachable
from cluster.secrets import SecretRefused
from cluster.shipping import LAUNCHER, shipment
from cluster.uris import holds_secret

State = Literal["PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"]

ASK_SECONDS: Final = 180.0
"""That the cluster has to answer, the start of a process on it included."""

_POLL_SECONDS = 0.5
_DISMISS_SECONDS = 20.0
# Ray looks after a job that ended for about a second more, and would write down a deleted one anew.
_SETTLE_SECONDS = 3.0
_LONGEST = 2000


class JobFailed(RuntimeError):
    """A job on the cluster came to nothing, or cannot be had; the message says why."""


@dataclass(frozen=True, slots=True)
class Job:
    """What Ray knows of a job.

    Attributes:
        job_id: The id it was submitted under.
        state: As Ray calls it.
        message: What Ray says of the state.
        started: Unix time in seconds, by the cluster's clock; None before.
        ended: Unix time in seconds, by the cluster's clock; None before.
        metadata: What was submitted with it.
    """

    job_id: str
    state: State
    message: str = ""
    started: float | None = None
    ended: float | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        """Whether it runs or is about to."""
        return self.state in ("PENDING", "RUNNING")


class Jobs:
    """The job server of a cluster's head.

    Attributes:
        address: `http://HOST:PORT` or `https://HOST:PORT`.
        ray_version: That the cluster runs.
    """

    def __init__(self, address: str) -> None:
        """Find the server, and be let in; takes seconds at the most.

        The token is looked for where Ray looks for it: RAY_AUTH_TOKEN, the file that
        RAY_AUTH_TOKEN_PATH names, `~/.ray/auth_token`; before each request anew, so that it may
        change meanwhile. RAY_ADDRESS and `~/.netrc` change nothing.

        Args:
            address: Of the head's dashboard, as `http://HEAD:8265`.

        Raises:
            ConnectionFailed: If it is no such address, nothing or something else answers there, it
                cannot be trusted, or it does not let us in.
        """
        self.address = checked(address)
        self.ray_version = knock(self.address)
        self._client = client(self.address)

    def find(self, job_id: str) -> Job | None:
        """What Ray knows of a job; None if there is none of that id.

        Raises:
            ConnectionFailed: If the server does not answer.
        """
        with self._asking():
            try:
                found = self._client.get_job_info(job_id)
            except RuntimeError as error:
                if "status code 404" in str(error):
                    return None
                raise
        return Job(
            job_id,
            found.status.value,
            found.message or "",
            None if found.start_time is None else found.start_time / 1000,
            None if found.end_time is None else found.end_time / 1000,
            found.metadata or {},
        )

    def ids(self) -> list[str]:
        """The ids of all jobs that were submitted to the server and not deleted.

        Raises:
            ConnectionFailed: If the server does not answer.
        """
        with self._asking():
            return [job.submission_id for job in self._client.list_jobs() if job.submission_id]

    def submit(
        self,
        job_id: str,
        arguments: Sequence[str],
        folder: Path,
        *,
        environment: Mapping[str, str] | None = None,
        defaults: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Start a job that takes no CPU, on the interpreter that Ray runs on there.

        Args:
            job_id: Not taken yet.
            arguments: Of Python. Everybody who may see the cluster can read them.
            folder: A `shipment`, which becomes the working directory of all its processes.
            environment: Variables for all its processes; no secrets.
            defaults: Variables for its first process where the cluster has not set them itself.
            metadata: To be kept with it; no secrets.

        Raises:
            SecretRefused: If any of that holds a password or key; nothing was sent.
            JobFailed: If the id is taken, or the cluster takes no job.
            ConnectionFailed: If the server does not answer.
        """
        _check_public(arguments, environment or {}, defaults or {}, metadata or {})
        with self._asking():
            self._client.submit_job(
                entrypoint=_shell(arguments, defaults or {}),
                submission_id=job_id,
                runtime_env={"working_dir": str(folder), "env_vars": dict(environment or {})},
                metadata=dict(metadata or {}),
            )

    def stop(self, job_id: str) -> bool:
        """Have a job told to end; whether it ran. It may take its time to.

        Raises:
            JobFailed: If there is none of that id.
            ConnectionFailed: If the server does not answer.
        """
        with self._asking():
            return bool(self._client.stop_job(job_id))

    def delete(self, job_id: str) -> None:
        """Have a job forgotten that has ended, so that its id can be used again.

        Raises:
            JobFailed: If it has not ended, or there is none of that id.
            ConnectionFailed: If the server does not answer.
        """
        time.sleep(_SETTLE_SECONDS)
        with self._asking():
            self._client.delete_job(job_id)

    def log(self, job_id: str) -> str:
        """All that a job has printed so far.

        Raises:
            JobFailed: If there is none of that id, or the node that keeps it is gone.
            ConnectionFailed: If the server does not answer.
        """
        with self._asking():
            return str(self._client.get_job_logs(job_id))

    def follow(self, job_id: str) -> Iterator[Job]:
        """A job's states, as often as one may ask, until it has ended.

        Raises:
            JobFailed: If there is none of that id (any more).
            ConnectionFailed: If the server does not answer.
        """
        while True:
            job = self.find(job_id)
            if job is None:
                raise JobFailed(f"the cluster at {self.address} knows no job {job_id!r}")
            yield job
            if not job.active:
                return
            time.sleep(_POLL_SECONDS)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """A block that talks to the server, whose failures are told in words."""
        import requests
        from ray.exceptions import AuthenticationError

        try:
            yield
        except ConnectionFailed:
            raise
        except requests.RequestException as error:
            raise Unreachable(unreachable(self.address, error)) from error
        except AuthenticationError as error:
            raise ConnectionFailed(
                f"{self.address} does not let us in any more: its token is another now"
            ) from error
        except RuntimeError as error:
            raise JobFailed(_last_words(str(error))) from error


def ask(
    address: str,
    arguments: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    files: Mapping[str, bytes] | None = None,
    timeout: float = ASK_SECONDS,
) -> str:
    """Run a command of `sweeps` on a cluster's head and return what it printed.

    This machine's own packages are what runs there. What the command writes to standard error is
    not returned. It is stopped if it takes too long, and the cluster forgets it afterwards.

    Args:
        address: `http://HEAD:8265`.
        arguments: Of `sweeps`. Everybody who may see the cluster can read them.
        env: Variables to set; no secrets.
        files: Name to content, laid into the command's working directory.
        timeout: Seconds that all of it may take.

    Returns:
        Its standard output, where it exited with 0, or with 1 and had something to say.

    Raises:
        SecretRefused: If an argument or variable holds a password or key.
        JobFailed: With its own message, if it exited otherwise; also if it took too long.
        ConnectionFailed: If there is no such server, or it does not let us in.
    """
    jobs, mark = Jobs(address), uuid.uuid4().hex
    job_id = f"ask-{mark}"
    command = ["-m", "cluster.answering", mark, *arguments]
    try:
        with shipment(files) as folder:
            jobs.submit(job_id, command, folder, environment=env)
        _await(jobs, job_id, timeout)
        log = jobs.log(job_id)
    finally:
        _dismiss(jobs, job_id)
    return _answer(log, mark)


def _check_public(arguments: Sequence[str], *tables: Mapping[str, str]) -> None:
    values = [value for table in tables for value in table.values()]
    if any(map(holds_secret, [*arguments, *values])):
        raise SecretRefused(
            "a password or key is not sent with a job, as everybody who may see the cluster could "
            "read it: put it into the environment of the cluster's nodes"
        )


def _shell(arguments: Sequence[str], defaults: Mapping[str, str]) -> str:
    """A job's entrypoint; `exec`, so that a signal to the job is one to Python alone."""
    lines = [
        f'[ -n "${{{name}:-}}" ] || export {name}={shlex.quote(value)}'
        for name, value in defaults.items()
    ]
    return "; ".join([*lines, f"exec sh {LAUNCHER} {shlex.join(arguments)}"])


def _await(jobs: Jobs, job_id: str, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    for job in jobs.follow(job_id):
        if job.active and time.monotonic() > deadline:
            raise JobFailed(
                f"the cluster at {jobs.address} gave no answer within {timeout:g} s "
                f"({_last_words(job.message)})"
            )


def _dismiss(jobs: Jobs, job_id: str) -> None:
    """Stop a job and have it forgotten; if that fails it is left to the cluster."""
    with suppress(ConnectionFailed, JobFailed):
        job = jobs.find(job_id)
        if job is not None and job.active:
            jobs.stop(job_id)
            _await(jobs, job_id, _DISMISS_SECONDS)
        jobs.delete(job_id)


def _answer(log: str, mark: str) -> str:
    """What was printed, out of a log that may hold much else."""
    before, begun, rest = log.partition(f"\n{mark} begin\n")
    printed, ended, after = rest.partition(f"\n{mark} end ")
    if not begun or not ended:
        raise JobFailed(f"the cluster gave no answer: {_last_words(log) or 'it said nothing'}")
    code = after.partition("\n")[0]
    if code == "0" or (code == "1" and printed.strip()):
        return printed
    raise JobFailed(_complaint(before))


def _complaint(said: str) -> str:
    """The message of a command that refused, or the last that it said."""
    _, refused, message = said.rpartition("\nError: ")
    return message.strip() if refused else _last_words(said) or "it gave no reason"


def _last_words(text: str) -> str:
    """What a long message, perhaps with a traceback, comes to."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_LONGEST] if lines else ""
