"""`sweeps status`: the progress of a sweep on this machine, in a storage, or on a cluster."""

from __future__ import annotations

import json as json_format
import math
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import typer

from cluster.jobs import Job, last_line
from sweeps.analysis.results import Result
from sweeps.analysis.tables import front_table
from sweeps.analysis.text import Table, format_count
from sweeps.cli.options import JobServer, Json, Storage, Sweep
from sweeps.cli.terminal import print_table, say
from sweeps.engine.display import describe_points, describe_training
from sweeps.errors import InputError
from sweeps.planning.costs import format_duration
from sweeps.remote.commands import check_remote_path, connect_job_server
from sweeps.remote.environment import default_job_server
from sweeps.remote.status import SweepOverview, read_overview, remote_overview
from sweeps.remote.submission import find_job, job_id
from sweeps.store.filesystem import DEFAULT_STORAGE
from sweeps.store.ledger import Ledger, list_sweeps
from sweeps.store.status import read_status

_JOB_WORDS: Final = {
    "PENDING": "waiting for the cluster to start it",
    "STOPPED": "stopped",
    "SUCCEEDED": "done",
    "FAILED": "failed",
}


def status(
    sweep: Sweep, address: JobServer = None, storage: Storage = None, json: Json = False
) -> None:
    """Show the progress of a sweep: points, rate, time left, machines in use, front so far.

    With the address of a cluster, shows a sweep that was submitted there. Otherwise, or with
    --storage and no address, reads a storage that this machine sees.
    """
    if address is None and (storage is not None or default_job_server() is None):
        _print(read_overview(sweep, storage), None, "", json)
        return
    check_remote_path("--storage", storage)
    client = connect_job_server(address)
    job = find_job(client, sweep) if storage is None else client.find(job_id(sweep))
    page = "" if job is None else client.page(job.job_id)
    overview = remote_overview(client, sweep, job, storage, partial(say, err=True))
    _print(overview, job, page, json)


def sweep_table(storage: str | None) -> Table:
    """Table of the sweeps of a storage, those that ran last first."""
    storage = storage or DEFAULT_STORAGE
    rows = []
    for name in list_sweeps(storage):
        try:
            ledger = Ledger(storage, name)
            result = Result.read(ledger)
            beat = read_status(ledger.directory)
            if beat is None:
                age = datetime.now(UTC) - result.manifest.created_at
                state, seconds = "not started", max(0.0, age.total_seconds())
            elif beat.phase == "ended":
                state, seconds = "incomplete" if result.pending else "done", beat.age
            else:
                state, seconds = (
                    "lost: no heartbeat for 60 s" if beat.is_abandoned else beat.phase,
                    beat.age,
                )
            points = f"{result.counts['finished']:,} of {result.size:,}"
            failed, active = f"{result.counts['failed']:,}", f"{format_duration(seconds)} ago"
            rows.append((seconds, (result.sweep, result.study.name, state, points, failed, active)))
        except InputError:  # `sweeps status` gives the reason
            rows.append((math.inf, (name, "", "damaged", "", "", "")))
    rows.sort(key=lambda row: row[0])
    if not rows:
        raise InputError(
            f"{storage} has no sweep; give another --storage, or start one: sweeps run"
        )
    return Table(
        ("sweep", "study", "state", "points", "failed", "last active"),
        tuple(row[1] for row in rows),
    )


def _print(status: SweepOverview | None, job: Job | None, page: str, as_json: bool) -> None:
    """Prints a status, and its job with the job's page in Ray's dashboard."""
    if as_json:
        document = {} if status is None else status.model_dump(mode="json")
        own = {} if job is None else {"job": {**asdict(job), "page": page}}
        typer.echo(json_format.dumps(document | own))
        return
    for name, text in [*_lines(status, job), *([("Ray", page)] if page else [])]:
        say(f"{name:9}{text}")
    if status is not None and status.front:
        typer.echo(f"front so far: {format_count(len(status.front), 'point')}")
        objectives: Any = status.objectives
        print_table(front_table(status.front_frame(), objectives, status.swept))


def _lines(status: SweepOverview | None, job: Job | None) -> Iterator[tuple[str, str]]:
    if status is not None:
        phase = status.heartbeat.phase if status.heartbeat is not None else "unknown"
        state = phase if job is None else _JOB_WORDS.get(job.state, phase)
        yield "sweep", f"{status.sweep} of study {status.study}: {state}"
        stopped = f"{status.stopped} stopped early, " if status.stopped else ""
        counts = f"{status.failed} failed, {stopped}{status.pending} pending"
        yield "points", f"{status.finished} of {status.points} finished, {counts}"
        if job is None or job.is_active:
            yield from _describe_work(status)
        if status.age is not None and (job is None or job.is_active):
            age = format_duration(max(0.0, status.age))
            gone = ", so it has died or lost its connection" if status.is_stale else ""
            yield "driver", f"{phase}; last heartbeat {age} ago{gone}"
        if status.heartbeat is not None and status.heartbeat.outage is not None:
            yield "outage", str(status.heartbeat.outage)
        yield from (("failed", f"pack {pack}: {why}") for pack, why in status.lost.items())
        for why, points in status.reasons.items():
            yield "failed", f"{format_count(points, 'point')}: {why}"
        yield "storage", status.storage
        yield "MLflow", status.tracking_uri
    elif job is not None and job.is_active:
        yield "points", "none yet: the driver is starting"
    if job is not None:
        yield "job", f"{job.job_id}: {job.state}; {last_line(job.message) or 'no message'}"


def _describe_work(status: SweepOverview) -> Iterator[tuple[str, str]]:
    beat = status.heartbeat
    if beat is None or beat.phase not in ("starting", "training") or status.is_stale:
        return
    yield "work", f"{describe_training(beat)}, {describe_points(beat)}"
    if (use := beat.use) is not None:
        packs, nodes = format_count(use.packs, "pack"), format_count(use.nodes, "node")
        cpus = f"{use.busy_cpus:g} of {format_count(use.cpus, 'CPU')}"
        gpus = f"{use.busy_gpus:g} of {format_count(use.gpus, 'GPU')}"
        yield "in use", f"{packs} in training, on {use.busy_nodes} of {nodes}, {cpus}, {gpus}"
    if beat.last_warning is not None:
        yield "warnings", f"{beat.warning_count}; the last: {beat.last_warning}"
