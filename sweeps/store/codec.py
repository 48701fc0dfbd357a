"""Parquet format of a pack: one row per point and replicate, one column per metric.

Flat columns are read several times faster than nested ones, and they are dense, as the replicates
of a pack share their metrics. A null means that a replicate lacks the key; NaN is a value.

Files are not trusted. Parquet's page checksums find damage in the columns that are read, one limit
bounds the size of their decoded numbers, and values are checked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from privnets.points import Curve, Replicate, ScoredRecords, TradeoffPoint
from sweeps.store.artifacts import StoredArtifacts, is_safe_name
from sweeps.store.filesystem import Directory
from sweeps.study.yaml_reader import is_encodable

FIXED_COLUMNS: Final[Mapping[str, pa.DataType]] = {
    "point_id": pa.string(),
    "seed": pa.int64(),
    "experiment": pa.string(),
    "config": pa.string(),
    "failure": pa.string(),
    "stopped": pa.string(),
    "finished_at": pa.float64(),
    "notes": pa.string(),
    "artifacts": pa.list_(pa.string()),
    "test_set": pa.string(),
    "test_size": pa.int64(),
    "test_overlap": pa.float64(),
}
"""Columns of every file, with their types."""

_ADDED: Final = ("test_set", "test_size", "test_overlap")
"""Columns that files of earlier versions lack; they are read as nulls."""

_REQUIRED: Final = ("point_id", "seed", "experiment", "config", "finished_at")
_FAMILIES: Final = {
    "metric": pa.float64(),
    "standard_error": pa.float64(),
    "curve_steps": pa.list_(pa.int64()),
    "curve_values": pa.list_(pa.float64()),
}
_TEXT_COLUMNS: Final = [name for name, kind in FIXED_COLUMNS.items() if kind == pa.string()]
_MAX_DECODED_BYTES: Final = 2**30
_MAX_TIME: Final = 253402300799.0  # end of the year 9999, Unix seconds

ColumnFilter = Callable[[str], bool]
"""Whether a column is selected, by its name."""

ReplicateKey = tuple[str, int]
"""A replicate's `point_id` and seed."""


class PackFileError(ValueError):
    """Raised for a file that is damaged, too large, or not a table of points."""


def encode_points(points: Iterable[TradeoffPoint]) -> bytes:
    """Encodes points as the content of a parquet file."""
    rows = [(point, replicate) for point in points for replicate in point.replicates]
    columns: dict[str, pa.Array] = {
        name: pa.array([_fixed_value(name, *row) for row in rows], kind)
        for name, kind in FIXED_COLUMNS.items()
    }
    families: dict[str, list[Mapping[str, Any]]] = {
        "metric": [r.metrics for _, r in rows],
        "standard_error": [r.standard_errors for _, r in rows],
        "curve_steps": [{k: c.steps for k, c in r.curves.items()} for _, r in rows],
        "curve_values": [{k: c.values for k, c in r.curves.items()} for _, r in rows],
    }
    for family, values in families.items():
        for key in sorted({key for mapping in values for key in mapping}):
            column = [mapping.get(key) for mapping in values]
            columns[f"{family}/{key}"] = pa.array(column, _FAMILIES[family], from_pandas=False)
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table(columns),
        sink,
        use_dictionary=_TEXT_COLUMNS,
        write_statistics=False,
        write_page_checksum=True,
    )
    return bytes(sink.getvalue())


