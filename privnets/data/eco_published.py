"""ECO as its authors publish it: a file per household and day, and two of occupancy.

The format is that of the data set at doi 10.5905/ethz-1007-35, as its per-household documentation
(`NN_doc.txt`) describes it and as programs that read it confirm: the ECO converter of nilmtk
(github.com/nilmtk/nilmtk, nilmtk/dataset_converters/eco), and M. Schaffer's R code for Becker and
Kleiminger's occupancy detection. The zip archives `NN_sm_csv.zip` and `NN_occupancy_csv.zip` of
household NN unpack to

- `NN_sm_csv/NN/YYYY-MM-DD.csv` (for household 04 a folder deeper): no header, one row for each of
  the day's 86,400 seconds, 16 columns of which the first, `powerallphases`, is the real power of
  the house in W; -1 stands for a value that is missing;
- `NN_occupancy_csv/NN_summer.csv` and `NN_winter.csv`: a header with the times of day, then one
  row per day, of 86,401 columns: the date as `01-Jul-2012`, and for each second 1 (somebody at
  home) or 0. Days on which nobody recorded it have no row.

Files are found by name wherever they lie below the folder. Times are the households' wall clock:
reading them as UTC and converting, as some programs do, moves power two hours from occupancy.

This reader has been tested on files made in this format; the published ones were not at hand.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privnets.data.catalog import DataError
from privnets.data.household import (
    DAY_SECONDS,
    MISSING,
    MOST_WATTS,
    QUARTER_SECONDS,
    QUARTERS,
    Quarters,
    majority,
)

_COLUMNS = 16
_MOST_METERED, _MOST_RECORDED = 64 * 2**20, 2**30  # bytes; the published files have 11 and 20 MiB
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_METERED = re.compile(r"(\d{4}-\d\d-\d\d)\.csv")
_METER_FOLDER = re.compile(r"(\d\d)_sm_csv")
_RECORDED = re.compile(r"(\d\d)_(?:summer|winter)\.csv")
_DATE = re.compile(r"(\d\d)-([A-Z][a-z]{2})-(\d{4})")
_VALUES = {b"0": 0, b"1": 1, b"": MISSING, b"-1": MISSING}


@dataclass(frozen=True)
class Files:
    """The files of one household.

    Attributes:
        meter: Date, as in the file's name, to file.
        occupancy: Of the seasons that were recorded.
    """

    meter: Mapping[str, Path]
    occupancy: tuple[Path, ...]


def find(folder: Path) -> dict[int, Files]:
    """Households of which both power and occupancy lie below a folder, by number."""
    meter: dict[int, dict[str, Path]] = {}
    occupancy: dict[int, list[Path]] = {}
    for path in sorted(folder.rglob("*.csv")) if folder.is_dir() else ():
        if found := _RECORDED.fullmatch(path.name):
            occupancy.setdefault(int(found[1]), []).append(path)
        elif found := _METERED.fullmatch(path.name):
            owners = [m for parent in path.parents if (m := _METER_FOLDER.fullmatch(parent.name))]
            if owners:
                meter.setdefault(int(owners[0][1]), {})[found[1]] = path
    return {
        number: Files(meter[number], tuple(occupancy[number]))
        for number in sorted(meter.keys() & occupancy.keys())
    }


def read(number: int, files: Files) -> Quarters:
    """One household, on the days of which both power and occupancy are there.

    A quarter-hour is occupied if somebody was at home for at least half of its known seconds, and
    missing if fewer than half are known. A negative power is missing.

    Raises:
        DataError: If a file is not in the published format.
    """
    recorded = {
        day: labels
        for path in files.occupancy
        for day, labels in occupancy_days(path)
        if day in files.meter
    }
    if not recorded:
        raise DataError(
            f"ECO's household {number} has occupancy on no day that it has power; "
            "unpack NN_sm_csv.zip and NN_occupancy_csv.zip of the same household."
        )
    days = sorted(recorded)
    metered = [meter_day(files.meter[day]) for day in days]
    return Quarters(
        number,
        np.array(days, dtype="datetime64[D]"),
        np.array([sums for sums, _ in metered]),
        np.array([seconds for _, seconds in metered]),
        np.array([recorded[day] for day in days]),
    )


def meter_day(path: Path) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Watt-seconds and metered seconds of each quarter-hour of one day, shape [96] each.

    Raises:
        DataError: If it has not 16 columns of numbers and 86,400 rows.
    """
    import pandas as pd

    try:
        _check_file(path, _MOST_METERED)
        with path.open(encoding="ascii") as stream:
            columns = stream.readline().count(",") + 1
        if columns != _COLUMNS:
            raise ValueError(f"{columns} columns, expected {_COLUMNS}")
        power = pd.read_csv(path, header=None, usecols=[0], dtype=np.float64)[0].to_numpy()
        if len(power) != DAY_SECONDS:
            raise ValueError(f"{len(power):,} rows, expected {DAY_SECONDS:,}")
    except (OSError, ValueError) as error:  # pandas' parser errors are among them
        raise _unreadable(path, error) from error
    known = np.isfinite(power) & (power >= 0)
    if (power[known] > MOST_WATTS).any():
        raise _unreadable(path, ValueError(f"a power above {MOST_WATTS:g} W"))
    parts = np.where(known, power, 0.0).reshape(QUARTERS, QUARTER_SECONDS)
    return parts.sum(axis=1), known.reshape(QUARTERS, QUARTER_SECONDS).sum(axis=1)


def occupancy_days(path: Path) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Each recorded day, as YYYY-MM-DD, and the labels of its quarter-hours, shape [96].

    Raises:
        DataError: If a row is not a date and 86,400 values of 0, 1, -1 or nothing.
    """
    try:
        _check_file(path, _MOST_RECORDED)
        with path.open("rb") as stream:
            for line, row in enumerate(stream, start=1):
                date, *cells = row.rstrip(b"\r\n").split(b",")
                found = _DATE.fullmatch(date.strip(b"\"' ").decode("ascii"))
                if found is None and line > 1 and row.strip():
                    raise ValueError(f"line {line} starts with {date[:20]!r}, not with a date")
                if found is not None:
                    month = 1 + _MONTHS.index(found[2])
                    day = datetime.date(int(found[3]), month, int(found[1]))
                    yield day.isoformat(), _labels(cells, line)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _labels(cells: list[bytes], line: int) -> NDArray[np.int64]:
    if len(cells) != DAY_SECONDS:
        raise ValueError(f"line {line} has {len(cells):,} values, expected {DAY_SECONDS:,}")
    found = {cell: _value(cell, line) for cell in set(cells)}
    seconds = np.array([found[cell] for cell in cells]).reshape(QUARTERS, QUARTER_SECONDS)
    known = (seconds != MISSING).sum(axis=1)
    return majority((seconds == 1).sum(axis=1), known, QUARTER_SECONDS)


def _value(cell: bytes, line: int) -> int:
    text = cell.strip().removesuffix(b".0")
    if text.lower() == b"nan":
        return MISSING
    if text not in _VALUES:
        raise ValueError(f"line {line} holds {cell[:20]!r}; a value is 0, 1, -1 or nothing")
    return _VALUES[text]


def _check_file(path: Path, most: int) -> None:
    """Refuse what is no plain file, or too large to be a published one."""
    if not path.is_file():
        raise ValueError("it is no plain file")
    if path.stat().st_size > most:
        raise ValueError(f"it has more than {most:,} bytes")


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        f"{path} is not a file of ECO as published: {error}. "
        "Unpack it again from the data set's archives (https://doi.org/10.5905/ethz-1007-35)."
    )
