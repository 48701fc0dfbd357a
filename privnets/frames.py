"""Tables of points: the layout that ledger, MLflow, exported files and reports share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privnets.points import Scalar, TradeoffPoint

SUFFIXES = (".std", ".ci_low", ".ci_high")

ERROR_SUFFIX = ".standard_error"
"""Suffix of a metric's standard error within a replicate."""

POINT_COLUMNS = {"replicates": "int64"}
"""Columns of a table of points only, with their types."""

REPLICATE_COLUMNS = {
    **{"seed": "int64", "failure": "str", "stopped": "str"},
    **{"test_set": "str", "test_size": "float64", "test_overlap": "float64"},
}
"""Columns of a table of replicates only, with their types."""


@dataclass(frozen=True)
class TableRow:
    """Row of a table: a point, or one of its replicates.

    Attributes:
        point_id: Id of the point.
        experiment: Name of the experiment.
        status: `finished`, `stopped` or `failed`.
        finished_at: Unix seconds.
        own: `replicates` (number that succeeded) of a point; `REPLICATE_COLUMNS` of a replicate.
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
class TableColumns:
    """Columns of a table, with rows in any order.

    Attributes:
        point_ids: Ids of the points, length P.
        experiments: Experiment of each point, length P.
        configs: Configuration of each point, field to value, length P.
        points: Index of each row's point, in [0, P), shape [rows].
        status: Status of each row.
        finished_at: Unix seconds, shape [rows].
        own: `POINT_COLUMNS` or `REPLICATE_COLUMNS` of each row.
        metrics: Key to values, NaN where a row lacks it, shape [rows].
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
    """Returns one row per point, sorted by configuration.

    Columns: `point_id`, `sweep`, `experiment`, `status`, `replicates` (number that succeeded),
    `finished_at` (UTC, microseconds), `config/<field>` sorted, then every metric (the mean over
    replicates), each followed by its `.std`, `.ci_low` and `.ci_high`. A metric that a point
    lacks is NaN.

    Args:
        points: Points, each `point_id` once.
        sweep: Name of the sweep.
    """
    return table_from_rows([point_row(point) for point in points], sweep)


def replicates_frame(points: Iterable[TradeoffPoint], sweep: str) -> pd.DataFrame:
    """Returns one row per point and replicate, sorted by configuration, then seed.

    Columns as in `points_frame`, with others instead of `replicates`: `seed`, `failure` and
    `stopped` (the reasons, where they apply), and `test_set`, `test_size` and `test_overlap` (see
    `privnets.points.ScoredRecords`). Metrics are those of the replicate, some of them followed by
    their `.standard_error` within it.
    """
    rows = []
    for point in points:
        for each in point.replicates:
            scored, errors = each.scored_on, each.standard_errors.items()
            status = "finished" if each.stopped is None else "stopped"
            row = TableRow(
                point_id=point.point_id,
                experiment=point.experiment,
                status="failed" if each.failure is not None else status,
                finished_at=each.finished_at,
                own={
                    "seed": each.seed,
                    "failure": each.failure,
                    "stopped": each.stopped,
                    "test_set": None if scored is None else scored.name,
                    "test_size": math.nan if scored is None else scored.size,
                    "test_overlap": math.nan if scored is None else scored.overlap,
                },
                config=point.config,
                metrics={**each.metrics, **{f"{k}{ERROR_SUFFIX}": error for k, error in errors}},
            )
            rows.append(row)
    return table_from_rows(rows, sweep, REPLICATE_COLUMNS)


def point_row(point: TradeoffPoint) -> TableRow:
    """Returns the row of a point."""
    return TableRow(
        point_id=point.point_id,
        experiment=point.experiment,
        status=point.status,
        finished_at=point.finished_at,
        own={"replicates": len(point.succeeded)},
        config=point.config,
        metrics=point.metrics,
    )


def table_from_rows(
    rows: Sequence[TableRow], sweep: str, own: Mapping[str, str] = POINT_COLUMNS
) -> pd.DataFrame:
    """Returns the table of `points_frame` or, by its `own` columns, of `replicates_frame`."""
    keys = {key for row in rows for key in row.metrics}
    columns = TableColumns(
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
    return table_from_columns(columns, own, sweep)


def table_from_columns(columns: TableColumns, own: Mapping[str, str], sweep: str) -> pd.DataFrame:
    """Returns the table of `points_frame` or `replicates_frame` for given columns.

    The argument `own` is `POINT_COLUMNS` or `REPLICATE_COLUMNS`.
    """
    every = sorted({field for config in columns.configs for field in config})
    fields = {name: [config.get(name) for config in columns.configs] for name in every}
    # By configuration, field by field, then by point and seed.
    keys = [_ranks(values)[columns.points] for values in (*fields.values(), columns.point_ids)]
    seeds = np.asarray(columns.own.get("seed", np.zeros(len(columns.points))))
    order = np.lexsort([seeds, *reversed(keys)])
    points = columns.points[order]
    microseconds = np.rint(columns.finished_at[order] * 1_000_000)
    table: dict[str, Any] = {
        "point_id": pd.array(columns.point_ids, dtype="str").take(points),
        "sweep": pd.array([sweep], dtype="str").take(np.zeros_like(points)),
        "experiment": pd.array(columns.experiments, dtype="str").take(points),
        "status": pd.array(columns.status, dtype="str").take(order),
        **{name: pd.array(columns.own[name], dtype=own[name]).take(order) for name in own},
        "finished_at": pd.Series(microseconds.astype("datetime64[us]")).dt.tz_localize("UTC"),
    }
    for field, values in fields.items():
        table[f"config/{field}"] = pd.Series(values).array.take(points)
    names, suffixes = list(columns.metrics), (*SUFFIXES, ERROR_SUFFIX)
    means = sorted({*names} - {key + suffix for key in names for suffix in suffixes})
    for key in (name + suffix for name in means for suffix in ("", *suffixes)):
        if key in columns.metrics:
            table[key] = columns.metrics[key][order]
    return pd.DataFrame(table)


def _ranks(values: Sequence[Scalar]) -> NDArray[np.int64]:
    """Returns the rank of each value: missing values first, then numbers, then text."""

    def sort_key(value: Scalar) -> tuple[int, float, str]:
        if value is None:
            return (0, 0.0, "")
        return (2, 0.0, value) if isinstance(value, str) else (1, float(value), "")

    ordered = sorted(set(values), key=sort_key)
    ranks = {value: rank for rank, value in enumerate(ordered)}
    return np.array([ranks[value] for value in values], dtype=np.int64)
