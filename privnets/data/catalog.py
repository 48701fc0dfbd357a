"""Catalog of data sets: a registry of sources, and the arrays that they read.

A data set is one module with a subclass of `DataSource`, and one line in `DATASETS` (or, in
another package, one entry point of the group `privnets.datasets`).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privnets.config import UserForm
from privnets.data.files import (
    DataError,
    DatasetInfo,
    FileState,
    Kind,
    Task,
    UserFormError,
    fault_of,
)
from privnets.registry import ExtensionError, Registry

CLASS: Final = "class"
"""Name by which records are grouped by their target."""

_VERSION = 1
"""Raised when the meaning of loaded or prepared data changes; part of fingerprints."""

Target: TypeAlias = NDArray[np.float64] | NDArray[np.int64]
Attributes: TypeAlias = NDArray[np.float64] | NDArray[np.float32] | NDArray[np.uint8]
"""Attributes [N, d]; only images are not float64."""
Table: TypeAlias = tuple[Attributes, Target, tuple[str, ...]]
"""Attributes [N, d], targets [N], and the names of the d columns."""


class DataSource(ABC):
    """Base class of data sets: a description, and a reader of the published files."""

    info: DatasetInfo

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

    def column(self, name: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """Reads the values of a column that groups records, coded from 0, and their names.

        Raises:
            UserFormError: If the data set has no such column.
        """
        raise UserFormError("groups", repr(name), f"class with {self.info.title}")

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
        "cifar10": "privnets.data.cifar10:Cifar10Source",
        "cifar10_jpeg": "privnets.data.cifar10:Cifar10JpegSource",
        "eco": "privnets.data.eco:EcoSource",
        "lfw": "privnets.data.faces:LfwSource",
        "celeba": "privnets.data.faces:CelebaSource",
    },
)


class DataReference(UserForm):
    """The user's own data set, which a study describes where it could name one.

    Attributes:
        scale: Whether attributes get mean 0 and standard deviation 1.
        reader: Location of its `DataSource`, as `module:class`, which loads when the data set is
            opened: it is called with the description, the file or folder, and a digest of it.
    """

    reader: ClassVar[str]

    scale: Literal["standard", "none"]

    @abstractmethod
    def source(self) -> DataSource:
        """Reads the data set, once per process and content.

        Raises:
            DataError: If it cannot be read, or does not fit its description.
        """


@dataclass(frozen=True, eq=False)
class Dataset:
    """A table as published; categories are integers.

    The arrays are shared and read-only: copy them (as `torch.tensor` does) before changing them.

    Attributes:
        x: Attributes, shape [N, d].
        y: Targets, shape [N]: float64 0 or 1 (binary), float64 in published units (regression),
            or int64 from 0 to `classes` - 1 (multiclass).
    """

    name: str
    x: Attributes
    y: Target
    feature_names: tuple[str, ...]
    task: Task
    classes: int
    fingerprint: str


def names(kind: Kind | None = None) -> tuple[str, ...]:
    """Returns the names of all data sets, or of those of one kind."""
    return tuple(name for name in DATASETS.names() if kind in (None, info(name).kind))


def info(name: str | DataReference) -> DatasetInfo:
    """Returns the description of a data set; reads only files of users."""
    return _source(name).info


def status(name: str) -> FileState:
    """Returns whether a data set is `present`, `absent` or `altered` in the data directory."""
    return _source(name).state()


def fingerprint(name: str | DataReference) -> str:
    """Identifies the exact data and the way it is read: 32 hexadecimal digits.

    Repeated calls are cheap: a file is hashed again only if its size or a time stamp changes.
    """
    return _source(name).fingerprint()


def load(name: str | DataReference) -> Dataset:
    """Returns a table as published, parsed once per process.

    Raises:
        DataError: If no table has this name, or a file is absent, truncated or altered.
    """
    kind = info(name).kind
    if kind != "table":
        raise DataError(
            f"data set {name!r} must be a table, as {', '.join(names('table'))} are; got {kind}."
        )
    return _load(name, fingerprint(name))


def groups(name: str | DataReference, column: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Returns the group of each record, from 0, and the names of all groups.

    Args:
        column: `class` for the target's classes, or a column of the user's table.

    Raises:
        UserFormError: If records cannot be grouped by the column.
    """
    if column == CLASS:
        return load(name).y.astype(np.int64), group_names(name, column)
    return _source(name).column(column)


def group_names(name: str | DataReference, column: str) -> tuple[str, ...]:
    """Returns the names of all groups; see `groups`."""
    if column != CLASS:
        return _source(name).column(column)[1]
    about = info(name)
    if not about.classes:
        raise UserFormError("groups", column, f"a column: the target of {about.name} has no class")
    return tuple(map(str, about.labels or range(about.classes)))


@lru_cache(maxsize=64)
def combined_fingerprint(name: str, digests: tuple[str, ...]) -> str:
    """Combines a name, and the source or checksums of its files, to a fingerprint."""
    identity = "\n".join((name, str(_VERSION), *digests))
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


@lru_cache(maxsize=4)
def _load(name: str | DataReference, identity: str) -> Dataset:
    source = _source(name)
    x, y, feature_names = source.read(source.info.paths)
    x.setflags(write=False)
    y.setflags(write=False)
    about = source.info
    return Dataset(about.name, x, y, feature_names, about.task, about.classes, identity)


def _source(name: str | DataReference) -> DataSource:
    if isinstance(name, DataReference):
        return name.source()
    try:
        return DATASETS.get(name)
    except (ValueError, ExtensionError) as error:
        raise DataError(str(error)) from error
