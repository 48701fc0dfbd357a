"""`sweeps status`: the progress of a sweep on this machine, in a storage, or on a cluster.

A submitted sweep's driver keeps its status in a file beside its job's log, where the cluster's
dashboard serves it. So `status` needs one quick request, not a job of its own.
"""

from __future__ import annotations

import json as json_format
import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import pandas as pd
import typer
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cluster.errors import JobError
from cluster.jobs import Job, JobClient, last_line
from privnets.credentials import redact
from sweeps.analysis.export import json_value, write_file_atomically
from sweeps.analysis.results import Result, open_result
from sweeps.analysis.tables import METRIC_BOUNDS, Table, front_table, select_records
from sweeps.analysis.text import format_count
from sweeps.cli.options import JobServer, Json, Storage, Sweep, default_job_server
from sweeps.cli.remote import (
    check_remote_path,
    connect_job_server,
    parse_reply,
    run_remotely,
)
from sweeps.cli.submission import find_job, job_id
from sweeps.cli.terminal import SUBMIT_COMMAND, print_table, say
from sweeps.engine.display import describe_points, describe_training
from sweeps.errors import InputError
from sweeps.planning.costs import format_duration
from sweeps.store.filesystem import DEFAULT_STORAGE
from sweeps.store.ledger import Ledger, list_sweeps
from sweeps.store.status import ABANDONED_SECONDS, SweepStatus, read_status

_MAX_REASONS = 3
_REFRESH_SECONDS, _REFRESH_SHARE = 5.0, 0.05
_LOG, _FILE = "job-driver-{}.log", "job-driver-{}.json"
_JOB_WORDS: Final = {
    "PENDING": "waiting for the cluster to start it",
    "STOPPED": "stopped",
    "SUCCEEDED": "done",
    "FAILED": "failed",
}
_Count = Annotated[int, Field(ge=0)]
_Cell = str | int | float | bool | None


class SweepOverview(BaseModel):
    """What a sweep has so far, and the status of its driver.

    Attributes:
        format: Version of the JSON form.
        points: Number of points in all; `finished`, `failed` and `stopped` are parts of it.
        lost: Reason for each pack that failed.
        reasons: Reason for failed points, with the number of points.
        swept: Configuration fields that tell its points apart.
        front: Rows of the front so far; NaN as null, infinities as text.
        heartbeat: Status that the driver wrote last.
        age: Age of that status in seconds.
        tracking_uri: URI of the MLflow store, without credentials.
    """

    model_config = ConfigDict(frozen=True)

    format: Literal[1] = 1
    sweep: str
    study: str
    storage: str
    points: _Count
    finished: _Count
    failed: _Count
    stopped: _Count
    lost: dict[str, str]
    reasons: dict[str, int] = {}
    objectives: dict[str, Literal["min", "max"]]
    swept: list[str]
    front: list[dict[str, _Cell]]
    heartbeat: SweepStatus | None = None
    age: float | None = None
    tracking_uri: str = ""

    @property
    def pending(self) -> int:
        """Points that lack replicates."""
        return max(0, self.points - self.finished - self.failed - self.stopped)

    @property
    def is_stale(self) -> bool:
        """Whether the driver stopped writing without announcing its end."""
        is_running = self.heartbeat is not None and not self.heartbeat.is_final
        return is_running and self.age is not None and self.age > ABANDONED_SECONDS

    def front_frame(self) -> pd.DataFrame:
        """Returns the columns of `Result.front` that a table shows."""
        numbers: dict[_Cell, float] = {None: math.nan, "inf": math.inf, "-inf": -math.inf}
        rows = [{name: numbers.get(c, c) for name, c in row.items()} for row in self.front]
        return pd.DataFrame(rows)


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
    _print(_remote_status(client, sweep, job, storage), job, page, json)


