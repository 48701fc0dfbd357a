"""ECO: power of Swiss households with their occupancy, from either of two sources.

- As published (doi 10.5905/ethz-1007-35), when there are such files anywhere below
  `<PRIVNETS_DATA>/eco/published`: unpack `NN_sm_csv.zip` and `NN_occupancy_csv.zip` of any
  households there; `privnets.data.eco_published` tells the format. All that are there are used.
- Else `<PRIVNETS_DATA>/eco/eco_h2_15min.csv.gz`: household 2 alone, from 1 June to 30 August 2012,
  by quarter-hours. 29 June ends at 21:45; of the 38 days after it there are the hours from 06:00 to
  21:45 only; 25 days are absent, and occupancy is missing on four.

Other aggregated files of the set lack occupancy (households 1, 4 and 6) or are not the power of
the whole house (its plugs), so there is nothing to hide or to release in them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privnets.data import cache, eco_aggregated, eco_published
from privnets.data.catalog import DataError, info
from privnets.data.files import State, digest, directory, fault_of, state_of
from privnets.data.household import MISSING, STEPS, Household, Quarters, Resolution, at

__all__ = ["MISSING", "STEPS", "Household", "Recordings", "Resolution", "fingerprint", "read"]

_VERSION = 1
"""Raised when reading comes to mean something else; part of fingerprints."""

Source = Literal["published", "aggregated"]


@dataclass(frozen=True, eq=False)
class Recordings:
    """What there is of ECO. Arrays are shared and read-only.

    Attributes:
        households: By number.
        source: Which files they are from.
        fingerprint: Of the source, the contents of its files and the way they are read.
    """

    households: tuple[Household, ...]
    source: Source
    fingerprint: str


def source() -> Source:
    """Which files would be read; reads none."""
    return "published" if eco_published.find(_published()) else "aggregated"


def status() -> State:
    """Whether there is anything to read, and whether it is intact."""
    if source() == "published":
        return "present"
    return state_of(info("eco"), directory())


def fingerprint() -> str:
    """Identify the source and its exact contents: 32 hexadecimal digits, alike everywhere.

    Published files are hashed again only when a size or a time stamp changes.

    Raises:
        DataError: If there are no files, or the aggregated one is altered.
    """
    households = eco_published.find(_published())
    if households:
        return _identity("published", _contents(households))
    (file,) = info("eco").files
    if fault := fault_of(file, directory() / "eco" / file.name):
        raise DataError(
            f"data set 'eco' cannot be used: {fault}. Looked in {directory() / 'eco'}. Put "
            f"{file.name} there, or unpack NN_sm_csv.zip and NN_occupancy_csv.zip of "
            f"https://doi.org/10.5905/ethz-1007-35 in {_published()}, or set PRIVNETS_DATA to a "
            "directory that holds eco."
        )
    return _identity("aggregated", file.sha256)


def read(resolution: Resolution = "quarter-hour") -> Recordings:
    """All households in steps of some length, read once per process.

    Raises:
        DataError: If there are no files, or they are not what they should be.
    """
    return _recordings(fingerprint(), source(), resolution)


def _published() -> Path:
    return directory() / "eco" / "published"


@lru_cache(maxsize=4)
def _recordings(identity: str, origin: Source, resolution: Resolution) -> Recordings:
    households = tuple(at(quarters, resolution) for quarters in _quarters(identity, origin))
    for household in households:
        for array in vars(household).values():
            if isinstance(array, np.ndarray):
                array.setflags(write=False)
    return Recordings(households, origin, identity)


@lru_cache(maxsize=2)
def _quarters(identity: str, origin: Source) -> tuple[Quarters, ...]:
    if origin == "aggregated":
        return (eco_aggregated.parse((directory() / "eco" / eco_aggregated.NAME).read_bytes()),)
    path = cache.directory() / f"eco-{identity}.prepared"
    kept = cache.read(path)
    if kept is not None:
        return _unpacked(kept)
    found = tuple(eco_published.read(*item) for item in eco_published.find(_published()).items())
    cache.write(path, _packed(found))
    return found


_PARTS = ("dates", "watt_seconds", "seconds", "occupancy")


def _packed(households: tuple[Quarters, ...]) -> dict[str, NDArray[Any]]:
    return {f"{h.number}/{part}": getattr(h, part) for h in households for part in _PARTS}


def _unpacked(arrays: Mapping[str, NDArray[Any]]) -> tuple[Quarters, ...]:
    numbers = sorted({int(key.partition("/")[0]) for key in arrays})
    return tuple(Quarters(n, *(arrays[f"{n}/{part}"] for part in _PARTS)) for n in numbers)


def _identity(origin: Source, content: str) -> str:
    identity = "\n".join(("eco", str(_VERSION), origin, content))
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def _contents(households: Mapping[int, eco_published.Files]) -> str:
    """One digest of all published files, kept on disk as they are many gigabytes."""
    named = tuple(
        (f"{number:02d}/{path.name}", path)
        for number, files in households.items()
        for path in (*files.meter.values(), *files.occupancy)
    )
    found = [(name, path, path.stat()) for name, path in named]
    stamps = [(n, str(p), s.st_size, s.st_mtime_ns, s.st_ctime_ns) for n, p, s in found]
    return _digest(named, hashlib.sha256(repr(stamps).encode()).hexdigest()[:32])


@lru_cache(maxsize=4)
def _digest(named: tuple[tuple[str, Path], ...], stamp: str) -> str:
    place = cache.directory() / f"eco-{stamp}.digest"
    kept = cache.read(place)
    if kept is not None:
        return kept["digest"].tobytes().hex()
    lines = sorted(f"{name} {digest(path)}" for name, path in named)
    found = hashlib.sha256("\n".join(lines).encode()).digest()
    cache.write(place, {"digest": np.frombuffer(found, dtype=np.uint8)})
    return found.hex()
