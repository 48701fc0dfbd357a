"""Parsers of the two file formats of ECO, both to sums by quarter-hours.

**Published format** (doi 10.5905/ethz-1007-35). The per-household documentation `NN_doc.txt`
describes it; the ECO converter of nilmtk (github.com/nilmtk/nilmtk,
nilmtk/dataset_converters/eco) and M. Schaffer's R code for Becker and Kleiminger's occupancy
detection agree. The archives `NN_sm_csv.zip` and `NN_occupancy_csv.zip` of household NN contain

- `NN_sm_csv/NN/YYYY-MM-DD.csv` (household 04: one folder deeper): no header, a row for each of the
  day's 86,400 seconds, 16 columns. The first, `powerallphases`, is the real power of the house in
  W; -1 is a missing value.
- `NN_occupancy_csv/NN_summer.csv` and `NN_winter.csv`: a header with the times of day, then a row
  of 86,401 columns for each day: the date as `01-Jul-2012`, and for each second 1 (at home) or 0.
  Days without a record of occupancy have no row.

Files are found by name at any depth. Times are the household's wall clock: programs that read
them as UTC and convert shift power by two hours against occupancy. The parser is tested on files
made in this format; the published files were not available.

**Aggregated format**: `eco_h2_15min.csv.gz`, household 2 by quarter-hours.
"""

from __future__ import annotations

import datetime
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privnets.data.files import DataError, unpack_gzip

AGGREGATED_NAME: Final = "eco_h2_15min.csv.gz"
MISSING: Final = -1
"""Label of steps without a record of occupancy; they are not absences."""

_QUARTERS, _QUARTER_SECONDS = 96, 900
_DAY_SECONDS = _QUARTERS * _QUARTER_SECONDS
_MAX_WATTS = 1e7  # above any household: a larger value shows a damaged file

_AGGREGATED_HOUSEHOLD = 2
_AGGREGATED_COLUMNS = ["time", "power_w", "occupancy"]
_AGGREGATED_MAX_BYTES = 16 * 2**20  # the file has 0.4 MiB uncompressed
_ADVICE = "Replace it by an intact copy, or put ECO as published beside it (see privnets.data.eco)."
_MAX_MESSAGE = 300

_METER_COLUMNS = 16
_METER_MAX_BYTES, _OCCUPANCY_MAX_BYTES = 64 * 2**20, 2**30  # published: 11 and 20 MiB
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_METER_FILE = re.compile(r"(\d{4}-\d\d-\d\d)\.csv")
_METER_FOLDER = re.compile(r"(\d\d)_sm_csv")
_OCCUPANCY_FILE = re.compile(r"(\d\d)_(?:summer|winter)\.csv")
_DATE = re.compile(r"(\d\d)-([A-Z][a-z]{2})-(\d{4})")
_OCCUPANCY_LABELS = {b"0": 0, b"1": 1, b"": MISSING, b"-1": MISSING}


@dataclass(frozen=True, eq=False)
class QuarterHours:
    """Sums of one household by quarter-hours, from which longer steps can be computed.

    Attributes:
        number: Number of the household, from 1.
        dates: Days in order, datetime64[D], shape [d].
        watt_seconds: Power summed over the metered seconds, float64, shape [d, 96].
        seconds: Number of metered seconds, int64, shape [d, 96].
        occupancy: 1 at home, 0 absent, or `MISSING`, int64, shape [d, 96].
    """

    number: int
    dates: NDArray[np.datetime64]
    watt_seconds: NDArray[np.float64]
    seconds: NDArray[np.int64]
    occupancy: NDArray[np.int64]


@dataclass(frozen=True)
class PublishedFiles:
    """Published files of one household."""

    meter: Mapping[str, Path]
    occupancy: tuple[Path, ...]