def decode_table(content: bytes, columns: ColumnFilter | None = None) -> pa.Table:
    """Decodes and checks the table in a parquet file.

    Args:
        content: Content of the file.
        columns: Columns to decode; all if None. Damage in the others is not noticed.

    Raises:
        PackFileError: If the file is damaged, too large or holds something else.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        schema, metadata = file.schema_arrow, file.metadata
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        # Equal numbers take no room in a file, and an entry of a list is a value of its own.
        chunks = [(g.num_rows, g.column(i)) for g in groups for i in range(metadata.num_columns)]
        size = sum(8 * max(c.num_values, rows) + c.total_uncompressed_size for rows, c in chunks)
        if size > _MAX_DECODED_BYTES:
            raise PackFileError(f"too large: {size:,} bytes of values")
        if schema != _expected_schema(tuple(schema.names)):
            raise PackFileError("columns have other types")
        names = [name for name in schema.names if columns is None or columns(name)]
        table = file.read(columns=names, use_threads=False)
        table.validate(full=True)
        for name in _ADDED:  # in files of earlier versions
            if name not in schema.names and (columns is None or columns(name)):
                table = table.append_column(name, pa.nulls(table.num_rows, FIXED_COLUMNS[name]))
    except PackFileError:
        raise
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise PackFileError(f"not a whole parquet file ({error})") from error
    _check_values(table)
    return table


def replicate_keys(table: pa.Table) -> list[ReplicateKey]:
    """The (point_id, seed) of every row of a decoded table."""
    return list(zip(table["point_id"].to_pylist(), table["seed"].to_pylist(), strict=True))


def points_from_tables(tables: Sequence[pa.Table], artifacts: Directory) -> Iterator[TradeoffPoint]:
    """Yields a point with one replicate for every row; `artifacts` holds the points' files."""
    if not tables:
        return
    table = pa.concat_tables(tables, promote_options="default")
    fixed = [table[name].to_pylist() for name in FIXED_COLUMNS]
    families = [_mappings(table, name) for name in ("metric", "standard_error")]
    steps, heights = (family_columns(table, name) for name in ("curve_steps", "curve_values"))
    curves_of = [_StoredCurves(steps, heights, row) if steps else {} for row in range(len(table))]
    rows = zip(*fixed, *families, curves_of, strict=True)
    for point_id, seed, experiment, config, failure, stopped, time, notes, files, *rest in rows:
        *scored, metrics, errors, curves = rest
        replicate = Replicate(
            seed=seed,
            metrics=metrics,
            standard_errors=errors,
            notes=parse_object(notes) if notes else {},
            curves=curves,
            artifacts=StoredArtifacts(artifacts / point_id, seed, tuple(files)) if files else {},
            failure=failure,
            stopped=stopped,
            finished_at=time,
            scored_on=None if scored[1] is None else ScoredRecords(*scored),
        )
        yield TradeoffPoint(point_id, experiment, parse_object(config), (replicate,))


def family_columns(table: pa.Table, family: str) -> dict[str, pa.ChunkedArray]:
    """Key to column of a family: `metric`, `standard_error`, `curve_steps` or `curve_values`."""
    return {key: table[name] for key, name in _keys(table.column_names, family).items()}


@lru_cache(maxsize=4096)  # a configuration is read with each of its replicates
def parse_object(text: str) -> Mapping[str, Any]:
    """Parses a JSON object of plain values.

    Raises:
        ValueError: If the text is something else.
    """
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError(f"must be an object; got {type(content).__name__}")
    for key, value in content.items():
        if not (_is_plain(key) and _is_plain(value)):
            raise ValueError(f"{key!r} must be a text, with a plain value")
    return MappingProxyType(content)


