"""Sweeps as jobs of a cluster: one job for each sweep's name, whoever submits it and how often.

The job is a driver that continues whatever the sweep's storage holds, so that a job that was
stopped or lost is simply submitted again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, Protocol
from urllib.parse import urlsplit

import yaml

from cluster.jobs import Job, JobFailed, Jobs
from cluster.shipping import shipment
from cluster.uris import holds_secret

Fate = Literal["submitted", "resubmitted", "active", "done"]

STUDY_FILE: Final = "study.yaml"
AGAIN: Final = "SWEEPS_SUBMITTED_BY"
"""A variable that tells the driver with which command the sweep is submitted again."""
STOP_SECONDS: Final = 120
"""That a job has to end in order, its packs in hand kept as checkpoints, before it is killed."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_ALLOWED_NAME = "at most 200 letters, digits, '.', '_' or '-' that begin with a letter or digit"
_DIGEST_LENGTH = 8
# By what a job remembers, and a submission may say otherwise.
_REMEDIES = {
    "storage": "leave --storage out, and it goes on from what is there; if that was moved, have "
    "the cluster forget it first (ray job delete)",
    "tracking_uri": "leave --tracking-uri out, or stop the sweep first; `sweeps sync` publishes "
    "one that is done elsewhere",
    "data": "leave --data out, or stop the sweep first",
}


class SubmissionRefused(ValueError):
    """A sweep cannot be submitted as asked for; the message says what to change."""


