"""ECO's household 2 by quarter-hours, aggregated by others from the published seconds."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from privnets.data.catalog import DataError
from privnets.data.household import MISSING, MOST_WATTS, QUARTER_SECONDS, QUARTERS, Quarters

NAME = "eco_h2_15min.csv.gz"
_HOUSEHOLD = 2
_COLUMNS = ("time", "power_w", "occupancy")
_LABELS = {"0": 0, "1": 1, "": MISSING}
_ADVICE = "replace it by an intact copy, or put ECO as published beside it (see privnets.data.eco)."
_LONGEST = 300
_MOST_BYTES = 16 * 2**20  # the file unpacks to 0.4 MiB


def parse(content: bytes) -> Quarters:
    """Read the aggregated file.

    Its times are the household's wall clock, without a zone: the part that its source had stored
    two hours late is already shifted back in it, and nothing is shifted here. Days without a
    quarter-hour are left out. An empty occupancy is missing.

    Args:
        content: The file's bytes: gzipped csv with a header; `time`, `power_w` (mean of the
            quarter-hour) and `occupancy` are used, whatever else there is.

    Raises:
        DataError: If it is no gzip file, lacks a column, or a row cannot be what it should.
    """
    try:
        lines = list(csv.reader(io.StringIO(_text(content))))
    except csv.Error as error:
        raise DataError(f"{NAME} is no csv file: {error}; {_ADVICE}") from error
    header = lines[0] if lines else []
    lacking = [name for name in _COLUMNS if name not in header]
    if lacking:
        raise DataError(f"{NAME} has no column {', '.join(lacking)}; {_ADVICE}")
    rows = [
        _row(number, dict(zip(header, cells, strict=False)))
        for number, cells in enumerate(lines[1:], start=2)
        if cells
    ]
    if not rows:
        raise DataError(f"{NAME} has no rows; {_ADVICE}")
    return _days(rows)


def _text(content: bytes) -> str:
    try:
        with gzip.open(io.BytesIO(content)) as stream:
            body = stream.read(_MOST_BYTES + 1)
        text = body.decode("ascii")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{NAME} is not a whole gzip file of text: {error}; {_ADVICE}") from error
    if len(body) > _MOST_BYTES:
        raise DataError(f"{NAME} unpacks to more than {_MOST_BYTES:,} bytes; {_ADVICE}")
    return text


def _row(line: int, row: dict[str, str]) -> tuple[np.datetime64, int, float, int]:
    """Day, quarter-hour, watts and occupancy of one line."""
    try:
        time, power = datetime.fromisoformat(row["time"]), float(row["power_w"])
        occupancy = _LABELS[row["occupancy"]]
        whole = time.minute % 15 == time.second == time.microsecond == 0 and time.tzinfo is None
        if not whole or not 0 <= power <= MOST_WATTS:
            raise ValueError("not a quarter-hour on the wall clock, or not a power in W")
    except (ValueError, KeyError, TypeError) as error:
        said = f"cannot read {row}: {error}"[:_LONGEST]
        raise DataError(f"{NAME}, line {line}: {said}; {_ADVICE}") from error
    quarter = 4 * time.hour + time.minute // 15
    return np.datetime64(time.date(), "D"), quarter, power, occupancy


def _days(rows: list[tuple[np.datetime64, int, float, int]]) -> Quarters:
    days, quarters, power, labels = (np.array(column) for column in zip(*rows, strict=True))
    dates, day = np.unique(days, return_inverse=True)
    if len(set(zip(day.tolist(), quarters.tolist(), strict=True))) < len(rows):
        raise DataError(f"{NAME} has a quarter-hour twice; {_ADVICE}")
    shape = (len(dates), QUARTERS)
    watt_seconds = np.zeros(shape)
    seconds: NDArray[np.int64] = np.zeros(shape, dtype=np.int64)
    occupancy = np.full(shape, MISSING, dtype=np.int64)
    watt_seconds[day, quarters] = power * QUARTER_SECONDS
    seconds[day, quarters] = QUARTER_SECONDS
    occupancy[day, quarters] = labels
    return Quarters(_HOUSEHOLD, dates, watt_seconds, seconds, occupancy)
