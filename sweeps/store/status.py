"""Status of a running sweep, as its driver last wrote it.

The driver fills a `SweepStatus` twice a second and shows it on the terminal or in the notebook. The
heartbeat of its lease stores the same status in `progress.json`, for all other readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from sweeps.store.filesystem import Directory

ABANDONED_SECONDS: Final = 60.0
"""Age of the last heartbeat beyond which another driver may take a lease over."""

STATUS_FILE: Final = "progress.json"

_MAX_BYTES: Final = 64 * 1024

Phase = Literal["starting", "training", "publishing", "ended", "stopped"]
_Count = Annotated[int, Field(ge=0)]
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """Resources of the cluster that a sweep trains on.

    Attributes:
        packs: Packs in training.
        nodes: Nodes that are alive and have CPUs or GPUs for packs.
        busy_nodes: Nodes that train.
        cpus: CPUs of all nodes, as Ray counts them; likewise `gpus`.
        busy_cpus: CPUs given to packs in training; likewise `busy_gpus`.
    """

    packs: int
    nodes: int
    busy_nodes: int
    cpus: float
    busy_cpus: float
    gpus: float
    busy_gpus: float


@dataclass(frozen=True, slots=True)
class Outage:
    """Time in which no points reach MLflow; training continues.

    Attributes:
        since: Unix time of the first attempt that failed.
        reason: Why the last attempt failed.
        waiting: Complete points that wait for MLflow.
    """

    since: float
    reason: str
    waiting: _Count

    def __str__(self) -> str:
        """One line for people, with the time of this machine."""
        start = datetime.fromtimestamp(self.since).astimezone()
        return (
            f"no points have reached MLflow since {start:%Y-%m-%d %H:%M:%S %Z} "
            f"({self.waiting} wait, training continues): {self.reason}"
        )


@dataclass(frozen=True, slots=True)
class SweepCounts:
    """Counts of a sweep so far.

    Attributes:
        complete: Points with all replicates.
        failed: Complete points with a failed replicate, and points whose pack failed.
        stopped: Complete points without a failed replicate, but with a stopped one.
        front: Finished points on the front.
        best: Best value of each objective on the front, by metric.
        trainings: Replicates in the ledger, also of incomplete points.
    """

    complete: int = 0
    failed: int = 0
    stopped: int = 0
    front: int = 0
    best: Mapping[str, float] = field(default_factory=dict)
    trainings: int = 0


class SweepStatus(BaseModel):
    """Status of a sweep and its driver.

    Attributes:
        phase: Current phase; the last status of a driver has `ended` or `stopped`.
        updated_at: Time by the driver's clock.
        points: Number of points in all.
        counts: Counts of the sweep so far.
        activity: Preparation in progress, in words; None while packs are trained.
        waiting: Reason why no pack starts, in words; None without one.
        share: Share of this run's work that is done.
        rate: Trainings per minute in this run, parts of trainings included; None before any.
        eta: Estimated seconds left; None while unknown.
        use: Resources in use; None before they are known.
        live: Values to watch, such as losses: means over the packs in training.
        trainings: Replicates finished, and replicates in all; None if unknown.
        trained_before: Trainings of the sweep that this run found finished or copied.
        warning_count: Number of warnings, mostly of packs that were lost and are tried again.
        last_warning: The last warning.
        outage: Present outage of MLflow; None while it takes points.
    """

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    format: Literal[1] = 1
    phase: Phase = "starting"
    updated_at: AwareDatetime
    points: _Count = 0
    counts: SweepCounts = SweepCounts()
    activity: str | None = None
    waiting: str | None = None
    share: Annotated[float, Field(ge=0, le=1)] = 0.0
    rate: _Amount | None = None
    eta: _Amount | None = None
    use: ResourceUse | None = None
    live: dict[str, float] = {}
    trainings: tuple[_Count, _Count] | None = None
    trained_before: _Count = 0
    warning_count: _Count = 0
    last_warning: str | None = None
    outage: Outage | None = None

    @property
    def is_final(self) -> bool:
        """Whether the driver announced its end."""
        return self.phase in ("ended", "stopped")

    @property
    def age(self) -> float:
        """Seconds since it was written, at least 0, by this machine's clock."""
        return max(0.0, (datetime.now(UTC) - self.updated_at).total_seconds())

    @property
    def is_abandoned(self) -> bool:
        """Whether the driver stopped writing without announcing its end."""
        return not self.is_final and self.age > ABANDONED_SECONDS


def read_status(sweep: Directory) -> SweepStatus | None:
    """Last status that a sweep's driver wrote; None if there is none that can be read."""
    try:
        return SweepStatus.model_validate_json(sweep.read(STATUS_FILE, _MAX_BYTES))
    except (OSError, ValidationError):
        return None
