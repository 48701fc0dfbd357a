"""Read a sweep's points back from MLflow, and say where they differ from the ones at hand.

Runs are untrusted: anybody who reaches the server can write them. Tags are parsed as JSON of plain
scalars and of bounded size, and nothing is unpickled.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, StrictBool, StrictStr, TypeAdapter

from privnets.points import Scalar, TradeoffPoint, merge_replicates
from tracking import runs
from tracking.errors import TrackingError
from tracking.frame import Row, point_row, table
from tracking.redaction import redact
from tracking.run_record import MAX_TAG, clipped
from tracking.store import connect, resolve_uri, translate_errors

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.entities import Run

_Integer = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]
_Float = Annotated[float, Field(strict=True, ge=-math.inf)]  # infinite perhaps, and never NaN
_CONFIG: TypeAdapter[dict[str, Scalar]] = TypeAdapter(
    dict[str, StrictBool | _Integer | _Float | StrictStr | None]
)
_LATEST = 253402300799.0  # the end of the year 9999
_LONGEST_NAME = 250


def load_points(
    sweep: str, tracking_uri: str | None = None, study: str | None = None
) -> pd.DataFrame:
    """The points of a sweep as MLflow holds them, as `points_frame` would give them.

    Numbers come back to the last bit, but for infinities: MLflow stores them as the largest
    finite numbers, which are read as infinite. Runs that are still being written are left out;
    of several runs for one point only the one that is to stay is read.

    Args:
        sweep: The sweep's name.
        tracking_uri: As `resolve_uri` takes it.
        study: The experiment's name, where several hold a sweep of that name.

    Raises:
        TrackingError: If MLflow has no such sweep, does not answer, or holds a run that was not
            written by `record`.
    """
    complete = [
        group[0]
        for group in runs.grouped(_fetch(sweep, tracking_uri, study)).values()
        if group[0].info.status in runs.COMPLETE
    ]
    return table([_row(run) for run in complete], sweep)


def compare(
    points: Iterable[TradeoffPoint],
    sweep: str,
    tracking_uri: str | None = None,
    study: str | None = None,
) -> list[str]:
    """How MLflow's points of a sweep differ from the given ones; NaN equals NaN.

    Of a training curve the last value is compared.

    Args:
        points: What MLflow should hold.
        sweep: The sweep's name.
        tracking_uri: As `resolve_uri` takes it.
        study: The experiment's name, where several hold a sweep of that name.

    Returns:
        A readable line per difference, in order of point; empty when there is none.

    Raises:
        TrackingError: As `load_points`.
    """
    wanted = {point.point_id: point for point in merge_replicates(points)}
    held = runs.grouped(_fetch(sweep, tracking_uri, study))
    return [
        f"{point_id}: {line}"
        for point_id in sorted(wanted.keys() | held.keys())
        for line in _point_differences(wanted.get(point_id), held.get(point_id, []))
    ]


def _point_differences(point: TradeoffPoint | None, group: list[Run]) -> list[str]:
    doubled = [f"doubled, {len(group)} runs in MLflow"] if len(group) > 1 else []
    if point is None:
        return [*doubled, "extra, only in MLflow"]
    if not group:
        return ["missing from MLflow"]
    status = group[0].info.status
    if status not in runs.COMPLETE:
        return [*doubled, f"written only in part, {status} in MLflow"]
    try:
        return doubled + _differences(point, group[0])
    except TrackingError as error:
        return [*doubled, str(error)]


def _fetch(sweep: str, tracking_uri: str | None, study: str | None) -> list[Run]:
    uri = resolve_uri(tracking_uri)
    client = connect(uri)
    with translate_errors(uri):
        home = runs.find_home(client, sweep, study)
        if home is None:
            raise TrackingError(f"{redact(uri)} holds no sweep named {sweep!r}.")
        return list(runs.children(client, home, sweep))


def _differences(point: TradeoffPoint, run: Run) -> list[str]:
    ours, theirs = point_row(point), _row(run)
    found = [
        f"{name} is {mine!r}, in MLflow {other!r}"
        for name, mine, other in [
            ("experiment", ours.experiment, theirs.experiment),
            ("status", ours.status, theirs.status),
            ("replicates", ours.own["replicates"], theirs.own["replicates"]),
            ("finished_at", ours.finished_at, theirs.finished_at),
            ("failure", _said(point.failure), run.data.tags.get("failure")),
            ("stopped", _said(point.stopped), run.data.tags.get("stopped")),
        ]
        if mine != other
    ]
    found += _unequal("config/", ours.config, theirs.config)
    found += _unequal("", ours.metrics, theirs.metrics)
    ends = {name: curve.values[-1] for name, curve in point.curves.items() if curve.values}
    return found + _unequal(runs.CURVES, ends, _metrics(run, curves=True))


def _unequal(prefix: str, ours: Mapping[str, Scalar], theirs: Mapping[str, Scalar]) -> list[str]:
    found = []
    for key in sorted(ours.keys() | theirs.keys()):
        mine, other = ours.get(key, math.nan), theirs.get(key, math.nan)
        if not _same(mine, other):
            found.append(f"{prefix}{key} is {mine!r}, in MLflow {other!r}")
    return found


def _same(mine: Scalar, other: Scalar) -> bool:
    # A key that one side lacks counts as NaN: points that failed are padded with it.
    if isinstance(mine, float) and isinstance(other, float) and mine != mine:
        return other != other
    return mine == other


def _said(reason: str | None) -> str | None:
    return None if reason is None else clipped(reason)


def _row(run: Run) -> Row:
    tags = run.data.tags
    try:
        return Row(
            point_id=_name(tags[runs.POINT_ID]),
            experiment=_name(tags["experiment"]),
            status=_one_of(tags["status"], ("finished", "stopped", "failed")),
            finished_at=_seconds(tags["finished_at"]),
            own={"replicates": _count(tags["replicates"])},
            config=_config(tags["config"]),
            metrics=_metrics(run, curves=False),
        )
    except (KeyError, ValueError) as error:
        raise TrackingError(
            f"the run {run.info.run_id} was not written by `record`: {clipped(repr(error), 500)}"
        ) from error


def _metrics(run: Run, *, curves: bool) -> dict[str, float]:
    return {
        key.removeprefix(runs.CURVES): _finite_or_not(value)
        for key, value in run.data.metrics.items()
        if key.startswith(runs.CURVES) == curves
    }


def _finite_or_not(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) >= sys.float_info.max else value


def _config(text: str) -> dict[str, Scalar]:
    if len(text) > MAX_TAG:
        raise ValueError(f"a configuration of {len(text)} characters")
    return _CONFIG.validate_json(text)


def _name(text: str) -> str:
    if len(text) > _LONGEST_NAME or not text.isprintable():
        raise ValueError(f"{text[:_LONGEST_NAME]!r} is no name")
    return text


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text):
        raise ValueError(f"replicates is {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value <= _LATEST:
        raise ValueError(f"finished_at is {text!r}")
    return value


def _one_of(text: str, allowed: tuple[str, ...]) -> str:
    if text not in allowed:
        raise ValueError(f"must be one of {allowed}; got {text!r}")
    return text
