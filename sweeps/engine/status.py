"""How a sweep stands, in one value that also travels from a cluster as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from sweeps.store.lease import Heartbeat, read_heartbeat

if TYPE_CHECKING:
    import pandas as pd

    from sweeps.analysis.results import Result

_Count = Annotated[int, Field(ge=0)]
_Cell = str | int | float | bool | None

_JOB_WORDS: Final[Mapping[str | None, str]] = {
    "PENDING": "waiting for the cluster to start it",
    "STOPPED": "stopped",
    "SUCCEEDED": "done",
    "FAILED": "failed",
}


class Status(BaseModel):
    """How a sweep stands.

    Attributes:
        format: Of its JSON form.
        sweep: The sweep's name.
        study: Its study's.
        storage: Where it is kept, without credentials.
        points: How many it has in all.
        finished: Those that are complete and sound.
        failed: Those with a failed replicate.
        stopped: Those stopped early.
        lost: Packs that came to nothing, with the reason.
        objectives: Metric to `min` or `max`.
        swept: Configuration fields that tell its points apart.
        front: The front so far, a row per point.
        heartbeat: What its driver wrote last; None if it did not.
        age: Seconds since then, by the clock of who looked.
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
    objectives: dict[str, Literal["min", "max"]]
    swept: list[str]
    front: list[dict[str, _Cell]]
    heartbeat: Heartbeat | None = None
    age: float | None = None

    @property
    def pending(self) -> int:
        """Points that lack replicates."""
        return max(0, self.points - self.finished - self.failed - self.stopped)

    def front_frame(self) -> pd.DataFrame:
        """The front as `Result.front` gives it, as far as it is shown."""
        import pandas as pd

        return pd.DataFrame([{k: _infinite(v) for k, v in row.items()} for row in self.front])


def look(sweep: str, storage: str | None = None) -> Status:
    """Look at a sweep, running or ended.

    Args:
        sweep: Its name.
        storage: Where sweeps are kept; `./sweep-results` if None.

    Raises:
        InputError: If there is no such sweep, or its `spec.yaml` is damaged.
    """
    from sweeps.analysis.results import open_result
    from sweeps.store.ledger import Ledger
    from tracking import redact

    result = open_result(sweep, storage)
    counts = result.counts
    now = datetime.now(UTC)
    heartbeat = read_heartbeat(Ledger(result.storage, sweep).directory)
    return Status(
        sweep=result.sweep,
        study=result.study.name,
        storage=redact(result.storage),
        points=result.manifest.plan.points,
        finished=counts["finished"],
        failed=counts["failed"],
        stopped=counts["stopped"],
        lost=dict(result.failures),
        objectives=dict(result.objectives),
        swept=result.swept_fields,
        front=_rows(result),
        heartbeat=heartbeat,
        age=None if heartbeat is None else (now - heartbeat.updated_at).total_seconds(),
    )


def _rows(result: Result) -> list[dict[str, Any]]:
    """The front's rows with what a table of it shows."""
    from sweeps.analysis.tables import INTERVAL_SUFFIXES, METRIC_BOUNDS

    front = result.front()
    metrics = [
        *result.objectives,
        *(METRIC_BOUNDS[m] for m in result.objectives if m in METRIC_BOUNDS),
    ]
    wanted = [
        "point_id",
        "status",
        "replicates",
        *(f"config/{name}" for name in result.swept_fields),
    ]
    wanted += [metric + end for metric in metrics for end in ("", *INTERVAL_SUFFIXES)]
    there = front[[name for name in dict.fromkeys(wanted) if name in front]]
    return [
        {str(name): _plain(value) for name, value in row.items()}
        for row in there.to_dict("records")
    ]


def _plain(value: Any) -> _Cell:
    """A cell as JSON has it: nothing for NaN, which it lacks, and `inf` as a word."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def _infinite(value: _Cell) -> _Cell:
    return float(value) if value in ("inf", "-inf") else value


def state_words(job_state: str | None, heartbeat: Heartbeat | None) -> str:
    """What a sweep is at, in a word or two: as its job says, or else as its driver wrote."""
    if job_state in _JOB_WORDS:
        return _JOB_WORDS[job_state]
    return heartbeat.phase if heartbeat is not None else "unknown"