def majority(
    occupied: NDArray[np.int64], labelled: NDArray[np.int64], parts: int
) -> NDArray[np.int64]:
    """Combines the labels of several parts of a step to one.

    Returns:
        1 if at least half of the labelled parts are occupied, else 0; `MISSING` if fewer than half
        of all parts have a label.
    """
    label = np.where(2 * occupied >= labelled, 1, 0)
    return np.where((labelled > 0) & (2 * labelled >= parts), label, MISSING).astype(np.int64)


def find_published(folder: Path) -> dict[int, PublishedFiles]:
    """Finds the households with both power and occupancy below a folder, by number."""
    meter: dict[int, dict[str, Path]] = {}
    occupancy: dict[int, list[Path]] = {}
    for path in sorted(folder.rglob("*.csv")) if folder.is_dir() else ():
        if match := _OCCUPANCY_FILE.fullmatch(path.name):
            occupancy.setdefault(int(match[1]), []).append(path)
        elif match := _METER_FILE.fullmatch(path.name):
            folders = [m for parent in path.parents if (m := _METER_FOLDER.fullmatch(parent.name))]
            if folders:
                meter.setdefault(int(folders[0][1]), {})[match[1]] = path
    return {
        number: PublishedFiles(meter[number], tuple(occupancy[number]))
        for number in sorted(meter.keys() & occupancy.keys())
    }


def read_published(number: int, files: PublishedFiles) -> QuarterHours:
    """Reads one household, on the days with both power and occupancy.

    A quarter-hour is occupied if at least half of its labelled seconds are, and missing if fewer
    than half of its seconds have a label. Negative power is missing.
    """
    occupancy = {
        day: labels
        for path in files.occupancy
        for day, labels in occupancy_days(path)
        if day in files.meter
    }
    if not occupancy:
        raise DataError(
            f"ECO's household {number} has no day with both power and occupancy; "
            "unpack NN_sm_csv.zip and NN_occupancy_csv.zip of the same household."
        )
    days = sorted(occupancy)
    metered = [meter_day(files.meter[day]) for day in days]
    return QuarterHours(
        number,
        np.array(days, dtype="datetime64[D]"),
        np.array([sums for sums, _ in metered]),
        np.array([seconds for _, seconds in metered]),
        np.array([occupancy[day] for day in days]),
    )


def meter_day(path: Path) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Reads one day of power: watt-seconds and metered seconds of its quarters, shape [96] each."""
    import pandas as pd  # slow to import

    try:
        _check_file(path, _METER_MAX_BYTES)
        with path.open(encoding="ascii") as stream:
            columns = stream.readline().count(",") + 1
        if columns != _METER_COLUMNS:
            raise ValueError(f"{columns} columns, expected {_METER_COLUMNS}")
        power = pd.read_csv(path, header=None, usecols=[0], dtype=np.float64)[0].to_numpy()
        if len(power) != _DAY_SECONDS:
            raise ValueError(f"{len(power):,} rows, expected {_DAY_SECONDS:,}")
    except (OSError, ValueError) as error:  # includes pandas' parser errors
        raise _format_error(path, error) from error
    metered = np.isfinite(power) & (power >= 0)
    if (power[metered] > _MAX_WATTS).any():
        raise _format_error(path, ValueError(f"a power above {_MAX_WATTS:g} W"))
    quarters = np.where(metered, power, 0.0).reshape(_QUARTERS, _QUARTER_SECONDS)
    seconds = metered.reshape(_QUARTERS, _QUARTER_SECONDS).sum(axis=1)
    return quarters.sum(axis=1), seconds


def occupancy_days(path: Path) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yields each recorded day, as YYYY-MM-DD, with the labels of its quarter-hours, shape [96]."""
    try:
        _check_file(path, _OCCUPANCY_MAX_BYTES)
        with path.open("rb") as stream:
            for line, row in enumerate(stream, start=1):
                date, *cells = row.rstrip(b"\r\n").split(b",")
                match = _DATE.fullmatch(date.strip(b"\"' ").decode("ascii"))
                if match is None and line > 1 and row.strip():
                    raise ValueError(f"line {line} starts with {date[:20]!r}, not with a date")
                if match is None:
                    continue
                month = 1 + _MONTHS.index(match[2])
                day = datetime.date(int(match[3]), month, int(match[1]))
                if len(cells) != _DAY_SECONDS:
                    given = f"line {line} has {len(cells):,} values"
                    raise ValueError(f"{given}, expected {_DAY_SECONDS:,}")
                labels = {}
                for cell in set(cells):
                    text = cell.strip().removesuffix(b".0")
                    text = b"" if text.lower() == b"nan" else text
                    if text not in _OCCUPANCY_LABELS:
                        given = f"line {line} holds {cell[:20]!r}"
                        raise ValueError(f"{given}; expected 0, 1, -1 or nothing")
                    labels[cell] = _OCCUPANCY_LABELS[text]
                seconds = np.array([labels[cell] for cell in cells]).reshape(_QUARTERS, -1)
                known = (seconds != MISSING).sum(axis=1)
                quarters = majority((seconds == 1).sum(axis=1), known, _QUARTER_SECONDS)
                yield day.isoformat(), quarters
    except (OSError, ValueError) as error:
        raise _format_error(path, error) from error


