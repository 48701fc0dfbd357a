"""Files of saved signals. They are not trusted: no pickle is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pandas as pd

from privnets.data.files import UserFormError
from privnets.references.arrays import read_npz
from privnets.references.table_files import read_frame

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
        return read_npz(path) if path.suffix.lower() == ".npz" else read_frame(path)
    except UserFormError as error:
        reason = f"it has {error.given}; expected {error.expected}"
        raise AuditError(f"{path} cannot be read: {reason}") from error
    except Exception as error:  # parsers raise many types
        reason = str(error).partition("\n")[0]
        raise AuditError(f"{path} cannot be read: {reason}") from error