class Specified(Protocol):
    """A study that can say what it is in plain values, as pydantic models do."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """Its plain values."""


@dataclass(frozen=True)
class Order:
    """A sweep to be run on a cluster; all places are as the cluster's nodes see them.

    Attributes:
        spec: The study in plain values.
        name: The sweep's.
        storage: Absolute path or URI under which sweeps live.
        tracking_uri: Of the MLflow store; if None that of the cluster's own environment, or else a
            database in the storage.
        data: The data directory; that of the nodes' own environment if None.
        command: That submits it again, for people to read.
        large: Whether a very large plan is meant so.
    """

    spec: Mapping[str, Any]
    name: str
    storage: str
    tracking_uri: str | None = None
    data: str | None = None
    command: str = ""
    large: bool = False

    def __post_init__(self) -> None:
        """Check what can be checked from here.

        Raises:
            SubmissionRefused: If a place is none that every node could find, or a secret is in it.
        """
        if not _NAME.fullmatch(self.name):
            raise SubmissionRefused(f"a sweep's name must be {_ALLOWED_NAME}; got {self.name!r}")
        _check_place("storage", self.storage)
        _check_tracking(self.tracking_uri, self.storage)
        if self.data is not None and not PurePosixPath(self.data).is_absolute():
            raise SubmissionRefused(
                "data must be an absolute path of a directory on the cluster's nodes; "
                f"got {self.data!r}"
            )

    @property
    def job_id(self) -> str:
        """Of its job."""
        return job_id(self.name)

    @property
    def environment(self) -> dict[str, str]:
        """Variables of all the job's processes; Ray reads the first two when it stops the job."""
        data = {"PRIVNETS_DATA": self.data} if self.data else {}
        stop = {"RAY_JOB_STOP_SIGNAL": "SIGINT", "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS)}
        return stop | data

    @property
    def files(self) -> dict[str, bytes]:
        """What the job needs beside the packages."""
        text = yaml.safe_dump(dict(self.spec), sort_keys=False, allow_unicode=True)
        return {STUDY_FILE: text.encode()}

    def arguments(self) -> list[str]:
        """Of Python: the driver, which continues what the storage holds."""
        return [
            *("-m", "sweeps", "run", STUDY_FILE, "--name", self.name),
            *("--address", "auto", "--storage", self.storage),
            *(("--tracking-uri", self.tracking_uri) if self.tracking_uri else ()),
            *(("--yes",) if self.large else ()),
        ]

    def defaults(self) -> dict[str, str]:
        """Variables for the driver where the cluster has not set them itself."""
        again = {AGAIN: self.command or "sweeps submit, with the same study"}
        if self.tracking_uri or "://" in self.storage:
            return again
        return {**again, "MLFLOW_TRACKING_URI": f"sqlite:///{self.storage.rstrip('/')}/mlflow.db"}

    def metadata(self) -> dict[str, str]:
        """What `status`, `logs` and `stop` find with the job."""
        known = {
            "sweep": self.name,
            "study": str(self.spec.get("name", "")),
            "digest": digest(self.spec),
            "storage": self.storage,
            "tracking_uri": self.tracking_uri or "",
            "data": self.data or "",
            "command": self.command,
        }
        return {key: value for key, value in known.items() if value}


def submit(
    study: str | os.PathLike[str] | Specified,
    address: str,
    *,
    name: str | None = None,
    storage: str | None = None,
    tracking_uri: str | None = None,
    data: str | None = None,
    large: bool = False,
) -> str:
    """Have a cluster run a study's sweep; returns as soon as the cluster has it.

    Submitting a sweep that is being run, or is done, changes nothing. One that ended early is
    continued from what its storage holds.

    Args:
        study: A packaged study's name, a path to a YAML file, or a study.
        address: Of the cluster's job server, as `http://HEAD:8265`; see `cluster.jobs.Jobs` for
            where the token is looked for.
        name: The sweep's; by default the study's with a digest of what it says, so that the same
            study is the same sweep.
        storage: Absolute path or URI under which sweeps live, as every node sees it. It may be left
            out where the cluster still knows an earlier job of the sweep.
        tracking_uri: Of the MLflow store, as the cluster sees it, without password; that of the
            cluster's environment by default, or else a database in the storage.
        data: The data directory on the nodes; that of their environment by default.
        large: Also run a plan of more points than are run unasked.

    Returns:
        The id of the job.

    Raises:
        SubmissionRefused: If it cannot be submitted as asked for; nothing was started.
        ConnectionFailed: If there is no such job server, or it does not let us in.
        JobFailed: If the cluster does not take it.
    """
    spec = _specified(study)
    jobs = Jobs(address)
    sweep = name or sweep_name(spec)
    earlier = jobs.find(job_id(sweep))
    order = Order(
        spec,
        sweep,
        known_storage(sweep, storage, earlier),
        tracking_uri or remembered(earlier, "tracking_uri"),
        data or remembered(earlier, "data"),
        large=large,
    )
    place(jobs, order, earlier)
    return order.job_id


def place(jobs: Jobs, order: Order, earlier: Job | None) -> Fate:
    """Start an order's job, unless one of its name runs or is done.

    Args:
        jobs: The cluster's.
        order: What to start.
        earlier: The job of that id that the cluster knows, if any.

    Raises:
        SubmissionRefused: If the name is another study's.
        ConnectionFailed: If the server does not answer.
        JobFailed: If the cluster does not take it.
    """
    if earlier is not None:
        check_same(order, earlier)
        if earlier.active:
            return "active"
        if earlier.state == "SUCCEEDED":
            return "done"
    try:
        if earlier is not None:
            jobs.delete(order.job_id)
        with shipment(order.files) as folder:
            jobs.submit(
                order.job_id,
                order.arguments(),
                folder,
                environment=order.environment,
                defaults=order.defaults(),
                metadata=order.metadata(),
            )
    except JobFailed:
        raced = jobs.find(order.job_id)  # somebody else may have been faster
        if raced is None or not raced.active:
            raise
        check_same(order, raced)
        return "active"
    return "submitted" if earlier is None else "resubmitted"


def check_same(order: Order, earlier: Job) -> None:
    """Whether a job is of the same sweep, and an order says nothing that would not be heeded.

    Raises:
        SubmissionRefused: If its study says something else, its results are elsewhere, or it runs
            or is done with other places.
    """
    if earlier.metadata.get("digest", digest(order.spec)) != digest(order.spec):
        raise SubmissionRefused(
            f"the name {order.name!r} is taken on this cluster by a sweep of another study "
            f"({earlier.metadata.get('study', 'unknown')}); choose another --name, or leave it out"
        )
    settled = earlier.active or earlier.state == "SUCCEEDED"
    for key in _REMEDIES if settled else ("storage",):
        before, now = (told.get(key, "") for told in (earlier.metadata, order.metadata()))
        if before.rstrip("/") != now.rstrip("/"):
            raise SubmissionRefused(
                f"the sweep {order.name!r} has the {key.replace('_', ' ')} "
                f"{before or 'of its nodes'} and not {now}: {_REMEDIES[key]}; for a sweep apart "
                "choose another --name"
            )


def known_storage(sweep: str, storage: str | None, earlier: Job | None) -> str:
    """The storage to use: as given, or else that of an earlier job.

    Raises:
        SubmissionRefused: If there is neither.
    """
    found = storage or remembered(earlier, "storage")
    if found is None:
        raise SubmissionRefused(
            "storage must be given, and this cluster knows no earlier job of sweep "
            f"{sweep!r}: pass --storage with an absolute path that every node shares (NFS or the "
            "like), or a URI such as s3://BUCKET/sweeps"
        )
    return found


def remembered(earlier: Job | None, key: str) -> str | None:
    """What an earlier job was submitted with; None if there is none or it was without."""
    return None if earlier is None else earlier.metadata.get(key) or None


def sweep_name(spec: Mapping[str, Any]) -> str:
    """The name of a study's sweep where none is given: equal studies have equal names."""
    return f"{spec['name']}-{digest(spec)}"


def job_id(sweep: str) -> str:
    """The id of a sweep's job."""
    return f"sweep-{sweep}"


def digest(spec: Mapping[str, Any]) -> str:
    """Of what a study says; equal for equal studies."""
    canonical = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:_DIGEST_LENGTH]


