"""Sweeps as jobs of a cluster: one job for each sweep's name, however often it is submitted.

The job runs a driver that continues from the sweep's storage, so a job that was stopped or lost is
submitted again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

import cluster
from cluster.errors import JobError
from cluster.jobs import Job, JobClient
from cluster.submission import JobSpec, SubmitOutcome
from sweeps.errors import InputError, StudyError
from sweeps.planning.costs import check_confirmed
from sweeps.remote.commands import (
    DISTRIBUTION,
    TRACKING_ADVICE,
    check_public,
    check_remote_path,
    run_remotely,
)
from sweeps.remote.environment import SUBMIT_COMMAND
from sweeps.study.loader import load
from sweeps.study.shipped_files import PACKAGES, read_study_files, shipped_name
from sweeps.study.spec import Study
from sweeps.study.validation import validate_study

STOP_SECONDS: Final = 120
"""Time that a job has to store checkpoints and end, before it is killed."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_NAME_RULE = "at most 200 letters, digits, '.', '_' or '-' that begin with a letter or digit"
_DIGEST_LENGTH = 8
_LISTED_SWEEPS = 20
_WAIT_SECONDS = 10.0
_SPARE_SECONDS = 60.0  # Ray needs time to notice the end of a job.
# Advice for an option whose value differs from that of the sweep's earlier job.
_CONFLICT_ADVICE = {
    "storage": "omit --storage to continue from there; if the storage was moved, delete the job "
    "first (ray job delete)",
    "tracking_uri": "omit --tracking-uri, or stop the sweep first; `sweeps sync` publishes a "
    "finished one elsewhere",
    "data": "omit --data, or stop the sweep first",
}


