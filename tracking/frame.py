"""Points as tables: the one layout that ledger, MLflow, files and reports share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from privnets.points import Replicate, Scalar, TradeoffPoint

SUFFIXES = (".std", ".ci_low", ".ci_high")


_POINT_COLUMNS = {"replicates": "int64"}
_REPLICATE_COLUMNS = {"seed": "int64", "failure": "str", "stopped": "str"}


@dataclass(frozen=True)
class Row:
    """What a point, or one of its replicates, says in a table.

    Attributes:
        point_id: The point's.
        experiment: The point's.
        status: `finished`, `stopped` or `failed`.
        finished_at: Unix seconds.
        own: `replicates` (how many succeeded) of a point; `seed`, `failure` and `stopped` of a
            replicate.
        config: Field to value.
        metrics: Key to value.
    """

    point_id: str
    experiment: str
    status: str
    finished_at: float
    own: Mapping[str, Scalar]
    config: Mapping[str, Scalar]
    metrics: Mapping[str, float]


def points_frame(points: Iterable[TradeoffPoint], sweep: str) -> pd.DataFrame:
    """One row per point, in order of configuration whatever the order of `points`.

    Columns: `point_id`, `sweep`, `experiment`, `status`, `replicates` (how many succeeded),
    `finished_at` (UTC, microseconds), `config/<field>` sorted, then every metric (the mean over
    replicates), each followed by its `.std`, `.ci_low` and `.ci_high`. A metric that a point
    lacks is NaN.

    Args:
        points: Points, each `point_id` once.
        sweep: The sweep's name.
    """
    return table([point_row(point) for point in points], sweep)


def replicates_frame(points: Iterable[TradeoffPoint], sweep: str) -> pd.DataFrame:
    """One row per point and replicate, in order of configuration, then seed.

    Columns as in `points_frame`, with `seed`, `failure` and `stopped` (missing when it did not
    fail, or came to its end) in place of `replicates`, and with this replicate's own metrics,
    which have no spread.
    """
    rows = [_replicate_row(point, r) for point in points for r in point.replicates]
    return _table(rows, sweep, _REPLICATE_COLUMNS)


def point_row(point: TradeoffPoint) -> Row:
    """What a point's row says."""
    return Row(
        point_id=point.point_id,
        experiment=point.experiment,
        status=point.status,
        finished_at=point.finished_at,
        own={"replicates": len(point.succeeded)},
        config=point.config,
        metrics=point.metrics,
    )


def table(rows: Sequence[Row], sweep: str) -> pd.DataFrame:
    """`points_frame` of rows from anywhere."""
    return _table(rows, sweep, _POINT_COLUMNS)


def _replicate_row(point: TradeoffPoint, replicate: Replicate) -> Row:
    return Row(
        point_id=point.point_id,
        experiment=point.experiment,
        status=_status(replicate),
        finished_at=replicate.finished_at,
        own={"seed": replicate.seed, "failure": replicate.failure, "stopped": replicate.stopped},
        config=point.config,
        metrics=replicate.metrics,
    )


def _status(replicate: Replicate) -> str:
    if replicate.failure is not None:
        return "failed"
    return "finished" if replicate.stopped is None else "stopped"


def _table(rows: Sequence[Row], sweep: str, own: Mapping[str, str]) -> pd.DataFrame:
    fields = sorted({field for row in rows for field in row.config})
    ordered = sorted(rows, key=lambda row: _place(row, fields))
    columns = _leading(ordered, sweep, own)
    for field in fields:
        columns[f"config/{field}"] = pd.Series([row.config.get(field) for row in ordered])
    for key in _metric_order({key for row in ordered for key in row.metrics}):
        values = [row.metrics.get(key, math.nan) for row in ordered]
        columns[key] = pd.Series(values, dtype="float64")
    return pd.DataFrame(columns)


def _leading(rows: Sequence[Row], sweep: str, own: Mapping[str, str]) -> dict[str, pd.Series]:
    columns = {
        "point_id": pd.Series([row.point_id for row in rows], dtype="str"),
        "sweep": pd.Series([sweep] * len(rows), dtype="str"),
        "experiment": pd.Series([row.experiment for row in rows], dtype="str"),
        "status": pd.Series([row.status for row in rows], dtype="str"),
    }
    for name, dtype in own.items():
        columns[name] = pd.Series([row.own[name] for row in rows], dtype=dtype)
    columns["finished_at"] = _timestamps([row.finished_at for row in rows])
    return columns


def _timestamps(seconds: Sequence[float]) -> pd.Series:
    whole = np.array([round(second * 1_000_000) for second in seconds], dtype="datetime64[us]")
    return pd.Series(whole).dt.tz_localize("UTC")


def _metric_order(keys: set[str]) -> list[str]:
    spread = {key + suffix for key in keys for suffix in SUFFIXES}
    means = sorted(keys - spread)
    return [name for key in means for name in (key, *(key + s for s in SUFFIXES)) if name in keys]


def _place(row: Row, fields: Sequence[str]) -> tuple[object, ...]:
    # Absent values first, numbers by size, then text: values of several types have one order.
    values = [row.config.get(field) for field in fields]
    ranked = [
        (0, 0.0, "") if v is None else (2, 0.0, v) if isinstance(v, str) else (1, float(v), "")
        for v in values
    ]
    return (*ranked, row.point_id, row.own.get("seed", 0))
