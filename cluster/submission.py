"""Python commands as jobs of a cluster, together with the packages and files that they need."""

from __future__ import annotations

import io
import shlex
import time
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Final, Literal

from cluster.errors import ClusterError, JobError
from cluster.jobs import Job, JobClient, last_line

SubmitState = Literal["submitted", "resubmitted", "running", "finished"]

COMMAND_SECONDS: Final = 180.0
"""Default time limit of `run_command`, including the start of a process."""

_LAUNCHER: Final = "launch.sh"
_COMMAND_PREFIX: Final = "command-"
# Another client may still read the output of a command that ended less long ago.
_KEEP_SECONDS = 600.0
# Ray monitors a job for about a second after its end and would store a deleted one again.
_SETTLE_SECONDS = 3.0
# Files that make an unpacked package known by its name, version and entry points.
_METADATA_FILES = ("METADATA", "entry_points.txt")
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # equal content gives equal archives


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """Python command to run on a cluster. Every user of the cluster can read it: no secrets.

    Attributes:
        submission_id: Id of the job; submitting the same id again starts no second job.
        arguments: Command line of Python, as `("-m", "package", "argument")`.
        packages: Packages installed here that the job uses in place of the cluster's own.
        distribution: Installed distribution whose metadata is sent with the packages.
        files: Relative paths and contents of files for the job's working directory.
        environment: Variables of all the job's processes.
        defaults: Variables of its first process, where the cluster does not set them.
        metadata: Values to keep with the job.
    """

    submission_id: str
    arguments: tuple[str, ...]
    packages: tuple[str, ...] = ()
    distribution: str | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SubmitOutcome:
    """Result of a submission; `existing` is a job that already runs or has finished."""

    state: SubmitState
    existing: Job | None = None


@dataclass(frozen=True)
class CommandOutput:
    """Result of a command that ran on a cluster.

    Attributes:
        exit_code: Exit code of Python.
        stdout: Standard output, without line ends at the end.
        stderr: Standard error, with other lines of the job's log.
    """

    exit_code: int
    stdout: str
    stderr: str


def submit(spec: JobSpec, cluster: str | JobClient) -> SubmitOutcome:
    """Starts a job, unless a job of the same id runs or has finished with success.

    A job that failed or was stopped is started again under its id.

    Args:
        spec: Job to start.
        cluster: Address of the job server, as `http://HEAD:8265`, or a client of it.

    Raises:
        ConnectError: If no job server answers there, or it rejects the token.
        JobError: If the cluster does not accept the job.
    """
    client = JobClient(cluster) if isinstance(cluster, str) else cluster
    earlier = client.find(spec.submission_id)
    if earlier is not None:
        if earlier.is_active or earlier.is_finished:
            return SubmitOutcome("running" if earlier.is_active else "finished", earlier)
        time.sleep(_SETTLE_SECONDS)
        client.delete(spec.submission_id)
    try:
        _start(client, spec, _entrypoint(spec))
    except JobError:
        rival = client.find(spec.submission_id)  # started by another client meanwhile
        if rival is None or not rival.is_active:
            raise
        return SubmitOutcome("running", rival)
    return SubmitOutcome("submitted" if earlier is None else "resubmitted")


def run_command(
    spec: JobSpec, cluster: str | JobClient, timeout: float = COMMAND_SECONDS
) -> CommandOutput:
    """Runs a short Python command on a cluster's head and returns its output.

    Args:
        spec: Command; its submission id is replaced by a random one.
        cluster: Address of the job server, as `http://HEAD:8265`, or a client of it.
        timeout: Seconds after which the command is stopped.

    Raises:
        JobError: If the cluster does not accept the command, or it takes too long.
    """
    client = JobClient(cluster) if isinstance(cluster, str) else cluster
    mark = uuid.uuid4().hex
    job_id = f"{_COMMAND_PREFIX}{mark}"
    capture = (
        f"output=$({_entrypoint(spec)}); code=$?; "
        f"printf '\\n%s begin\\n%s\\n%s end %d\\n' {mark} \"$output\" {mark} $code"
    )
    with suppress(ClusterError):  # earlier commands only fill the cluster's list
        for job in client.list_jobs():
            is_old = job.ended is not None and time.time() - job.ended > _KEEP_SECONDS
            if job.job_id.startswith(_COMMAND_PREFIX) and is_old:
                client.delete(job.job_id)
    try:
        _start(client, spec, capture, job_id)
        deadline = time.monotonic() + timeout
        for job in client.follow(job_id):
            if job.is_active and time.monotonic() > deadline:
                raise JobError(
                    f"the cluster at {client.address} did not answer within {timeout:g} s "
                    f"({last_line(job.message)})"
                )
        log = client.log(job_id)
        before, begin, rest = log.partition(f"\n{mark} begin\n")
        stdout, end, after = rest.rpartition(f"\n{mark} end ")
        if not begin or not end:
            raise JobError(f"the cluster's command failed: {last_line(log) or 'its log is empty'}")
        return CommandOutput(int(after.partition("\n")[0]), stdout, before)
    except BaseException:
        with suppress(ClusterError):
            client.stop(job_id)
        raise


def build_archive(spec: JobSpec) -> bytes:
    """Returns a zip archive of a job's packages and files.

    Raises:
        ModuleNotFoundError: If a package is not installed here.
        ValueError: If a file's path leaves the working directory, or replaces another file.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(_archive_files(spec)):
            archive.writestr(zipfile.ZipInfo(name, _ZIP_DATE), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _archive_files(spec: JobSpec) -> Iterator[tuple[str, bytes]]:
    own = {_LAUNCHER, *spec.packages, *(f"{package}.py" for package in spec.packages)}
    for name, content in spec.files.items():
        target = PurePosixPath(name)
        if target.is_absolute() or ".." in target.parts or target.parts[0] in own:
            raise ValueError(f"a job's file must have a path of its own below it; got {name!r}")
        yield name, content
    yield _LAUNCHER, Path(__file__).with_name(_LAUNCHER).read_bytes()
    for package in spec.packages:
        module = find_spec(package)  # without importing it
        if module is None or module.origin is None:
            raise ModuleNotFoundError(f"the package {package} is not installed here")
        folder = Path(module.origin).parent
        for path in folder.rglob("*"):
            relative = path.relative_to(folder)
            is_hidden = any(part.startswith((".", "__pycache__")) for part in relative.parts)
            if path.is_file() and path.suffix != ".pyc" and not is_hidden:
                yield f"{package}/{relative.as_posix()}", path.read_bytes()
    if spec.distribution is None:
        return
    try:
        installed = distribution(spec.distribution)
    except PackageNotFoundError:
        return  # a checkout that was never installed
    directory = f"{spec.distribution.replace('-', '_')}-{installed.version}.dist-info"
    for part in _METADATA_FILES:
        if (text := installed.read_text(part)) is not None:
            yield f"{directory}/{part}", text.encode()


def _entrypoint(spec: JobSpec) -> str:
    """Shell command of a job; `exec`, so that signals to the job reach Python alone."""
    defaults = [
        f'[ -n "${{{name}:-}}" ] || export {name}={shlex.quote(value)}'
        for name, value in spec.defaults.items()
    ]
    return "; ".join([*defaults, f"exec sh {_LAUNCHER} {shlex.join(spec.arguments)}"])


def _start(client: JobClient, spec: JobSpec, entrypoint: str, job_id: str | None = None) -> None:
    client.start(
        job_id or spec.submission_id,
        entrypoint,
        package=client.upload(build_archive(spec)),
        environment=spec.environment,
        metadata=spec.metadata,
    )