@dataclass(frozen=True)
class SweepJob:
    """Sweep to run on a cluster; arguments as of `submit`, all paths as the nodes see them.

    Attributes:
        files: Files of the study, by their paths from its folder.
        study_file: Name of the study's own file in the job.
    """

    study: Mapping[str, Any]
    name: str
    storage: str
    tracking_uri: str | None = None
    data: str | None = None
    command: str = ""
    large: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)
    study_file: str = "study.yaml"

    def __post_init__(self) -> None:
        """Raises `InputError` for a place of one machine, or a value that holds a secret."""
        if not _NAME.fullmatch(self.name):
            raise InputError(f"a sweep's name must be {_NAME_RULE}; got {self.name!r}")
        for option, place in (("--storage", self.storage), ("--data", self.data)):
            check_remote_path(option, place)
            _check_form(option, place)
        uri = self.tracking_uri
        if uri is None and "://" in self.storage:
            raise InputError(
                "a tracking URI must be given where the storage is a URI: pass --tracking-uri with "
                "that of an MLflow server, as http://HOST:5000"
            )
        check_public("--tracking-uri", uri, TRACKING_ADVICE)
        _check_form("--tracking-uri", uri)
        is_relative = uri is not None and uri.startswith("sqlite:") and uri[:11] != "sqlite:////"
        if uri is not None and (is_relative or "://" not in uri):
            raise InputError(
                "--tracking-uri must mean the same on every node, as http://HOST:5000 or "
                f"sqlite:////absolute/path/mlflow.db; got {uri!r}"
            )

    def metadata(self) -> dict[str, str]:
        """Returns the values that `status`, `logs` and `stop` read from the job."""
        values = {
            "sweep": self.name,
            "study": str(self.study.get("name", "")),
            "digest": _digest(self.study),
            "resources": json.dumps(self.study.get("resources", {}), sort_keys=True),
            "storage": self.storage,
            "tracking_uri": self.tracking_uri or "",
            "data": self.data or "",
            "command": self.command,
        }
        return {key: value for key, value in values.items() if value}

    def default_variables(self) -> dict[str, str]:
        """Returns variables of the driver, where the cluster does not set them."""
        variables = {SUBMIT_COMMAND: self.command or "sweeps submit, with the same study"}
        if self.tracking_uri is None and "://" not in self.storage:
            variables["MLFLOW_TRACKING_URI"] = f"sqlite:///{self.storage.rstrip('/')}/mlflow.db"
        return variables

    def job_spec(self) -> JobSpec:
        """Returns the job of a driver that continues from the storage."""
        text = yaml.safe_dump(dict(self.study), sort_keys=False, allow_unicode=True)
        arguments = ["-m", "sweeps", "run", self.study_file, "--name", self.name]
        arguments += ["--address", "auto", "--storage", self.storage]
        arguments += ["--tracking-uri", self.tracking_uri] if self.tracking_uri else []
        arguments += ["--yes"] if self.large else []
        # Ray reads the first two when it stops the job.
        stop = {"RAY_JOB_STOP_SIGNAL": "SIGINT", "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS)}
        return JobSpec(
            submission_id=job_id(self.name),
            arguments=tuple(arguments),
            packages=PACKAGES,
            distribution=DISTRIBUTION,
            files={**self.files, self.study_file: text.encode()},
            environment=stop | ({"PRIVNETS_DATA": self.data} if self.data else {}),
            defaults=self.default_variables(),
            metadata=self.metadata(),
        )


def submit(
    study: str | os.PathLike[str] | Study,
    address: str,
    *,
    overrides: Sequence[str] = (),
    name: str | None = None,
    storage: str | None = None,
    tracking_uri: str | None = None,
    data: str | None = None,
    large: bool = False,
    include: Sequence[str | os.PathLike[str]] = (),
) -> str:
    """Submits a study's sweep to a cluster; returns the id of the job once the cluster has it.

    The data files that the study names by relative paths, and the Python modules in its folder if
    it names one of them, travel with the job.

    Submitting a sweep that runs or has finished changes nothing. One that ended early continues
    from its storage.

    Args:
        study: A packaged study's name, a path to a YAML file, or a study.
        address: Address of the cluster's job server, as `http://HEAD:8265`.
        overrides: Changes of the study, as `fixed.train_size=100`.
        name: Name of the sweep, by default the study's with a digest of its values.
        storage: Absolute path or URI that holds sweeps, as every node sees it. It may be left out
            if the cluster has an earlier job of the sweep.
        tracking_uri: URI of the MLflow store, as the cluster sees it, without password; by default
            that of the cluster's environment, or else a database in the storage.
        data: Data directory on the nodes; that of their environment by default.
        large: Whether to run a plan of more points than are run without confirmation.
        include: Directories with further Python packages for the job.

    Raises:
        InputError: If it cannot be submitted as given; nothing was started.
        ConnectError: If no job server answers there, or it rejects the token.
        JobError: If the cluster does not accept the job.
    """
    loaded = load(study, overrides)
    client = JobClient(address)
    files = read_study_files(loaded, [*map(Path, include)])
    job, earlier = prepare_job(
        client, loaded, name, storage, tracking_uri, data, large=large, files=files
    )
    submit_job(client, job, earlier)
    return job_id(job.name)


def prepare_job(
    client: JobClient,
    study: Study,
    name: str | None,
    storage: str | None,
    tracking_uri: str | None,
    data: str | None,
    *,
    command: str = "",
    large: bool = False,
    files: Mapping[str, bytes] = MappingProxyType({}),
) -> tuple[SweepJob, Job | None]:
    """Returns a sweep's job, with the values of its earlier job as defaults, and that job."""
    values = study.to_dict()
    sweep = name or default_sweep_name(values)
    earlier = client.find(job_id(sweep))
    defaults = {} if earlier is None else earlier.metadata
    storage = storage or defaults.get("storage")
    if storage is None:
        raise InputError(
            f"storage must be given, because this cluster has no earlier job of sweep {sweep!r}: "
            "pass --storage with an absolute path that every node shares (as on NFS), or a URI "
            "such as s3://BUCKET/sweeps"
        )
    uri, directory = tracking_uri or defaults.get("tracking_uri"), data or defaults.get("data")
    job = SweepJob(
        values, sweep, storage, uri, directory, command, large, files, shipped_name(study)
    )
    if earlier is not None:
        check_same_sweep(job, earlier)
    return job, earlier


def submit_job(client: JobClient, job: SweepJob, earlier: Job | None) -> SubmitOutcome:
    """Starts a sweep's job, unless a job of its name runs or has finished."""
    outcome = cluster.submit(job.job_spec(), client)
    if outcome.existing is not None and earlier is None:  # Another client was faster.
        check_same_sweep(job, outcome.existing)
    return outcome


def check_same_sweep(job: SweepJob, earlier: Job) -> None:
    """Raises `InputError` if an earlier job is of another sweep, or new values were ignored."""
    if earlier.metadata.get("digest", _digest(job.study)) != _digest(job.study):
        raise InputError(
            f"the name {job.name!r} belongs to a sweep of another study on this cluster "
            f"({earlier.metadata.get('study', 'unknown')}); choose another --name, or omit it"
        )
    if earlier.is_active and earlier.metadata.get("resources") != job.metadata()["resources"]:
        raise InputError(
            f"the sweep {job.name!r} runs with other resources; to change them, stop it and submit "
            f"it again: sweeps stop {job.name}. What it has trained is kept"
        )
    is_settled = earlier.is_active or earlier.is_finished
    for key in _CONFLICT_ADVICE if is_settled else ("storage",):
        before, now = (values.get(key, "") for values in (earlier.metadata, job.metadata()))
        if before.rstrip("/") != now.rstrip("/"):
            raise InputError(
                f"the sweep {job.name!r} has the {key.replace('_', ' ')} "
                f"{before or 'of its nodes'} and not {now}: {_CONFLICT_ADVICE[key]}; for a "
                "separate sweep choose another --name"
            )


def validate_remote_study(study: Study, is_confirmed: bool) -> tuple[str, ...]:
    """Validates a study without its data, which only the cluster needs; returns notes on it."""
    validated = validate_study(study, data=False)
    if validated.errors:
        raise StudyError(validated.errors)
    check_confirmed(study, validated.configs, is_confirmed)
    return validated.notes


def find_job(client: JobClient, sweep: str) -> Job:
    """Returns the job of a submitted sweep; `InputError` lists the sweeps if it has none."""
    job = client.find(job_id(sweep))
    if job is not None:
        return job
    names = sorted(job.metadata["sweep"] for job in client.list_jobs() if "sweep" in job.metadata)
    others = f" (it has {', '.join(names[:_LISTED_SWEEPS])})" if names else ""
    raise InputError(
        f"the cluster at {client.address} has no job of sweep {sweep!r}{others}. A restarted "
        "cluster loses its jobs, but not the storage: sweeps submit continues the sweep, and "
        "sweeps status --storage shows it"
    )


def stop_job(client: JobClient, job_id: str, on_wait: Callable[[float], None]) -> Job:
    """Stops a sweep's job; returns it once it has ended, after about three minutes at most.

    Args:
        client: Client of the job server.
        job_id: The job, which is active.
        on_wait: Called with the seconds so far, now and then.

    Raises:
        JobError: If it has not ended in time.
    """
    client.stop(job_id)
    began = last_call = time.monotonic()
    for job in client.follow(job_id):
        now = time.monotonic()
        if not job.is_active:
            return job
        if now - began > STOP_SECONDS + _SPARE_SECONDS:
            break
        if now - last_call >= _WAIT_SECONDS:
            last_call = now
            on_wait(now - began)
    raise JobError(
        f"the job {job_id} has not ended within {STOP_SECONDS + _SPARE_SECONDS:.0f} s; read its "
        "log with sweeps logs, or run sweeps stop again"
    )


def fetch_archive(client: JobClient, sweep: str) -> bytes:
    """Returns the archive of a submitted sweep's ledger; see `sweeps.store.transfer`.

    Raises:
        InputError: If the cluster has no job of the sweep, or its reply cannot be parsed.
        JobError: If the sweep cannot be read there.
    """
    storage = find_job(client, sweep).metadata.get("storage", "")
    reply = run_remotely(client, [storage, sweep], module="sweeps.store.transfer")
    try:
        return base64.b64decode(reply, validate=True)
    except ValueError as error:
        raise InputError(f"cannot parse the cluster's reply: {error}") from error


def default_sweep_name(study: Mapping[str, Any]) -> str:
    """Returns the name of a study's sweep; equal studies have equal names, on any resources."""
    return f"{study['name']}-{_digest(study)}"


def job_id(sweep: str) -> str:
    """Returns the submission id of a sweep's job."""
    return f"sweep-{sweep}"


def _digest(study: Mapping[str, Any]) -> str:
    values = {key: value for key, value in study.items() if key != "resources"}
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:_DIGEST_LENGTH]


def _check_form(option: str, place: str | None) -> None:
    place = place or ""
    # White space is part of a path; readers of URIs treat it differently.
    if re.search(r"[\x00-\x1f\x7f-\x9f]" + (r"|\s" if "://" in place else ""), place):
        raise InputError(
            f"{option} contains white space or control characters: write white space in a URI as "
            "%20, and leave control characters out"
        )
    try:
        urlsplit(place)
    except ValueError as error:  # an unclosed bracket
        raise InputError(f"{option} is a malformed URI: {error}") from error