def _specified(study: str | os.PathLike[str] | Specified) -> dict[str, Any]:
    """A study's plain values; a name or a file is resolved by the program that will run it."""
    if not isinstance(study, str | os.PathLike):
        return study.model_dump(mode="json")
    ran = subprocess.run(
        [sys.executable, "-m", "sweeps.cli.resolving", os.fspath(study)],
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        raise SubmissionRefused(ran.stderr.strip().removeprefix("Error: "))
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def _check_place(what: str, place: str) -> None:
    if "://" not in place and not Path(place).is_absolute():
        raise SubmissionRefused(
            f"{what} must be an absolute path or a URI, as every node of the cluster sees it; "
            f"got {place!r}"
        )
    if holds_secret(place):
        raise SubmissionRefused(
            f"{what} must not hold a password or key, as everybody who may see the cluster could "
            "read it: put credentials into the environment of the cluster's nodes"
        )
    _check_form(place)


def _check_tracking(uri: str | None, storage: str) -> None:
    if uri is None:
        if "://" in storage:
            raise SubmissionRefused(
                "a tracking URI must be given where the storage is a URI: pass --tracking-uri with "
                "that of an MLflow server, as http://HOST:5000"
            )
        return
    if holds_secret(uri):
        raise SubmissionRefused(
            "a tracking URI must not hold a user or password, as everybody who may see the cluster "
            "could read it: put MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD into the "
            "environment of the cluster's head, or ~/.mlflow/credentials there with mode 0600"
        )
    _check_form(uri)
    if "://" not in uri or (uri.startswith("sqlite:") and not uri.startswith("sqlite:////")):
        raise SubmissionRefused(
            "a tracking URI must mean the same on every node, as http://HOST:5000 or "
            f"sqlite:////absolute/path/mlflow.db; got {uri!r}"
        )


def _check_form(uri: str) -> None:
    # In a path white space means itself; a URI's readers differ about it.
    if re.search(r"[\x00-\x1f\x7f-\x9f]" + (r"|\s" if "://" in uri else ""), uri):
        raise SubmissionRefused(
            "white space in a URI must be written as %20, and control characters be left out of "
            "any place: what was given has some"
        )
    try:
        urlsplit(uri)
    except ValueError as error:  # a bracket that does not close
        raise SubmissionRefused(f"{error}: what was given is no URI") from error
