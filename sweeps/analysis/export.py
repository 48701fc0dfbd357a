"""Writing tables of points to Parquet, CSV and JSON files."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pandas as pd

from privnets.cache import write_atomically
from sweeps.errors import InputError


def check_output_path(path: Path | None, suffixes: Collection[str]) -> None:
    """Checks an output path before any work is done for it.

    Raises:
        InputError: If its suffix is not in `suffixes`, or its directory does not exist.
    """
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        raise InputError(f"{path} must end in {' or '.join(suffixes)}; got {path.suffix!r}")
    if not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no directory {path.parent}")


def save_frame(frame: pd.DataFrame, path: Path) -> None:
    """Writes a table as `.parquet`, `.csv` or `.json` (a list of rows), by its suffix.

    Floats are written exactly. NaN becomes an empty cell in CSV and null in JSON.

    Raises:
        InputError: If the suffix is another, or the file cannot be written.
    """
    check_output_path(path, (".parquet", ".csv", ".json"))
    suffix = path.suffix.lower()
    if suffix == ".csv":
        content = frame.to_csv(index=False).encode()
    elif suffix == ".json":
        content = json.dumps(
            [{str(k): json_value(v) for k, v in row.items()} for row in frame.to_dict("records")],
            indent=1,
            allow_nan=False,
        ).encode()
    else:
        content = frame.to_parquet(index=False)
    write_file_atomically(path, content)


def write_file_atomically(path: Path, content: bytes) -> None:
    """Writes a file as `privnets.cache.write_atomically` does.

    Raises:
        InputError: If it cannot be written; an existing file is then kept.
    """
    try:
        write_atomically(path, content)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error


def json_value(value: Any) -> Any:
    """A value that JSON can hold: null for NaN, text for infinities and times."""
    if isinstance(value, pd.Timestamp):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
