"""`sweeps status`: how a sweep stands, here or on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sweeps.analysis.formatting import format_count
from sweeps.cli.options import JobServer as Address
from sweeps.cli.options import Storage, Sweep
from sweeps.cli.terminal import print_table, say

if TYPE_CHECKING:
    from cluster.jobs import Job
    from sweeps.cli.submission_request import Found
    from sweeps.engine.status import Status
    from sweeps.store.lease import Heartbeat

_STALE_SECONDS = 60.0


def status(
    sweep: Sweep,
    address: Address = None,
    storage: Storage = None,
    json: Annotated[bool, typer.Option("--json", help="Print it for a program to read.")] = False,
) -> None:
    """Show how far a sweep is: points, rate, time left, machines in use, the front so far.

    With the address of a cluster, of a sweep that was submitted to it; otherwise of one in a
    storage that this machine sees. A storage that is named without an address is looked at from
    here.
    """
    from sweeps.cli.submission_request import find, job_server
    from sweeps.engine.handing_over import check_place, check_public
    from sweeps.engine.status import look

    if address is None and (storage is not None or job_server(None) is None):
        _print(look(sweep, storage), None, json)
        return
    check_public("--storage", storage, "put them into the environment of the cluster's nodes")
    check_place("--storage", storage)
    found = find(sweep, address)
    _print(_asked(found, storage), found.job, json)


def _asked(found: Found, storage: str | None) -> Status | None:
    """What a cluster knows; None if the sweep has left no trace in its storage yet."""
    from cluster.errors import JobError
    from sweeps.cli.submission import earlier_value
    from sweeps.engine.handing_over import answer, run_on_cluster
    from sweeps.engine.status import Status
    from sweeps.errors import InputError

    where = storage or earlier_value(found.job, "storage")
    if where is None:
        raise InputError(
            f"the job {found.known.job_id} does not say where it keeps its points: pass --storage"
        )
    try:
        told = run_on_cluster(
            found.jobs.address, ["status", found.sweep, "--storage", where, "--json"]
        )
    except JobError as error:
        if found.job is None:
            raise
        begins = "; its driver may have just begun" if found.job.is_active else ""
        say(f"The storage tells nothing of it yet{begins}: {error}", err=True)
        return None
    return answer(Status, told)


def _print(status: Status | None, job: Job | None, as_json: bool) -> None:
    if as_json:
        typer.echo(_document(status, job))
        return
    for name, text in _lines(status, job):
        say(f"{name:9}{text}")
    if status is not None and status.front:
        _print_front(status)


def _document(status: Status | None, job: Job | None) -> str:
    import json
    from dataclasses import asdict

    found: dict[str, Any] = {} if status is None else status.model_dump(mode="json")
    if job is not None:
        found["job"] = asdict(job)
    return json.dumps(found)


def _lines(status: Status | None, job: Job | None) -> list[tuple[str, str]]:
    from sweeps.engine.status import state_words

    lines = []
    if status is not None:
        words = state_words(None if job is None else job.state, status.heartbeat)
        lines += [("sweep", f"{status.sweep} of study {status.study}: {words}")]
        lines += [("points", _points(status))]
        lines += _work(status) if job is None or job.is_active else []
        lines += _driver(status)
        lines += [("lost", f"pack {pack}: {reason}") for pack, reason in status.lost.items()]
        lines += [("storage", status.storage)]
    if job is not None:
        lines += [("job", f"{job.job_id}: {job.state}; {_message(job)}")]
    return lines


def _points(status: Status) -> str:
    parts = [f"{status.finished} of {status.points} finished", f"{status.failed} failed"]
    parts += [f"{status.stopped} stopped early"] if status.stopped else []
    return ", ".join([*parts, f"{status.pending} to go"])


def _work(status: Status) -> list[tuple[str, str]]:
    """How fast it goes, and on what, while it trains."""
    from sweeps.planning.plan import format_duration

    heartbeat = status.heartbeat
    if heartbeat is None or heartbeat.phase not in ("starting", "training") or _stale(status):
        return []
    parts = [heartbeat.doing] if heartbeat.doing else []
    parts += [] if heartbeat.doing else [f"{heartbeat.share:.0%} of this run's work"]
    parts += [heartbeat.waiting] if heartbeat.waiting else []
    parts += _trainings(heartbeat)
    parts += [f"{heartbeat.rate:.1f} points per minute"] if heartbeat.rate is not None else []
    parts += [f"about {format_duration(heartbeat.eta)} left"] if heartbeat.eta is not None else []
    lines = [("work", ", ".join(parts))]
    if (use := heartbeat.use) is not None:
        lines += [
            (
                "in use",
                f"{format_count(use.packs, 'pack')} in training, "
                f"on {use.busy_nodes} of {format_count(use.nodes, 'node')}, "
                f"{use.busy_cpus:g} of {format_count(use.cpus, 'CPU')}, "
                f"{use.busy_gpus:g} of {format_count(use.gpus, 'GPU')}",
            )
        ]
    if heartbeat.setback is not None:
        lines += [("setbacks", f"{heartbeat.setbacks}; the last: {heartbeat.setback}")]
    return lines


def _trainings(heartbeat: Heartbeat) -> list[str]:
    """How many are done: points are when all their replicates are."""
    if heartbeat.trainings is None:
        return []
    done, total = heartbeat.trainings
    return [f"{done:,} of {format_count(total, 'training')} done"]


def _driver(status: Status) -> list[tuple[str, str]]:
    from sweeps.planning.plan import format_duration

    heartbeat, age = status.heartbeat, status.age
    if heartbeat is None or age is None:
        return []
    text = f"{heartbeat.phase}; last wrote {format_duration(max(0.0, age))} ago"
    if _stale(status):
        text += ", so it is gone or cut off"
    return [("driver", text)]


def _stale(status: Status) -> bool:
    """Whether a driver that did not say it ends has written nothing for long."""
    heartbeat, age = status.heartbeat, status.age
    return (
        heartbeat is not None
        and age is not None
        and not heartbeat.is_final
        and age > _STALE_SECONDS
    )


def _message(job: Job) -> str:
    """What Ray says; of a failed job its last line, as the rest is in its log."""
    lines = [line.strip() for line in job.message.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def _print_front(status: Status) -> None:
    from sweeps.analysis.tables import front_table

    typer.echo(f"front so far: {format_count(len(status.front), 'point')}")
    objectives: Any = status.objectives
    print_table(front_table(status.front_frame(), objectives, status.swept))
