"""Points as tables: the one layout that ledger, MLflow, files and reports share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privnets.points import Replicate, Scalar, TradeoffPoint

SUFFIXES = (".std", ".ci_low", ".ci_high")


POINT_COLUMNS = {"replicates": "int64"}
"""What a row says of its point alone, to the type in a table."""

REPLICATE_COLUMNS = {"seed": "int64", "failure": "str", "stopped": "str"}
"""What a row says of its replicate alone, to the type in a table."""


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


@dataclass(frozen=True, eq=False)
class Columns:
    """What a table says, column by column, its rows in any order.

    Attributes:
        point_ids: Of each point.
        experiments: Of each point.
        configs: Of each point, field to value.
        points: Each row's point, as its place in the three above, shape [rows].
        status: Of each row.
        finished_at: Unix seconds, shape [rows].
        own: `POINT_COLUMNS` or `REPLICATE_COLUMNS`, of each row.
        metrics: Key to values, NaN for a row that lacks it, shape [rows].
    """

    point_ids: Sequence[str]
    experiments: Sequence[str]
    configs: Sequence[Mapping[str, Scalar]]
    points: NDArray[np.int64]
    status: Sequence[str]
    finished_at: NDArray[np.float64]
    own: Mapping[str, Any]
    metrics: Mapping[str, NDArray[np.float64]]


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
    return frame(_columns(rows, REPLICATE_COLUMNS), REPLICATE_COLUMNS, sweep)


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
    return frame(_columns(rows, POINT_COLUMNS), POINT_COLUMNS, sweep)


def frame(columns: Columns, own: Mapping[str, str], sweep: str) -> pd.DataFrame:
    """`points_frame` or `replicates_frame` of columns from anywhere.

    Args:
        columns: What it says.
        own: `POINT_COLUMNS` or `REPLICATE_COLUMNS`.
        sweep: The sweep's name.
    """
    fields = {f: [c.get(f) for c in columns.configs] for f in _fields(columns.configs)}
    order = _order(columns, fields)
    points = columns.points[order]
    found: dict[str, Any] = {
        "point_id": pd.array(columns.point_ids, dtype="str").take(points),
        "sweep": pd.array([sweep], dtype="str").take(np.zeros_like(points)),
        "experiment": pd.array(columns.experiments, dtype="str").take(points),
        "status": pd.array(columns.status, dtype="str").take(order),
        **{name: pd.array(columns.own[name], dtype=own[name]).take(order) for name in own},
        "finished_at": _timestamps(columns.finished_at[order]),
    }
    for field, values in fields.items():
        found[f"config/{field}"] = pd.Series(values).array.take(points)
    for key in _metric_order(columns.metrics):
        found[key] = columns.metrics[key][order]
    return pd.DataFrame(found)


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


def _columns(rows: Sequence[Row], own: Iterable[str]) -> Columns:
    keys = {key for row in rows for key in row.metrics}
    return Columns(
        point_ids=[row.point_id for row in rows],
        experiments=[row.experiment for row in rows],
        configs=[row.config for row in rows],
        points=np.arange(len(rows)),
        status=[row.status for row in rows],
        finished_at=np.array([row.finished_at for row in rows], dtype=np.float64),
        own={name: [row.own[name] for row in rows] for name in own},
        metrics={
            key: np.array([row.metrics.get(key, math.nan) for row in rows], dtype=np.float64)
            for key in keys
        },
    )


def _fields(configs: Sequence[Mapping[str, Scalar]]) -> list[str]:
    return sorted({field for config in configs for field in config})


def _timestamps(seconds: NDArray[np.float64]) -> pd.Series:
    whole = np.rint(seconds * 1_000_000).astype("datetime64[us]")
    return pd.Series(whole).dt.tz_localize("UTC")


def _metric_order(keys: Iterable[str]) -> list[str]:
    known = set(keys)
    spread = {key + suffix for key in known for suffix in SUFFIXES}
    means = sorted(known - spread)
    return [name for key in means for name in (key, *(key + s for s in SUFFIXES)) if name in known]


def _order(columns: Columns, fields: Mapping[str, Sequence[Scalar]]) -> NDArray[np.int64]:
    """Rows by configuration, field by field, then by point and seed."""
    keys = [_ranks(values)[columns.points] for values in (*fields.values(), columns.point_ids)]
    seeds = np.asarray(columns.own.get("seed", np.zeros(len(columns.points))))
    return np.lexsort([seeds, *reversed(keys)])


def _ranks(values: Sequence[Scalar]) -> NDArray[np.int64]:
    """Each value's place among all: absent values first, numbers by size, then text."""
    ordered = sorted(set(values), key=_place)
    ranks = {value: rank for rank, value in enumerate(ordered)}
    return np.array([ranks[value] for value in values], dtype=np.int64)


def _place(value: Scalar) -> tuple[int, float, str]:
    if value is None:
        return (0, 0.0, "")
    return (2, 0.0, value) if isinstance(value, str) else (1, float(value), "")
