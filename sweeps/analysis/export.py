"""Write tables of points to files that other tools read."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

import pandas as pd

from sweeps.errors import InputError


def check_output(path: Path | None, suffixes: Collection[str]) -> None:
    """Check where a file is to go, before anything is worked out for it.

    Raises:
        InputError: If its suffix is not one of those allowed, or its directory does not exist.
    """
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        raise InputError(f"{path} must end in {' or '.join(suffixes)}; got {path.suffix!r}")
    if not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no directory {path.parent}")


def save_frame(frame: pd.DataFrame, path: Path) -> None:
    """Write a table as its suffix says: `.parquet`, `.csv`, or `.json` (a list of rows).

    Every float is written to its last bit. NaN is an empty cell in CSV and null in JSON, where
    infinities are text.

    Raises:
        InputError: If the suffix is another, or the file cannot be written; a file that was
            there stays then.
    """
    check_output(path, tuple(_FORMATS))
    replace_file(path, _FORMATS[path.suffix.lower()](frame))


def replace_file(path: Path, content: bytes) -> None:
    """Put a file whole: written aside, then moved over its name.

    Raises:
        InputError: If it cannot be written.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_bytes(content)
        aside.replace(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        aside.unlink(missing_ok=True)


def _parquet(frame: pd.DataFrame) -> bytes:
    sink = io.BytesIO()
    frame.to_parquet(sink, index=False)
    return sink.getvalue()


def _csv(frame: pd.DataFrame) -> bytes:
    return frame.to_csv(index=False).encode()


def _json(frame: pd.DataFrame) -> bytes:
    return json.dumps(plain_rows(frame), indent=1, allow_nan=False).encode()


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A table's rows as JSON can have them: each cell as `plain` gives it."""
    return [{str(k): plain(v) for k, v in row.items()} for row in frame.to_dict("records")]


def plain(value: Any) -> Any:
    """A value as JSON can have it: null for NaN, text for infinities and times."""
    if isinstance(value, pd.Timestamp):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


_FORMATS: Final[Mapping[str, Callable[[pd.DataFrame], bytes]]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".json": _json,
}
