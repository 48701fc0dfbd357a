"""Trade-off points as parquet: a row per point and replicate, a column per metric.

Nested columns would be simpler and several times slower to read; a pack's replicates share their
metrics, so flat columns are dense. A null is a key that the replicate lacks; NaN is a value.

A file is sealed, so that whoever needs a few columns need not read the others to know that all are
whole: every reader passes over the same damaged files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from privnets.points import Curve, Replicate, TradeoffPoint
from sweeps.store import sealing
from sweeps.store.artifacts import StoredArtifacts, is_safe_name
from sweeps.store.filesystem import Directory
from sweeps.store.unpacking import TooLargeError, check_size, check_texts
from sweeps.study.yaml_reader import is_encodable

_IDENTITY = {"point_id": pa.string(), "seed": pa.int64()}
FIXED_COLUMNS = {
    **_IDENTITY,
    "experiment": pa.string(),
    "config": pa.string(),
    "failure": pa.string(),
    "stopped": pa.string(),
    "finished_at": pa.float64(),
    "notes": pa.string(),
    "artifacts": pa.list_(pa.string()),
}
"""Columns that every file has, to their types."""

_REQUIRED = ("point_id", "seed", "experiment", "config", "finished_at")
_FAMILIES = {
    "metric": pa.float64(),
    "standard_error": pa.float64(),
    "curve_steps": pa.list_(pa.int64()),
    "curve_values": pa.list_(pa.float64()),
}
_ADDED = ("stopped",)  # which versions before did not write
_LATEST = 253402300799.0  # the end of the year 9999
_REPEATED = ["point_id", "experiment", "config", "failure", "stopped", "notes"]

ColumnFilter = Callable[[str], bool]
"""Whether a column is wanted, by its name."""


class PackFileError(ValueError):
    """Bytes that are no table of points, or only a part of one."""


def encode_points(points: Iterable[TradeoffPoint]) -> bytes:
    """Points as the content of a parquet file."""
    rows = [(point, replicate) for point in points for replicate in point.replicates]
    columns: dict[str, pa.Array] = {
        name: pa.array([_fixed(name, *row) for row in rows], kind)
        for name, kind in FIXED_COLUMNS.items()
    }
    replicates = [replicate for _, replicate in rows]
    for family, values in _families(replicates).items():
        for key in sorted({key for mapping in values for key in mapping}):
            column = [mapping.get(key) for mapping in values]
            columns[f"{family}/{key}"] = pa.array(column, _FAMILIES[family], from_pandas=False)
    return _written(pa.table(columns))


def is_any_column(name: str) -> bool:
    """Wants all columns."""
    return True


def is_fixed_column(name: str) -> bool:
    """Wants the columns that every file has."""
    return name in FIXED_COLUMNS


def decode_table(content: bytes, wanted: ColumnFilter = is_any_column) -> pa.Table:
    """The table in a parquet file, with the types of its columns checked.

    Values are checked in what is read. That is everything where the file has no seal, as versions
    before wrote it, or types are to be changed.

    Args:
        content: Of the file.
        wanted: Which columns to give, by name.

    Raises:
        PackFileError: If it is damaged or holds something else.
    """
    sealed, file = _opened(content)
    stored = _schema(content, file)
    schema = _expected(tuple(stored.names))
    names = [name for name in schema.names if wanted(name)]
    if sealed and schema.equals(stored):
        table = _read(file, names)
    else:
        table = _cast(_read(file, schema.names), schema)
    _check(table)
    for name in _ADDED:
        if name not in schema.names and wanted(name):
            table = table.append_column(name, pa.nulls(table.num_rows, FIXED_COLUMNS[name]))
            names.append(name)
    return table if table.num_columns == len(names) else table.select(names)


def replicate_keys(table: pa.Table) -> list[tuple[str, int]]:
    """The (point_id, seed) of every row of a decoded table."""
    return list(zip(table["point_id"].to_pylist(), table["seed"].to_pylist(), strict=True))


def points_from_tables(tables: Sequence[pa.Table], artifacts: Directory) -> Iterator[TradeoffPoint]:
    """A point of one replicate per row.

    Args:
        tables: As `decode` gives them.
        artifacts: Directory that holds the points' files.
    """
    if not tables:
        return
    table = pa.concat_tables(tables, promote_options="default")
    plain = [table[name].to_pylist() for name in FIXED_COLUMNS]
    families = [_mappings(table, name) for name in ("metric", "standard_error")]
    rows = zip(*plain, *families, _curves(table), strict=True)
    for point_id, seed, experiment, config, failure, stopped, finished, notes, files, *rest in rows:
        metrics, errors, curves = rest
        replicate = Replicate(
            seed=seed,
            metrics=metrics,
            standard_errors=errors,
            notes=parse_notes(notes) if notes else {},
            curves=curves,
            artifacts=StoredArtifacts(artifacts / point_id, seed, tuple(files)) if files else {},
            failure=failure,
            stopped=stopped,
            finished_at=finished,
        )
        yield TradeoffPoint(point_id, experiment, parse_config(config), (replicate,))


def family_columns(table: pa.Table, family: str) -> dict[str, pa.ChunkedArray]:
    """Key to column of a family: `metric`, `standard_error`, `curve_steps` or `curve_values`."""
    return {key: table[name] for key, name in _keys(table.column_names, family).items()}


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


def _written(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata({sealing.KEY: sealing.BLANK}),
        sink,
        use_dictionary=_REPEATED,
        write_statistics=False,
        write_page_checksum=True,
    )
    return sealing.seal(bytes(sink.getvalue()))


def _opened(content: bytes) -> tuple[bool, pq.ParquetFile]:
    """Whether the file is known to be whole, and the file."""
    try:
        sealed = sealing.is_sealed(content)
        source = pa.BufferReader(content)
        return sealed, pq.ParquetFile(source, page_checksum_verification=not sealed)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise PackFileError(f"not a whole parquet file ({error})") from error


def _schema(content: bytes, file: pq.ParquetFile) -> pa.Schema:
    """What a file says it holds, if that is no more than a pack can be."""
    try:
        check_size(file)
        stored = file.schema_arrow
        check_texts(content, file)
    except TooLargeError as error:
        raise PackFileError(str(error)) from error
    except (OSError, ValueError, pa.ArrowException) as error:
        raise PackFileError(f"not a whole parquet file ({error})") from error
    return stored


@lru_cache(maxsize=64)  # packs of a sweep have their columns in common
def _expected(names: tuple[str, ...]) -> pa.Schema:
    """What columns of these names must be."""
    if len(set(names)) < len(names):
        raise PackFileError("a column is there twice")
    if missing := FIXED_COLUMNS.keys() - {*names, *_ADDED}:
        raise PackFileError(f"columns {sorted(missing)} are missing")
    steps, values = (_keys(names, family) for family in ("curve_steps", "curve_values"))
    if steps.keys() != values.keys():
        raise PackFileError(f"curves {sorted(steps.keys() ^ values.keys())} are incomplete")
    return pa.schema([(name, _type(name)) for name in names])


def _read(file: pq.ParquetFile, names: Sequence[str]) -> pa.Table:
    try:
        table = file.read(columns=names, use_threads=False)
        table.validate(full=True)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise PackFileError(f"not a whole parquet file ({error})") from error
    return table


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    try:
        return table.cast(schema)
    except (pa.ArrowException, ValueError) as error:
        raise PackFileError(f"columns of another type: {error}") from error


def _type(name: str) -> pa.DataType:
    if name in FIXED_COLUMNS:
        return FIXED_COLUMNS[name]
    family = name.partition("/")[0]
    if family not in _FAMILIES:
        raise PackFileError(f"column {name!r} is unknown")
    return _FAMILIES[family]


def _check(table: pa.Table) -> None:
    """Whether the values are what they must be, in the columns that are there."""
    there = set(table.column_names)
    if empty := [name for name in _REQUIRED if name in there and table[name].null_count]:
        raise PackFileError(f"columns {empty} must not hold nulls")
    for name in there & _CHECKS.keys():
        _CHECKS[name](table[name])
    if _keys(there, "curve_steps"):
        _check_curves(table)


def _check_points(column: pa.ChunkedArray) -> None:
    """Names become paths: refuse what could do harm there."""
    for point_id in column.unique().to_pylist():
        if not is_safe_name(point_id):
            raise PackFileError(f"point_id {point_id!r} is not a plain name")


def _check_configs(column: pa.ChunkedArray) -> None:
    _check_objects(column, parse_config)


def _check_notes(column: pa.ChunkedArray) -> None:
    _check_objects(column, parse_notes)


def _check_objects(column: pa.ChunkedArray, parse: Callable[[str], Mapping[str, Any]]) -> None:
    for text in column.drop_null().unique().to_pylist():
        try:
            parse(text)
        except (ValueError, RecursionError) as error:
            raise PackFileError(f"{text[:40]!r} is no JSON object ({error})") from error


def _check_files(column: pa.ChunkedArray) -> None:
    for name in pc.list_flatten(column).unique().to_pylist():
        if name is None or not is_safe_name(name):
            raise PackFileError(f"the artifact {name!r} is not a plain name")


def _check_times(column: pa.ChunkedArray) -> None:
    known = pc.and_(pc.greater_equal(column, 0.0), pc.less_equal(column, _LATEST))
    if not pc.all(known, min_count=0).as_py():
        raise PackFileError("finished_at must be Unix seconds before the year 10000")


def _check_curves(table: pa.Table) -> None:
    steps, values = (family_columns(table, family) for family in ("curve_steps", "curve_values"))
    for key in steps.keys() & values.keys():
        if not pc.list_value_length(steps[key]).equals(pc.list_value_length(values[key])):
            raise PackFileError(f"curve {key!r} has not one value per step")
        if pc.list_flatten(steps[key]).null_count or pc.list_flatten(values[key]).null_count:
            raise PackFileError(f"curve {key!r} must not hold nulls")


_CHECKS: Mapping[str, Callable[[pa.ChunkedArray], None]] = {
    "point_id": _check_points,
    "config": _check_configs,
    "notes": _check_notes,
    "artifacts": _check_files,
    "finished_at": _check_times,
}


@lru_cache(maxsize=4096)
def parse_config(text: str) -> Mapping[str, Any]:
    """As `parsed`, remembering: a configuration is read with each of its replicates."""
    return parse_notes(text)


def parse_notes(text: str) -> Mapping[str, Any]:
    """A configuration or notes as they are written down.

    Raises:
        ValueError: If it is no JSON object of plain values.
    """
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"must be an object; got {type(found).__name__}")
    if wrong := [key for key, value in found.items() if not (_is_plain(key) and _is_plain(value))]:
        raise ValueError(f"{wrong[0]!r} must be a text, with a plain value")
    return MappingProxyType(found)


def _is_plain(value: object) -> bool:
    """Whether a value can be a configuration's; JSON knows more numbers and texts than others."""
    if isinstance(value, str):
        return is_encodable(value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return value is None or (isinstance(value, float) and not math.isnan(value))


def _keys(names: Iterable[str], family: str) -> dict[str, str]:
    """Key to column of a family."""
    prefix = f"{family}/"
    return {name.removeprefix(prefix): name for name in names if name.startswith(prefix)}


def _mappings(table: pa.Table, family: str) -> list[dict[str, Any]]:
    columns = family_columns(table, family)
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
    steps, values = family_columns(table, "curve_steps"), family_columns(table, "curve_values")
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
