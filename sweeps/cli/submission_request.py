"""Submitting a sweep to a cluster, and finding it there again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sweeps.errors import InputError, StudyError

if TYPE_CHECKING:
    from cluster.jobs import Job, JobClient
    from sweeps.study.spec import Study

_ADDRESS = "RAY_ADDRESS"
_MOST_NAMED: Final = 20


@dataclass(frozen=True)
class Request:
    """A study that may be submitted, as far as can be told without its data.

    Attributes:
        study: The study, changes and number of points included.
        points: How many the search proposes.
        notes: What is no mistake and yet worth knowing.
    """

    study: Study
    points: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """A sweep on a cluster.

    Attributes:
        sweep: The sweep's name.
        jobs: The cluster's job server.
        job: Its job; None if the cluster knows none.
    """

    sweep: str
    jobs: JobClient
    job: Job | None

    @property
    def known(self) -> Job:
        """Its job.

        Raises:
            InputError: If the cluster knows none.
        """
        if self.job is not None:
            return self.job
        raise InputError(
            f"the cluster at {self.jobs.address} knows no sweep {self.sweep!r}{self._others()}. A "
            "cluster that was started anew has forgotten its jobs, not the sweeps' storage: "
            "sweeps submit continues it, and sweeps status --storage shows it"
        )

    def _others(self) -> str:
        from sweeps.cli.submission import job_id

        prefix = job_id("")
        ids = [job.job_id for job in self.jobs.list_jobs()]
        names = [each.removeprefix(prefix) for each in ids if each.startswith(prefix)]
        return f"; it knows {', '.join(sorted(names)[:_MOST_NAMED])}" if names else ""


def request(study: str, changes: Sequence[str] = (), num_points: int | None = None) -> Request:
    """Check a study as far as can be without its data, which only the cluster need have.

    Args:
        study: A packaged study's name, or a path to a YAML file.
        changes: `key=value` each; see `sweeps.study.loader.load`.
        num_points: How many points the search draws, in place of the study's own number.

    Raises:
        StudyError: With everything that is wrong with the study.
        InputError: If `num_points` is no number of points.
    """
    from sweeps.planning.plan import set_num_points
    from sweeps.study.loader import load
    from sweeps.study.validation import validate_study

    found = set_num_points(load(study, changes), num_points)
    checked = validate_study(found, data=False)
    if checked.errors:
        raise StudyError(checked.errors)
    return Request(found, len(checked.configs), checked.notes)


def job_server(address: str | None) -> str | None:
    """The address of a cluster's job server: as given, or else RAY_ADDRESS if that is one.

    Returns:
        An `http(s)` address; None if there is none.
    """
    found = address or os.environ.get(_ADDRESS)
    return found if found and found.startswith(("http://", "https://")) else None


def reach(address: str | None) -> JobClient:
    """The job server of a cluster.

    Raises:
        InputError: If no address is known.
        ConnectError: If there is none there, or it does not let us in.
    """
    from cluster.jobs import JobClient

    if address is not None:
        return JobClient(address)
    found = job_server(None)
    if found is None:
        raise InputError(
            "the cluster's address must be given: pass --address http://HEAD:8265, or set "
            f"{_ADDRESS} to it"
        )
    return JobClient(found)


def find(sweep: str, address: str | None) -> Found:
    """A sweep on a cluster, by its name.

    Raises:
        InputError: If no address is known.
        ConnectError: If there is no job server there, or it does not let us in.
    """
    from sweeps.cli.submission import job_id

    jobs = reach(address)
    return Found(sweep, jobs, jobs.find(job_id(sweep)))


def told_from(address: str) -> str:
    """The option that names an address, empty where the environment does."""
    return "" if os.environ.get(_ADDRESS) == address else f" --address {address}"
