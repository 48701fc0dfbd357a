"""Points read back from MLflow, and their comparison with those of a ledger.

Runs are untrusted input. Tags are parsed as JSON of plain scalars and bounded size, and nothing
is unpickled.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
from mlflow.entities import Run
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    Json,
    StrictBool,
    StrictStr,
    ValidationError,
)

from privnets.frames import TableRow, point_row, table_from_rows
from privnets.points import Scalar, TradeoffPoint, merge_replicates
from tracking import OBJECTIVE, runs
from tracking.client import artifacts, connect, translate_errors
from tracking.errors import TrackingError
from tracking.run_record import MAX_TAG, digest, training_curves, truncate
from tracking.sweep_run import find_parent
from tracking.uris import resolve_uri

_Integer = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]
_Float = Annotated[float, Field(strict=True, ge=-math.inf)]  # may be infinite, but not NaN
_Value = StrictBool | _Integer | _Float | StrictStr | None
_MAX_TIME = 253402300799.0  # the end of the year 9999


def _check_text(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"must have printable characters only; got {text[:100]!r}")
    if len(text) > MAX_TAG:
        raise ValueError(f"must have at most {MAX_TAG:,} characters; got {len(text):,}")
    return text


_Text = Annotated[str, AfterValidator(_check_text)]


class _PointTags(BaseModel):
    """Tags of a child run that describe its point."""

    point_id: Annotated[_Text, Field(max_length=250)]
    experiment: Annotated[_Text, Field(max_length=250)]
    status: Literal["finished", "stopped", "failed"]
    finished_at: Annotated[float, Field(ge=0, le=_MAX_TIME)]
    replicates: Annotated[int, Field(ge=0, lt=10**9)]
    config: Annotated[Json[dict[str, _Value]], BeforeValidator(_check_text)]


def load_points(
    sweep: str, tracking_uri: str | None = None, study: str | None = None
) -> pd.DataFrame:
    """Returns the points of a sweep in MLflow as a table like that of `points_frame`.

    It has the metrics that the runs show. Numbers are exact. MLflow stores infinities as the
    largest finite numbers, which are read as infinite. Runs that are still being written are left
    out; of several runs for one point only the preferred one is read.

    Args:
        sweep: Name of the sweep.
        tracking_uri: See `resolve_uri`.
        study: Name of the experiment, where several hold a sweep of that name.

    Raises:
        TrackingError: If MLflow has no such sweep, does not respond, or holds a run that was not
            written by `record`.
    """
    complete = [
        group[0]
        for group in runs.group_by_point(_fetch(sweep, tracking_uri, study)).values()
        if group[0].info.status in runs.COMPLETE
    ]
    return table_from_rows([_row(run) for run in complete], sweep)


def read_sweep_file(
    sweep: str, name: str, tracking_uri: str | None = None, study: str | None = None
) -> bytes:
    """Returns a file of a sweep's parent run. It is untrusted input.

    The sweep is given as to `load_points`.

    Raises:
        TrackingError: If MLflow has no such sweep or file, or does not respond.
    """
    uri = resolve_uri(tracking_uri)
    client = connect(uri)
    with (
        translate_errors(uri),
        tempfile.TemporaryDirectory(prefix="tracking-file-") as folder,
    ):
        parent = find_parent(client, sweep, study)
        if parent is None:
            raise TrackingError(f"{uri} does not contain a sweep named {sweep!r}.")
        files = artifacts(client, parent.run_id)
        if name not in {file.path for file in files.list_artifacts()}:
            raise TrackingError(
                f"the sweep {sweep!r} has no file {name} in {uri}; a sweep gets its files when it "
                f"ends",
                f"`sweeps sync {sweep}` publishes them, on a machine that sees its storage",
            )
        return Path(files.download_artifacts(name, folder)).read_bytes()


def compare(
    points: Iterable[TradeoffPoint],
    sweep: str,
    tracking_uri: str | None = None,
    study: str | None = None,
) -> list[str]:
    """Compares the points of a sweep in MLflow with given ones; NaN equals NaN.

    Training curves are compared by their last values, and metrics that the runs do not show by the
    digest of the point from which the run was written. The sweep is given as to `load_points`.

    Returns:
        One readable line per difference, sorted by point; empty if there is none.

    Raises:
        TrackingError: See `load_points`.
    """
    expected = {point.point_id: point for point in merge_replicates(points)}
    recorded = runs.group_by_point(_fetch(sweep, tracking_uri, study))
    shown = {key for group in recorded.values() for run in group for key in _metrics(run)}
    return [
        f"{point_id}: {line}"
        for point_id in sorted(expected.keys() | recorded.keys())
        for line in _point_differences(expected.get(point_id), recorded.get(point_id, []), shown)
    ]


def _point_differences(point: TradeoffPoint | None, group: list[Run], shown: set[str]) -> list[str]:
    duplicates = [f"duplicated, {len(group)} runs in MLflow"] if len(group) > 1 else []
    if point is None:
        return [*duplicates, "extra, only in MLflow"]
    if not group:
        return ["missing from MLflow"]
    status = group[0].info.status
    if status not in runs.COMPLETE:
        return [*duplicates, f"incomplete, {status} in MLflow"]
    try:
        run = group[0]
        ours, theirs = point_row(point), _row(run)
        differences = [
            f"{name} is {mine!r}, in MLflow {other!r}"
            for name, mine, other in [
                ("experiment", ours.experiment, theirs.experiment),
                ("status", ours.status, theirs.status),
                ("replicates", ours.own["replicates"], theirs.own["replicates"]),
                ("finished_at", ours.finished_at, theirs.finished_at),
                ("failure", truncate(point.failure or "") or None, run.data.tags.get("failure")),
                ("stopped", truncate(point.stopped or "") or None, run.data.tags.get("stopped")),
            ]
            if mine != other
        ]
        differences += _unequal("config/", ours.config, theirs.config)
        own = {key: value for key, value in ours.metrics.items() if key in shown}
        differences += _unequal("", own, theirs.metrics)
        ends = {name: c.values[-1] for name, c in training_curves(point).items() if c.values}
        values = run.data.metrics.items()
        recorded = {
            key.removeprefix(runs.CURVES): _restore_infinity(value)
            for key, value in values
            if key.startswith(runs.CURVES)
        }
        differences += _unequal(runs.CURVES, ends, recorded)
        defined = [k for k, v in values if not (math.isnan(v) or k.startswith(runs.CURVES))]
        if not differences and run.data.tags.get(runs.CONTENT) != digest(point, defined):
            differences.append("metrics that its run does not show differ")
        return duplicates + differences
    except TrackingError as error:
        return [*duplicates, str(error)]


def _fetch(sweep: str, tracking_uri: str | None, study: str | None) -> list[Run]:
    uri = resolve_uri(tracking_uri)
    client = connect(uri)
    with translate_errors(uri):
        parent = find_parent(client, sweep, study)
        if parent is None:
            raise TrackingError(f"{uri} does not contain a sweep named {sweep!r}.")
        return list(runs.point_runs(client, parent.experiment_id, sweep))


def _unequal(prefix: str, ours: Mapping[str, Scalar], theirs: Mapping[str, Scalar]) -> list[str]:
    differences = []
    for key in sorted(ours.keys() | theirs.keys()):
        # A missing key counts as NaN: runs of failed points are filled with it.
        mine, other = ours.get(key, math.nan), theirs.get(key, math.nan)
        if mine != other and (mine == mine or other == other):
            differences.append(f"{prefix}{key} is {mine!r}, in MLflow {other!r}")
    return differences


def _row(run: Run) -> TableRow:
    try:
        tags = _PointTags.model_validate(run.data.tags)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        message = fault["msg"].removeprefix("Value error, ")
        reason = truncate(f"{fault['loc'][0]}: {message}", 500)
        raise TrackingError(
            f"the run {run.info.run_id} was not written by `record`: {reason}"
        ) from error
    return TableRow(
        point_id=tags.point_id,
        experiment=tags.experiment,
        status=tags.status,
        finished_at=tags.finished_at,
        own={"replicates": tags.replicates},
        config=tags.config,
        metrics=_metrics(run),
    )


def _metrics(run: Run) -> dict[str, float]:
    values = run.data.metrics.items()
    shown = ((k.removeprefix(OBJECTIVE), v) for k, v in values if not k.startswith(runs.CURVES))
    return {key: _restore_infinity(value) for key, value in shown}


def _restore_infinity(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) >= sys.float_info.max else value
