"""`sweeps submit`: have a cluster run a study's sweep."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from sweeps.cli.options import Changes, NumPoints, Yes
from sweeps.cli.options import JobServer as Address
from sweeps.cli.options import Study as StudyName

if TYPE_CHECKING:
    from cluster.jobs import Job, JobClient
    from cluster.submission import SubmitOutcome
    from sweeps.cli.submission import SweepJob
    from sweeps.cli.submission_request import Request
    from sweeps.study.spec import Study

_TRACKING = "MLFLOW_TRACKING_URI"
_STATES = {
    "submitted": "submitted as",
    "resubmitted": "submitted again, to go on where it ended, as",
    "running": "is being run already as",
    "finished": "is done; it was",
}


def submit(
    study: StudyName,
    address: Address = None,
    set_: Changes = None,
    num_points: NumPoints = None,
    name: Annotated[
        str | None, typer.Option(help="The sweep's name; by default the same for equal studies.")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="DIR_OR_URI",
            help="Where every node of the cluster finds sweeps: an absolute path, or a URI.",
        ),
    ] = None,
    tracking_uri: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="MLflow's store, as the cluster reaches it; MLFLOW_TRACKING_URI there, or else "
            "mlflow.db in the storage, by default.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="The data directory on the cluster's nodes."),
    ] = None,
    yes: Yes = False,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Submit without looking at the cluster first.")
    ] = False,
) -> None:
    """Submit a study's sweep to a cluster, and return at once.

    Submitting a sweep again continues it if it ended early, and else changes nothing. Exit codes: 0
    the cluster has it; 2 bad input, or the cluster is not fit for it: nothing was started.
    """
    from sweeps.cli.submission import default_sweep_name, job_id, submit_sweep
    from sweeps.cli.submission_request import reach, request

    asked = request(study, set_ or (), num_points)
    _check_size(asked, yes)
    jobs = reach(address)
    sweep = name or default_sweep_name(asked.study.to_dict())
    earlier = jobs.find(job_id(sweep))
    order = _order(asked.study, sweep, storage, tracking_uri, data, earlier, yes)
    for note in (*asked.notes, *_unseen(order)):
        typer.echo(f"note: {note}", err=True)
    if not no_check and not _settled(order, earlier):
        _check_cluster(jobs, asked.study, order)
    _tell(order, jobs, submit_sweep(jobs, order, earlier))


def _check_size(asked: Request, yes: bool) -> None:
    from sweeps.errors import InputError
    from sweeps.planning.plan import CONFIRM_ABOVE_POINTS

    if asked.points > CONFIRM_ABOVE_POINTS and not yes:
        raise InputError(
            f"The plan has {asked.points:,} points of {asked.study.replicates} replicates. "
            "Pass --yes to submit it."
        )


def _order(
    study: Study,
    sweep: str,
    storage: str | None,
    tracking_uri: str | None,
    data: str | None,
    earlier: Job | None,
    large: bool,
) -> SweepJob:
    """What to submit: as said, and for the rest as it was submitted before."""
    from sweeps.cli.submission import SweepJob, earlier_value, find_storage
    from sweeps.cli.terminal import command_line as typed

    return SweepJob(
        study=study.to_dict(),
        name=sweep,
        storage=find_storage(sweep, storage, earlier),
        tracking_uri=tracking_uri or earlier_value(earlier, "tracking_uri"),
        data=data or earlier_value(earlier, "data"),
        command=typed(),
        large=large,
    )


def _unseen(order: SweepJob) -> Iterator[str]:
    """What is set here and not over there, where a user may take it for granted."""
    if order.tracking_uri is None and os.environ.get(_TRACKING):
        yield (
            f"{_TRACKING} is set here, where the cluster does not see it: the sweep is recorded as "
            "the environment of the cluster's head says, or in mlflow.db in the storage. Give "
            "--tracking-uri to say where"
        )


def _settled(order: SweepJob, earlier: Job | None) -> bool:
    """Whether there is nothing to start."""
    from sweeps.cli.submission import check_same_sweep

    if earlier is None:
        return False
    check_same_sweep(order, earlier)
    return earlier.is_active or earlier.is_finished


def _check_cluster(jobs: JobClient, study: Study, order: SweepJob) -> None:
    """Have the cluster looked at, from its own side.

    Raises:
        InputError: With everything that is not fit for the sweep.
    """
    from sweeps.doctor.asking import Request
    from sweeps.doctor.examination import examine
    from sweeps.errors import InputError

    typer.echo(f"looking at {jobs.address} first; --no-check leaves that out", err=True)
    wanted = Request(jobs.address, order.storage, order.tracking_uri, study, order.data)
    report = examine(wanted)
    for check in report.checks:
        if check.state == "warning":
            typer.echo(f"Warning: {_line(check.subject, check.node, check.found)}", err=True)
    if report.failed:
        lines = [
            f"  {_line(check.subject, check.node, check.found)}; {check.remedy}"
            for check in report.failed
        ]
        raise InputError(
            "the cluster is not fit for this sweep, and nothing was submitted:\n" + "\n".join(lines)
        )


def _line(subject: str, node: str, found: str) -> str:
    return f"{subject} on {node}: {found}" if node else f"{subject}: {found}"


def _tell(order: SweepJob, jobs: JobClient, outcome: SubmitOutcome) -> None:
    from sweeps.cli.submission_request import told_from

    option = told_from(jobs.address)
    typer.echo(f"sweep {order.name} {_STATES[outcome.state]} job {order.job_id} of {jobs.address}")
    for command in (f"status {order.name}", f"logs {order.name} --follow", f"stop {order.name}"):
        typer.echo(f"  sweeps {command}{option}")