def parse_aggregated(content: bytes) -> QuarterHours:
    """Reads the aggregated file of household 2.

    Times are the household's wall clock, without a zone. The published source stored one part two
    hours late; the file has this corrected. Days without a quarter-hour are left out. An empty
    occupancy is missing.
    """
    import pandas as pd  # slow to import

    body = unpack_gzip(content, AGGREGATED_NAME, _AGGREGATED_MAX_BYTES, _ADVICE)
    try:
        rows = pd.read_csv(io.BytesIO(body), usecols=_AGGREGATED_COLUMNS, dtype=str)
        time = pd.to_datetime(rows["time"], format="%Y-%m-%d %H:%M:%S")
        power = rows["power_w"].astype(np.float64)
        labels = rows["occupancy"].astype(np.float64).fillna(MISSING)
    except (ValueError, OverflowError) as error:
        reason = str(error)[:_MAX_MESSAGE]
        raise DataError(f"{AGGREGATED_NAME} cannot be read: {reason}. {_ADVICE}") from error
    is_quarter = (time == time.dt.floor("15min")) & ~time.duplicated()
    is_valid = is_quarter & power.between(0, _MAX_WATTS) & labels.isin((0, 1, MISSING))
    if not len(rows) or not is_valid.all():
        raise DataError(
            f"{AGGREGATED_NAME} must have rows with a new quarter-hour, a power from 0 to "
            f"{_MAX_WATTS:g} W, and an occupancy of 0, 1 or nothing. {_ADVICE}"
        )
    dates, day = np.unique(time.to_numpy().astype("datetime64[D]"), return_inverse=True)
    place = day, (4 * time.dt.hour + time.dt.minute // 15).to_numpy()
    shape = (len(dates), _QUARTERS)
    watt_seconds = np.zeros(shape)
    seconds: NDArray[np.int64] = np.zeros(shape, dtype=np.int64)
    occupancy = np.full(shape, MISSING, dtype=np.int64)
    watt_seconds[place] = power.to_numpy() * _QUARTER_SECONDS
    seconds[place] = _QUARTER_SECONDS
    occupancy[place] = labels.to_numpy()
    return QuarterHours(_AGGREGATED_HOUSEHOLD, dates, watt_seconds, seconds, occupancy)


def _check_file(path: Path, max_bytes: int) -> None:
    if not path.is_file():
        raise ValueError("not a regular file")
    if path.stat().st_size > max_bytes:
        raise ValueError(f"more than {max_bytes:,} bytes")


def _format_error(path: Path, error: Exception) -> DataError:
    return DataError(
        f"{path} is not a file of ECO as published: {error}. "
        "Unpack it again from the data set's archives (https://doi.org/10.5905/ethz-1007-35)."
    )
