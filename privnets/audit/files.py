"""Files of saved signals: npz, csv and parquet. They are not trusted: no pickle is read."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from privnets.data.files import UserFormError
from privnets.data.table_files import read_frame

MAX_BYTES: Final = 2**30
"""Largest size of a file, and of its content once it is decompressed."""

# Other compressions have no useful bound on how much a file expands.
_COMPRESSIONS = ("SNAPPY", "UNCOMPRESSED")

# All that the readers of numpy, pandas, pyarrow and zipfile raise for damaged files.
_DAMAGES = (
    *(OSError, ValueError, LookupError, EOFError, MemoryError, OverflowError, RuntimeError),
    *(SyntaxError, TypeError, zipfile.BadZipFile, zlib.error, pa.ArrowException),
)


class AuditError(ValueError):
    """Raised for input that cannot be audited; the message says what to change."""


def read_columns(path: Path) -> dict[str, Any] | pd.DataFrame:
    """Reads arrays from a `.npz` file, or a table from a `.csv` or `.parquet` file.

    Raises:
        AuditError: If the file is absent, of another kind, damaged, or larger than 1 GiB.
    """
    suffix = path.suffix.lower()
    if suffix not in (".npz", ".csv", ".parquet"):
        raise AuditError(f"{path} must end in .npz, .csv or .parquet; got {path.suffix!r}")
    try:
        if not path.is_file():
            raise AuditError(f"{path} is not a file; give a .npz, .csv or .parquet file")
        check_size(path.stat().st_size, path)
        if suffix == ".npz":
            return _read_npz(path)
        return read_frame(path) if suffix == ".csv" else _read_parquet(path)
    except AuditError:
        raise
    except UserFormError as error:
        raise AuditError(f"{path} cannot be read: it has {error.given}") from error
    except _DAMAGES as error:
        reason = str(error).partition("\n")[0]
        raise AuditError(f"{path} cannot be read: {reason}") from error


def check_size(size: int, path: Path) -> None:
    """Checks a number of bytes.

    Raises:
        AuditError: If it is more than 1 GiB.
    """
    if size > MAX_BYTES:
        raise AuditError(f"{path} holds {size:,} bytes; at most {MAX_BYTES:,} are read")


def _read_npz(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        check_size(sum(member.file_size for member in archive.infolist()), path)
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _read_parquet(path: Path) -> pd.DataFrame:
    schema = pq.read_schema(path)
    if len(set(schema.names)) < len(schema.names):
        raise AuditError(f"{path} has a column twice; got the columns {', '.join(schema.names)}")
    # Dictionaries keep equal texts as one; nested columns are of no use here.
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    plain = [field.name for field in schema if not pa.types.is_nested(field.type)]
    with pq.ParquetFile(path, read_dictionary=texts, page_checksum_verification=True) as file:
        metadata = file.metadata
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        columns = [group.column(index) for group in groups for index in range(group.num_columns)]
        unknown = {column.compression for column in columns} - set(_COMPRESSIONS)
        if unknown:
            allowed = ", ".join(_COMPRESSIONS)
            raise AuditError(f"{path} is compressed by {unknown.pop()}; expected {allowed}")
        check_size(metadata.num_rows * metadata.num_columns * 8, path)
        check_size(sum(group.total_byte_size for group in groups), path)
        table: pd.DataFrame = file.read(columns=plain, use_threads=False).to_pandas()
        return table
