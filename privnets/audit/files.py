"""Files of saved signals. They are not trusted: no pickle is read."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from privnets.data.files import UserFormError
from privnets.data.table_files import read_frame

MAX_BYTES: Final = 2**30
"""Largest size of the arrays of a file once they are decompressed."""

SAVED: Final = "privnets_audit"
"""Array that marks a `.npz` file as one of `AuditResult.save`."""

_SUFFIXES = (".npz", ".csv", ".csv.gz", ".parquet")


class AuditError(ValueError):
    """Raised for input that cannot be audited; the message says what to change."""


def read_columns(path: Path) -> dict[str, Any] | pd.DataFrame:
    """Reads arrays from a `.npz` file, or a table; see `read_frame`.

    Raises:
        AuditError: If the file is absent, of another kind, damaged, or too large.
    """
    if not path.name.lower().endswith(_SUFFIXES):
        raise AuditError(f"{path} must end in {', '.join(_SUFFIXES)}; got {path.suffix!r}")
    if not path.is_file():
        raise AuditError(f"{path} is not a file; give one that ends in {', '.join(_SUFFIXES)}")
    try:
        return _read_npz(path) if path.suffix.lower() == ".npz" else read_frame(path)
    except UserFormError as error:
        reason = f"it has {error.given}; expected {error.expected}"
        raise AuditError(f"{path} cannot be read: {reason}") from error
    except Exception as error:  # parsers raise many types
        reason = str(error).partition("\n")[0]
        raise AuditError(f"{path} cannot be read: {reason}") from error


def _read_npz(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > MAX_BYTES:
        raise ValueError(f"it holds {size:,} bytes; at most {MAX_BYTES:,} are read")
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
