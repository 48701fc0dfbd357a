"""How large a parquet file becomes when it is read: a few bytes can stand for any number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_MOST_ROWS: Final = 1_000_000
_MOST_CELLS: Final = 50_000_000
_MOST_BYTES: Final = 2**30
# No other packing was ever written here, and others know no limit.
_PACKINGS: Final = ("SNAPPY", "UNCOMPRESSED")
_SNAPPY: Final = 24  # times smaller at the best


class TooLargeError(ValueError):
    """A file that stands for more than a pack can be."""


def check_size(file: pq.ParquetFile) -> None:
    """Refuse a file that would take much more memory than it has bytes; reads none of it.

    Raises:
        TooLargeError: If it would.
    """
    known = file.metadata
    rows, columns = known.num_rows, known.num_columns
    if rows > _MOST_ROWS or rows * columns > _MOST_CELLS:
        raise TooLargeError(f"{rows:,} rows of {columns:,} columns are too many")
    for chunk in _varying(known):
        if chunk.compression not in _PACKINGS:
            raise TooLargeError(f"a column is packed by {chunk.compression}")
        if chunk.num_values > _MOST_CELLS:
            raise TooLargeError(f"{chunk.num_values:,} values are too many")


def check_texts(content: bytes, file: pq.ParquetFile) -> None:
    """Refuse a file whose texts, each said once and meant often, would take too much memory.

    Raises:
        TooLargeError: If they would.
    """
    known = file.metadata
    said = sum(chunk.total_compressed_size for chunk in _varying(known))
    if said * _SNAPPY * known.num_rows <= _MOST_BYTES:
        return
    leaves = (known.schema.column(i) for i in range(known.num_columns))
    names = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    unexpanded = pq.ParquetFile(pa.BufferReader(content), read_dictionary=names)
    table = unexpanded.read(columns=names, use_threads=False)
    meant = sum(_bytes(chunk) for column in table.columns for chunk in column.chunks)
    if meant > _MOST_BYTES:
        raise TooLargeError(f"its texts have {meant:,} bytes")


def _varying(known: pq.FileMetaData) -> Iterator[Any]:
    """Parts of columns whose values differ in size."""
    places = [i for i in range(known.num_columns) if _varies(known.schema.column(i))]
    for group in range(known.num_row_groups):
        parts = known.row_group(group)
        yield from (parts.column(i) for i in places)


def _varies(column: pq.ColumnSchema) -> bool:
    return bool(column.physical_type == "BYTE_ARRAY" or column.max_repetition_level)


def _bytes(chunk: pa.Array) -> int:
    if pa.types.is_list(chunk.type):
        return _bytes(chunk.flatten())
    if not pa.types.is_dictionary(chunk.type):
        return int(chunk.nbytes)
    lengths = pc.take(pc.binary_length(chunk.dictionary), chunk.indices)
    return pc.sum(lengths).as_py() or 0