def _is_plain(value: object) -> bool:
    """Whether a configuration can hold a value; JSON allows larger numbers and broken texts."""
    if isinstance(value, str):
        return is_encodable(value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return value is None or (isinstance(value, float) and not math.isnan(value))


def _fixed_value(name: str, point: TradeoffPoint, replicate: Replicate) -> Any:
    scored = replicate.scored_on
    match name:
        case "point_id" | "experiment":
            return getattr(point, name)
        case "config":
            return json.dumps(dict(point.config), sort_keys=True)
        case "notes":
            return json.dumps(dict(replicate.notes), sort_keys=True) if replicate.notes else None
        case "artifacts":
            return list(replicate.artifacts)
        case "test_set":
            return scored and scored.name
        case "test_size":
            return scored and scored.size
        case "test_overlap":
            return scored and scored.overlap
        case _:
            return getattr(replicate, name)


@lru_cache(maxsize=64)  # the packs of a sweep share their columns
def _expected_schema(names: tuple[str, ...]) -> pa.Schema:
    """Schema that a file with these columns must have."""
    if len(set(names)) < len(names):
        raise PackFileError("a column is there twice")
    if missing := FIXED_COLUMNS.keys() - {*names, *_ADDED}:
        raise PackFileError(f"columns {sorted(missing)} are missing")
    steps, values = (_keys(names, family) for family in ("curve_steps", "curve_values"))
    if steps.keys() != values.keys():
        raise PackFileError(f"curves {sorted(steps.keys() ^ values.keys())} are incomplete")
    kinds = {
        name: FIXED_COLUMNS.get(name) or _FAMILIES.get(name.partition("/")[0]) for name in names
    }
    if unknown := [name for name, kind in kinds.items() if kind is None]:
        raise PackFileError(f"column {unknown[0]!r} is unknown")
    return pa.schema(list(kinds.items()))


def _check_values(table: pa.Table) -> None:
    """Refuses values that no writer writes; names become paths, so they must be plain."""
    names = set(table.column_names)
    if empty := [name for name in _REQUIRED if name in names and table[name].null_count]:
        raise PackFileError(f"columns {empty} must not hold nulls")
    if "point_id" in names:
        for point_id in table["point_id"].unique().to_pylist():
            if not is_safe_name(point_id):
                raise PackFileError(f"point_id {point_id!r} is not a plain name")
    if "artifacts" in names:
        for name in pc.list_flatten(table["artifacts"]).unique().to_pylist():
            if name is None or not is_safe_name(name):
                raise PackFileError(f"the artifact {name!r} is not a plain name")
    for column in {"config", "notes"} & names:
        for text in table[column].drop_null().unique().to_pylist():
            try:
                parse_object(text)
            except (ValueError, RecursionError) as error:
                raise PackFileError(f"{text[:40]!r} is not a JSON object ({error})") from error
    if "finished_at" in names:
        times = table["finished_at"].to_numpy()
        if not ((times >= 0.0) & (times <= _MAX_TIME)).all():
            raise PackFileError("finished_at must be Unix seconds before the year 10000")
    if names >= {*_ADDED}:
        sets, sizes, overlaps = (table[name] for name in _ADDED)
        sized = sizes.is_valid()
        is_unnamed = pc.any(pc.and_not(sets.is_valid(), sized)).as_py()
        if is_unnamed or not sized.equals(overlaps.is_valid()):
            raise PackFileError("a test set needs a size and an overlap")
        known, parts = sizes.drop_null().to_numpy(), overlaps.drop_null().to_numpy()
        if not ((known >= 1).all() and (parts > 0).all() and (parts <= 1).all()):
            raise PackFileError("a test set's size must be at least 1 and its overlap in (0, 1]")
    if steps := family_columns(table, "curve_steps"):
        values = family_columns(table, "curve_values")
        all_steps, all_values = (
            pa.chunked_array([chunk for key in steps for chunk in columns[key].chunks])
            for columns in (steps, values)
        )
        if not pc.list_value_length(all_steps).equals(pc.list_value_length(all_values)):
            raise PackFileError("a curve must have one value per step")
        if pc.list_flatten(all_steps).null_count or pc.list_flatten(all_values).null_count:
            raise PackFileError("a curve must not hold nulls")


def _keys(names: Iterable[str], family: str) -> dict[str, str]:
    """Key to column name of a family."""
    prefix = f"{family}/"
    return {name.removeprefix(prefix): name for name in names if name.startswith(prefix)}


def _mappings(table: pa.Table, family: str) -> list[dict[str, Any]]:
    """Key to value of each row, nulls left out."""
    columns = family_columns(table, family)
    if not columns:
        return [{}] * table.num_rows
    rows = zip(  # without nulls, numpy is faster than pyarrow
        *(c.to_pylist() if c.null_count else c.to_numpy().tolist() for c in columns.values()),
        strict=True,
    )
    if not any(column.null_count for column in columns.values()):
        return [dict(zip(columns, row, strict=True)) for row in rows]
    return [
        {key: value for key, value in zip(columns, row, strict=True) if value is not None}
        for row in rows
    ]


@dataclass(frozen=True)
class _StoredCurves(Mapping[str, Curve]):
    """Curves of a row, converted on access: most readers never need one."""

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