def read_overview(sweep: str, storage: str | None = None) -> SweepOverview:
    """Reads the overview of a sweep, running or ended, from its storage."""
    result = open_result(sweep, storage)
    heartbeat = read_status(Ledger(result.storage, sweep).directory)
    now = datetime.now(UTC)
    bounds = [METRIC_BOUNDS[metric] for metric in result.objectives if metric in METRIC_BOUNDS]
    metrics = [*result.objectives, *bounds]
    front = select_records(result.front(), result.swept_fields, metrics)
    return SweepOverview(
        sweep=result.sweep,
        study=result.study.name,
        storage=redact(result.storage),
        points=result.size,
        finished=result.counts["finished"],
        failed=result.counts["failed"],
        stopped=result.counts["stopped"],
        lost=dict(result.failures),
        reasons=_failure_reasons(result),
        objectives=dict(result.objectives),
        swept=result.swept_fields,
        front=[{str(key): json_value(cell) for key, cell in row.items()} for row in front],
        heartbeat=heartbeat,
        age=None if heartbeat is None else (now - heartbeat.updated_at).total_seconds(),
        tracking_uri=redact(result.manifest.tracking_uri),
    )


def sweep_table(storage: str | None) -> Table:
    """Table of the sweeps of a storage, those that ran last first."""
    storage = storage or DEFAULT_STORAGE
    rows = []
    for name in list_sweeps(storage):
        try:
            rows.append(_sweep_row(Ledger(storage, name)))
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


def _sweep_row(ledger: Ledger) -> tuple[float, tuple[str, ...]]:
    """Seconds since a sweep was active, and its row."""
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
    return seconds, (result.sweep, result.study.name, state, points, failed, active)


def _failure_reasons(result: Result) -> dict[str, int]:
    """Most frequent reasons of failed points, each with its number of points."""
    failures = result.replicates.dropna(subset=["failure"])
    counts = failures.groupby("failure")["point_id"].nunique()
    return {str(r): int(n) for r, n in counts.nlargest(_MAX_REASONS).items()}


@contextmanager
def status_file(sweep: str, storage: str) -> Iterator[None]:
    """In a cluster's job, keeps the status file of a sweep up to date while the block runs."""
    log = Path("/proc/self/fd/1").resolve()
    if SUBMIT_COMMAND not in os.environ or not log.match(_LOG.format("*")):
        yield
        return
    path = log.with_suffix(".json")
    ended = threading.Event()

    def refresh() -> None:
        seconds = 0.0
        while not ended.wait(max(_REFRESH_SECONDS, seconds / _REFRESH_SHARE)):
            seconds = _write_status(path, sweep, storage)

    thread = threading.Thread(target=refresh, name="status", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(ABANDONED_SECONDS)
        _write_status(path, sweep, storage)


def _write_status(path: Path, sweep: str, storage: str) -> float:
    """Writes the status file; returns the seconds that it took."""
    began = time.monotonic()
    with suppress(InputError, OSError):  # The sweep has not started yet, or storage is away.
        write_file_atomically(path, read_overview(sweep, storage).model_dump_json().encode())
    return time.monotonic() - began


def _remote_status(
    client: JobClient, sweep: str, job: Job | None, storage: str | None
) -> SweepOverview | None:
    """Returns the status of a sweep on a cluster; None if it has nothing in its storage yet."""
    stored = None if job is None else job.metadata.get("storage")
    if job is not None and storage in (None, stored):
        status, text = None, client.read_log_file(job, _FILE.format(job.job_id))
        with suppress(ValidationError):  # The driver has written none yet.
            status = SweepOverview.model_validate_json(text or "")
        is_last = status is not None and status.heartbeat is not None and status.heartbeat.is_final
        if job.is_active or is_last:
            return status
    storage = storage or stored
    if storage is None:
        raise InputError(f"the job of sweep {sweep!r} names no storage; give --storage")
    try:
        reply = run_remotely(client, ["status", sweep, "--storage", storage, "--json"])
    except JobError as error:
        if job is None:
            raise
        say(f"The storage does not have this sweep: {error}", err=True)
        return None
    return parse_reply(SweepOverview, reply)


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
