"""Trade-off points as parquet: a row per point and replicate, a column per metric.

Nested columns would be simpler and several times slower to read; a pack's replicates share their
metrics, so flat columns are dense. A null is a key that the replicate lacks; NaN is a value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from privnets.points import Curve, Replicate, TradeoffPoint
from sweeps.artifacts import StoredFiles, safe_name
from sweeps.storage import Directory

_IDENTITY = {"point_id": pa.string(), "seed": pa.int64()}
_FIXED = {
    **_IDENTITY,
    "experiment": pa.string(),
    "config": pa.string(),
    "failure": pa.string(),
    "stopped": pa.string(),
    "finished_at": pa.float64(),
    "notes": pa.string(),
    "artifacts": pa.list_(pa.string()),
}
_REQUIRED = ("point_id", "seed", "experiment", "config", "finished_at")
_FAMILIES = {
    "metric": pa.float64(),
    "standard_error": pa.float64(),
    "curve_steps": pa.list_(pa.int64()),
    "curve_values": pa.list_(pa.float64()),
}
_REPEATED = ["point_id", "experiment", "config", "failure", "stopped", "notes"]


class RecordError(ValueError):
    """Bytes that are no table of points, or only a part of one."""


def encode(points: Iterable[TradeoffPoint]) -> bytes:
    """Points as the content of a parquet file."""
    rows = [(point, replicate) for point in points for replicate in point.replicates]
    columns: dict[str, pa.Array] = {
        name: pa.array([_fixed(name, *row) for row in rows], kind) for name, kind in _FIXED.items()
    }
    replicates = [replicate for _, replicate in rows]
    for family, values in _families(replicates).items():
        for key in sorted({key for mapping in values for key in mapping}):
            column = [mapping.get(key) for mapping in values]
            columns[f"{family}/{key}"] = pa.array(column, _FAMILIES[family], from_pandas=False)
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table(columns),
        sink,
        compression="zstd",
        use_dictionary=_REPEATED,
        write_statistics=False,
        write_page_checksum=True,
    )
    return bytes(sink.getvalue())


def decode(content: bytes) -> pa.Table:
    """The table in a parquet file, with its types checked.

    Raises:
        RecordError: If it is damaged or holds something else.
    """
    table = _read(content)
    if "stopped" not in table.column_names:  # of a version that stopped nothing early
        table = table.append_column("stopped", pa.nulls(table.num_rows, pa.string()))
    if missing := _FIXED.keys() - set(table.column_names):
        raise RecordError(f"columns {sorted(missing)} are missing")
    table = _typed(table)
    if empty := [name for name in _REQUIRED if table[name].null_count]:
        raise RecordError(f"columns {empty} must not hold nulls")
    _check_names(table)
    _check_curves(table)
    if pc.any(pc.invert(pc.is_finite(table["finished_at"]))).as_py():
        raise RecordError("finished_at must be finite")
    return table


def identities(table: pa.Table) -> list[tuple[str, int]]:
    """The (point_id, seed) of every row of a decoded table."""
    return list(zip(table["point_id"].to_pylist(), table["seed"].to_pylist(), strict=True))


def points_of(tables: Sequence[pa.Table], artifacts: Directory) -> Iterator[TradeoffPoint]:
    """A point of one replicate per row.

    Args:
        tables: As `decode` gives them.
        artifacts: Directory that holds the points' files.
    """
    if not tables:
        return
    table = pa.concat_tables(tables, promote_options="default")
    fixed = [table[name].to_pylist() for name in _FIXED]
    families = [_mappings(table, name) for name in ("metric", "standard_error")]
    rows = zip(*fixed, *families, _curves(table), strict=True)
    for point_id, seed, experiment, config, failure, stopped, finished, notes, files, *rest in rows:
        metrics, errors, curves = rest
        replicate = Replicate(
            seed=seed,
            metrics=metrics,
            standard_errors=errors,
            notes=_json(notes) if notes else {},
            curves=curves,
            artifacts=StoredFiles(artifacts / point_id, seed, tuple(files)) if files else {},
            failure=failure,
            stopped=stopped,
            finished_at=finished,
        )
        yield TradeoffPoint(point_id, experiment, _json(config), (replicate,))


def _fixed(name: str, point: TradeoffPoint, replicate: Replicate) -> Any:
    match name:
        case "point_id" | "experiment":
            return getattr(point, name)
        case "config":
            return json.dumps(dict(point.config), sort_keys=True)
        case "notes":
            return json.dumps(dict(replicate.notes), sort_keys=True) if replicate.notes else None
        case "artifacts":
            return list(replicate.artifacts)
        case _:
            return getattr(replicate, name)


def _families(replicates: Sequence[Replicate]) -> dict[str, list[Mapping[str, Any]]]:
    return {
        "metric": [r.metrics for r in replicates],
        "standard_error": [r.standard_errors for r in replicates],
        "curve_steps": [{k: c.steps for k, c in r.curves.items()} for r in replicates],
        "curve_values": [{k: c.values for k, c in r.curves.items()} for r in replicates],
    }


def _read(content: bytes) -> pa.Table:
    try:
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        return file.read(use_threads=False)
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise RecordError(f"not a whole parquet file ({error})") from error


def _typed(table: pa.Table) -> pa.Table:
    schema = pa.schema([(name, _type(name)) for name in table.column_names])
    try:
        return table if table.schema.equals(schema) else table.cast(schema)
    except (pa.ArrowException, ValueError) as error:
        raise RecordError(f"columns of another type: {error}") from error


def _type(name: str) -> pa.DataType:
    if name in _FIXED:
        return _FIXED[name]
    family = name.partition("/")[0]
    if family not in _FAMILIES:
        raise RecordError(f"column {name!r} is unknown")
    return _FAMILIES[family]


def _check_names(table: pa.Table) -> None:
    """Names become paths and configurations become columns: refuse what could do harm there."""
    for point_id in table["point_id"].unique().to_pylist():
        if not safe_name(point_id):
            raise RecordError(f"point_id {point_id!r} is not a plain name")
    for config in table["config"].unique().to_pylist():
        try:
            _json(config)
        except ValueError as error:
            raise RecordError(f"config is no JSON object ({error})") from error
    for files in table["artifacts"].to_pylist():
        if not all(isinstance(name, str) and safe_name(name) for name in files or ()):
            raise RecordError(f"artifacts {files!r} are not plain names")


def _check_curves(table: pa.Table) -> None:
    steps, values = _columns(table, "curve_steps"), _columns(table, "curve_values")
    if steps.keys() != values.keys():
        raise RecordError(f"curves {sorted(steps.keys() ^ values.keys())} are incomplete")
    for key, column in steps.items():
        if not pc.list_value_length(column).equals(pc.list_value_length(values[key])):
            raise RecordError(f"curve {key!r} has not one value per step")
        if pc.list_flatten(column).null_count or pc.list_flatten(values[key]).null_count:
            raise RecordError(f"curve {key!r} must not hold nulls")


@lru_cache(maxsize=65536)
def _json(text: str) -> Mapping[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"must be an object; got {type(found).__name__}")
    if nested := [key for key, value in found.items() if isinstance(value, dict | list)]:
        raise ValueError(f"{nested[0]} must be a plain value")
    return MappingProxyType(found)


def _columns(table: pa.Table, family: str) -> dict[str, pa.ChunkedArray]:
    prefix = f"{family}/"
    return {n.removeprefix(prefix): table[n] for n in table.column_names if n.startswith(prefix)}


def _mappings(table: pa.Table, family: str) -> list[dict[str, Any]]:
    columns = _columns(table, family)
    keys = list(columns)
    if not keys:
        return [{}] * table.num_rows
    values = zip(*(_values(column) for column in columns.values()), strict=True)
    if not any(column.null_count for column in columns.values()):
        return [dict(zip(keys, row, strict=True)) for row in values]
    return [
        {key: value for key, value in zip(keys, row, strict=True) if value is not None}
        for row in values
    ]


def _values(column: pa.ChunkedArray) -> list[Any]:
    dense = column.null_count == 0 and pa.types.is_floating(column.type)
    values: list[Any] = column.to_numpy().tolist() if dense else column.to_pylist()
    return values


def _curves(table: pa.Table) -> list[Mapping[str, Curve]]:
    steps, values = _columns(table, "curve_steps"), _columns(table, "curve_values")
    if not steps:
        return [{}] * table.num_rows
    return [_StoredCurves(steps, values, row) for row in range(table.num_rows)]


@dataclass(frozen=True)
class _StoredCurves(Mapping[str, Curve]):
    """A row's curves, unpacked when looked up: most readers of a ledger never ask for one."""

    steps: Mapping[str, pa.ChunkedArray]
    heights: Mapping[str, pa.ChunkedArray]
    row: int

    def __getitem__(self, key: str) -> Curve:
        steps, values = self.steps[key][self.row], self.heights[key][self.row]
        if not steps.is_valid:
            raise KeyError(key)
        return Curve(tuple(steps.as_py()), tuple(values.as_py()))

    def __iter__(self) -> Iterator[str]:
        return (key for key, column in self.steps.items() if column[self.row].is_valid)

    def __len__(self) -> int:
        return sum(1 for _ in self)
