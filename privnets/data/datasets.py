"""Data sets as arrays, exactly as published."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from privnets.data import adult, bundled, eco, location30
from privnets.data.catalog import DataError, DatasetInfo, info
from privnets.data.files import State, directory, state_of, verify

_VERSION = 1
"""Raised when loading or preparation comes to mean something else; part of fingerprints."""

Target: TypeAlias = NDArray[np.float64] | NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set as published; categories are integers.

    The arrays are shared and read-only: copy them (as `torch.tensor` does) before changing them.

    Attributes:
        name: Its name in the catalog.
        x: Attributes, float64, shape [N, d].
        y: Targets, shape [N]: float64 0 or 1 (binary), float64 in published units (regression),
            or int64 from 0 to `classes` - 1 (multiclass).
        feature_names: One per column of `x`.
        classes: Number of classes; 0 for regression.
        fingerprint: Of the data and of the way it is read.
    """

    name: str
    x: NDArray[np.float64]
    y: Target
    feature_names: tuple[str, ...]
    classes: int
    fingerprint: str


def status(name: str) -> State:
    """Whether a data set is `present`, `absent` or `altered` in the data directory.

    Raises:
        DataError: If there is none of that name, or scikit-learn lacks one that it ships.
    """
    dataset = info(name)
    if name == "eco":
        return eco.status()
    if not dataset.files:
        bundled.digests(name)
        return "present"
    return state_of(dataset, directory())


def fingerprint(name: str) -> str:
    """Identify the exact data and the way it is read: 32 hexadecimal digits, alike everywhere.

    Cheap when asked again: files are hashed anew only when their size or time stamps change.

    Raises:
        DataError: If there is none of that name, or a file is absent, truncated or altered.
    """
    dataset = info(name)
    if name == "eco":
        return eco.fingerprint()
    if not dataset.files:
        return _combined(name, tuple(bundled.digests(name)))
    verify(dataset, directory())
    return _combined(name, tuple(file.sha256 for file in dataset.files))


def load(name: str) -> Dataset:
    """A table as published, parsed once per process.

    Raises:
        DataError: If there is no table of that name, or a file is absent, truncated or altered.
    """
    dataset = info(name)
    if dataset.kind != "table":
        raise DataError(
            f"data set {name!r} is no table but {dataset.kind}: use privnets.data.{name}.read()."
        )
    return _parsed(dataset, fingerprint(name))


@lru_cache(maxsize=64)
def _combined(name: str, digests: tuple[str, ...]) -> str:
    identity = "\n".join((name, str(_VERSION), *digests))
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


@lru_cache(maxsize=4)
def _parsed(dataset: DatasetInfo, identity: str) -> Dataset:
    x, y, feature_names = _arrays(dataset)
    x.setflags(write=False)
    y.setflags(write=False)
    return Dataset(dataset.name, x, y, feature_names, dataset.classes, identity)


def _arrays(dataset: DatasetInfo) -> tuple[NDArray[np.float64], Target, tuple[str, ...]]:
    if not dataset.files:
        return bundled.read(dataset.name)
    paths = [directory() / dataset.name / file.name for file in dataset.files]
    if dataset.name == "adult":
        train, test = (path.read_text(encoding="ascii") for path in paths)
        return *adult.parse(train, test), adult.ATTRIBUTES
    x, y = location30.parse(paths[0].read_bytes())
    return x, y, tuple(f"place-{column}" for column in range(x.shape[1]))
