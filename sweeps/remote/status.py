"""Overview of a sweep: from a storage that this machine sees, or of a job on a cluster."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from cluster.errors import JobError
from cluster.jobs import Job, JobClient
from privnets.credentials import redact
from sweeps.analysis.export import json_value
from sweeps.analysis.results import open_result
from sweeps.analysis.tables import METRIC_BOUNDS, select_records
from sweeps.errors import InputError
from sweeps.remote.commands import parse_reply, run_remotely
from sweeps.store.ledger import Ledger
from sweeps.store.status import ABANDONED_SECONDS, SweepStatus, read_status

_MAX_REASONS = 3
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


def read_overview(sweep: str, storage: str | None = None) -> SweepOverview:
    """Reads the overview of a sweep, running or ended, from its storage."""
    result = open_result(sweep, storage)
    heartbeat = read_status(Ledger(result.storage, result.sweep).directory)
    now = datetime.now(UTC)
    bounds = [METRIC_BOUNDS[metric] for metric in result.objectives if metric in METRIC_BOUNDS]
    metrics = [*result.objectives, *bounds]
    front = select_records(result.front(all=True), result.swept_fields, metrics)
    failures = result.replicates.dropna(subset=["failure"])
    counts = failures.groupby("failure")["point_id"].nunique().nlargest(_MAX_REASONS)
    return SweepOverview(
        sweep=result.sweep,
        study=result.study.name,
        storage=redact(result.storage),
        points=result.size,
        finished=result.counts["finished"],
        failed=result.counts["failed"],
        stopped=result.counts["stopped"],
        lost=dict(result.failures),
        reasons={str(reason): int(number) for reason, number in counts.items()},
        objectives=dict(result.objectives),
        swept=result.swept_fields,
        front=[{str(key): json_value(cell) for key, cell in row.items()} for row in front],
        heartbeat=heartbeat,
        age=None if heartbeat is None else (now - heartbeat.updated_at).total_seconds(),
        tracking_uri=redact(result.manifest.tracking_uri),
    )


def remote_overview(
    client: JobClient,
    sweep: str,
    job: Job | None,
    storage: str | None,
    notify: Callable[[str], None],
) -> SweepOverview | None:
    """Returns the overview of a sweep on a cluster; None if there is nothing in its storage yet.

    Args:
        client: Client of the job server.
        sweep: Name of the sweep.
        job: Its job, if there is one.
        storage: Storage to read; that of the job if None.
        notify: Told why the storage does not have the sweep.

    Raises:
        InputError: If no storage is known, or the reply cannot be parsed.
        JobError: If there is no job, and the sweep cannot be read.
    """
    storage = storage or (None if job is None else job.metadata.get("storage"))
    if storage is None:
        raise InputError(f"the job of sweep {sweep!r} names no storage; give --storage")
    try:
        reply = run_remotely(client, ["status", sweep, "--storage", storage, "--json"])
    except JobError as error:
        if job is None:
            raise
        notify(f"The storage does not have this sweep: {error}")
        return None
    return parse_reply(SweepOverview, reply)
