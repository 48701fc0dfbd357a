"""ECO: power of Swiss households with their occupancy, from either of two sources.

- Published files (doi 10.5905/ethz-1007-35), if any lie below `<PRIVNETS_DATA>/eco/published`:
  unpack `NN_sm_csv.zip` and `NN_occupancy_csv.zip` of any households there. All are used;
  `privnets.data.eco_files` describes the format.
- Otherwise `<PRIVNETS_DATA>/eco/eco_h2_15min.csv.gz`: household 2, from 1 June to 30 August 2012,
  by quarter-hours. 29 June ends at 21:45, and the 38 days after it have only the hours from 06:00
  to 21:45. 25 days are absent, and occupancy is missing on four.

Other aggregated files of the data set are not usable: they lack occupancy (households 1, 4 and 6)
or hold the power of single plugs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from privnets import cache
from privnets.data.catalog import DataSource, combined_fingerprint
from privnets.data.eco_files import (
    AGGREGATED_NAME,
    MISSING,
    QuarterHours,
    find_published,
    majority,
    parse_aggregated,
    read_published,
)
from privnets.data.files import DataError, DataFile, DatasetInfo, FileState, digest, fault_of

Resolution = Literal["hour", "quarter-hour"]
Source = Literal["published", "aggregated"]

STEPS: Final = {"hour": 24, "quarter-hour": 96}
"""Steps of a day, by resolution."""

_DAY_SECONDS = 86_400
_PARTS = ("dates", "watt_seconds", "seconds", "occupancy")


class EcoSource(DataSource):
    """Series of power with occupancy."""

    info = DatasetInfo(
        name="eco",
        title="ECO (Electricity Consumption and Occupancy), household 2 by quarter-hours",
        records=5_208,
        attributes=1,
        task="binary",
        classes=2,
        source="https://doi.org/10.5905/ethz-1007-35",
        licence="CC BY 4.0",
        citation=(
            "C. Beckel, W. Kleiminger, R. Cicchetti, T. Staake and S. Santini, BuildSys, 2014; "
            "W. Kleiminger, C. Beckel and S. Santini, UbiComp, 2015"
        ),
        files=(
            DataFile(
                AGGREGATED_NAME,
                None,
                119_573,
                "73e90bc994cd5a4c9012dc94d6d957242dc25d94253395ba52837e80ff53031f",
            ),
        ),
        kind="series",
    )

    def state(self) -> FileState:
        """Whether there are files to read, and whether they are intact."""
        return "present" if source() == "published" else super().state()

    def fingerprint(self) -> str:
        """Identifies the source and its exact contents: 32 hexadecimal digits.

        A published file is hashed again only if its size or a time stamp changes.
        """
        households = find_published(_published_folder())
        if households:
            # One checksum of all files, cached on disk: they have many gigabytes.
            named = tuple(
                (f"{number:02d}/{path.name}", path)
                for number, files in households.items()
                for path in (*files.meter.values(), *files.occupancy)
            )
            states = [(name, path, path.stat()) for name, path in named]
            stamps = [(n, str(p), s.st_size, s.st_mtime_ns, s.st_ctime_ns) for n, p, s in states]
            stamp = hashlib.sha256(repr(stamps).encode()).hexdigest()[:32]
            return combined_fingerprint(self.name, ("published", _cached_digest(named, stamp)))
        (file,), (path,) = self.info.files, self.info.paths
        if fault := fault_of(file, path):
            raise DataError(
                f"data set 'eco' cannot be used: {fault}. Looked in {path.parent}. Put {file.name} "
                "there, or unpack NN_sm_csv.zip and NN_occupancy_csv.zip of "
                f"https://doi.org/10.5905/ethz-1007-35 in {_published_folder()}, or set "
                "PRIVNETS_DATA to a directory that holds eco."
            )
        return combined_fingerprint(self.name, ("aggregated", file.sha256))


@dataclass(frozen=True, eq=False)
class Household:
    """One household in steps of an hour or a quarter-hour, on its local wall clock.

    Attributes:
        number: Number of the household, from 1.
        dates: Days in order, with gaps, datetime64[D], shape [d].
        power: Mean power of each step in W, 0 where it is not present, float64, shape [d, T].
        present: Whether at least half of the step was metered, bool, shape [d, T].
        occupancy: 1 at home, 0 absent, or `MISSING`, int64, shape [d, T].
    """

    number: int
    dates: NDArray[np.datetime64]
    power: NDArray[np.float64]
    present: NDArray[np.bool_]
    occupancy: NDArray[np.int64]

    @cached_property
    def days(self) -> NDArray[np.int64]:
        """Days since 1 January 1970, shape [d]."""
        return self.dates.astype("datetime64[D]").astype(np.int64)

    @cached_property
    def known_occupancy(self) -> NDArray[np.int64]:
        """Occupancy, `MISSING` also where power is absent, shape [d, T]."""
        return np.where(self.present, self.occupancy, MISSING)


@dataclass(frozen=True, eq=False)
class Recordings:
    """All households of ECO that are available. Arrays are shared and read-only."""

    households: tuple[Household, ...]
    source: Source
    fingerprint: str


def source() -> Source:
    """Returns the format of the files that `read` would use; reads none."""
    return "published" if find_published(_published_folder()) else "aggregated"


def read(resolution: Resolution = "quarter-hour") -> Recordings:
    """Returns all households at a resolution, read once per process."""
    return _read(EcoSource().fingerprint(), source(), resolution)


def resample(quarters: QuarterHours, resolution: Resolution) -> Household:
    """Converts quarter-hours to steps of some length.

    The power of a step is the mean over its metered seconds; it is present if at least half of the
    step was metered. An hour is occupied if at least half of its labelled quarter-hours are, and
    missing if fewer than half of them have a label.
    """
    steps = STEPS[resolution]
    shape = (len(quarters.dates), steps, quarters.seconds.shape[1] // steps)
    seconds = quarters.seconds.reshape(shape).sum(axis=2)
    watt_seconds = quarters.watt_seconds.reshape(shape).sum(axis=2)
    present = 2 * seconds >= _DAY_SECONDS // steps
    power = np.where(present, watt_seconds / np.maximum(seconds, 1), 0.0)
    labels = quarters.occupancy.reshape(shape)
    occupancy = majority((labels == 1).sum(axis=2), (labels != MISSING).sum(axis=2), shape[2])
    return Household(quarters.number, quarters.dates, power, present, occupancy)


def _published_folder() -> Path:
    return EcoSource.info.folder / "published"


@lru_cache(maxsize=4)
def _read(identity: str, origin: Source, resolution: Resolution) -> Recordings:
    households = tuple(resample(quarters, resolution) for quarters in _quarters(identity, origin))
    for household in households:
        for array in vars(household).values():
            if isinstance(array, np.ndarray):
                array.setflags(write=False)
    return Recordings(households, origin, identity)


@lru_cache(maxsize=2)
def _quarters(identity: str, origin: Source) -> tuple[QuarterHours, ...]:
    if origin == "aggregated":
        return (parse_aggregated(EcoSource.info.paths[0].read_bytes()),)
    path = cache.directory() / f"eco-{identity}.prepared"
    arrays = cache.read(path)
    if arrays is not None:
        numbers = sorted({int(key.partition("/")[0]) for key in arrays})
        return tuple(QuarterHours(n, *(arrays[f"{n}/{part}"] for part in _PARTS)) for n in numbers)
    households = tuple(
        read_published(*item) for item in find_published(_published_folder()).items()
    )
    arrays = {f"{h.number}/{part}": getattr(h, part) for h in households for part in _PARTS}
    cache.write(path, arrays)
    return households


@lru_cache(maxsize=4)
def _cached_digest(named: tuple[tuple[str, Path], ...], stamp: str) -> str:
    path = cache.directory() / f"eco-{stamp}.digest"
    arrays = cache.read(path)
    if arrays is not None:
        return arrays["digest"].tobytes().hex()
    lines = sorted(f"{name} {digest(path)}" for name, path in named)
    combined = hashlib.sha256("\n".join(lines).encode()).digest()
    cache.write(path, {"digest": np.frombuffer(combined, dtype=np.uint8)})
    return combined.hex()
