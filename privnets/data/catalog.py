"""Catalog of data sets: a registry of sources, and the arrays that they read.

A data set is one module with a subclass of `DataSource`, and one line in `DATASETS` (or, in
another package, one entry point of the group `privnets.datasets`).
"""

from __future__ import annotations

import hashlib
from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privnets.data.files import DataError, DatasetInfo, FileState, Kind, fault_of
from privnets.registry import ExtensionError, Registry

_VERSION = 1
"""Raised when the meaning of loaded or prepared data changes; part of fingerprints."""

Target: TypeAlias = NDArray[np.float64] | NDArray[np.int64]
Table: TypeAlias = tuple[NDArray[np.float64], Target, tuple[str, ...]]
"""Attributes [N, d], targets [N], and the names of the d columns."""


class DataSource(ABC):
    """Base class of data sets: a description, and a reader of the published files."""

    info: ClassVar[DatasetInfo]

    @property
    def name(self) -> str:
        """Name of the data set."""
        return self.info.name

    def state(self) -> FileState:
        """Returns `altered` if a file is not the published one, `absent` if one is missing."""
        exists = [path.exists() for path in self.info.paths]
        files = zip(self.info.files, self.info.paths, exists, strict=True)
        if any(found and fault_of(file, path) for file, path, found in files):
            return "altered"
        return "present" if all(exists) else "absent"

    def fingerprint(self) -> str:
        """Identifies the exact data and the way it is read: 32 hexadecimal digits.

        Raises:
            DataError: If any file is absent, unreadable, truncated or altered; lists all of them.
        """
        files = zip(self.info.files, self.info.paths, strict=True)
        if faults := [fault for file, path in files if (fault := fault_of(file, path))]:
            paths = " and ".join(f"{self.name}/{file.name}" for file in self.info.files)
            raise DataError(
                f"data set {self.name!r} cannot be used: {'; '.join(faults)}. "
                f"Looked in {self.info.folder}. Get it with `sweeps data fetch {self.name}`, "
                f"or set PRIVNETS_DATA to a directory that holds {paths}."
            )
        return combined_fingerprint(self.name, tuple(file.sha256 for file in self.info.files))

    def read(self, paths: Sequence[Path]) -> Table:
        """Reads a table; required of every data set of this kind.

        Args:
            paths: Verified files, in the order of `info.files`.

        Raises:
            DataError: If a file cannot be parsed.
        """
        raise NotImplementedError(f"data set {self.name!r} must define `read`.")


DATASETS: Final[Registry[DataSource]] = Registry(
    "data set",
    "privnets.datasets",
    "privnets.data.catalog:DataSource",
    {
        "adult": "privnets.data.adult:AdultSource",
        "location30": "privnets.data.location30:Location30Source",
        "digits": "privnets.data.bundled:DigitsSource",
        "diabetes": "privnets.data.bundled:DiabetesSource",
        "mnist": "privnets.data.mnist:MnistSource",
        "eco": "privnets.data.eco:EcoSource",
    },
)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A table as published; categories are integers.

    The arrays are shared and read-only: copy them (as `torch.tensor` does) before changing them.

    Attributes:
        x: Attributes, float64, shape [N, d].
        y: Targets, shape [N]: float64 0 or 1 (binary), float64 in published units (regression),
            or int64 from 0 to `classes` - 1 (multiclass).
    """

    name: str
    x: NDArray[np.float64]
    y: Target
    feature_names: tuple[str, ...]
    classes: int
    fingerprint: str


def names(kind: Kind | None = None) -> tuple[str, ...]:
    """Returns the names of all data sets, or of those of one kind."""
    return tuple(name for name in DATASETS.names() if kind in (None, info(name).kind))


def info(name: str) -> DatasetInfo:
    """Returns the description of a data set; reads no file."""
    return _source(name).info


def status(name: str) -> FileState:
    """Returns whether a data set is `present`, `absent` or `altered` in the data directory."""
    return _source(name).state()


def fingerprint(name: str) -> str:
    """Identifies the exact data and the way it is read: 32 hexadecimal digits.

    Repeated calls are cheap: a file is hashed again only if its size or a time stamp changes.
    """
    return _source(name).fingerprint()


def load(name: str) -> Dataset:
    """Returns a table as published, parsed once per process.

    Raises:
        DataError: If no table has this name, or a file is absent, truncated or altered.
    """
    kind = info(name).kind
    if kind != "table":
        raise DataError(
            f"data set {name!r} is not a table but {kind}: use privnets.data.{name}.read()."
        )
    return _load(name, fingerprint(name))


@lru_cache(maxsize=64)
def combined_fingerprint(name: str, digests: tuple[str, ...]) -> str:
    """Combines a name, and the source or checksums of its files, to a fingerprint."""
    identity = "\n".join((name, str(_VERSION), *digests))
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


@lru_cache(maxsize=4)
def _load(name: str, identity: str) -> Dataset:
    source = _source(name)
    x, y, feature_names = source.read(source.info.paths)
    x.setflags(write=False)
    y.setflags(write=False)
    return Dataset(name, x, y, feature_names, source.info.classes, identity)


def _source(name: str) -> DataSource:
    try:
        return DATASETS.get(name)
    except (ValueError, ExtensionError) as error:
        raise DataError(str(error)) from error
