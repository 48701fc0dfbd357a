"""Bringing published files to their places, whole or not at all, and once however many ask."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from privnets.data.catalog import DataFile, DatasetInfo
from privnets.data.errors import DataError
from privnets.data.files import fault_of

Retrieve = Callable[[DataFile, Path], None]
"""Puts a published file, and nothing else, at a path; DataError where it cannot."""


def bring(dataset: DatasetInfo, root: Path, retrieve: Retrieve) -> list[Path]:
    """Bring what a data set lacks into `root/<name>`; files that are there and intact stay.

    All missing files come aside and only then move to their places, so an interruption leaves
    nothing half-written. Whoever asks meanwhile, in any process that sees the directory, waits and
    finds them.

    Args:
        dataset: The data set.
        root: The data directory.
        retrieve: Gets a file.

    Returns:
        The data set's files.

    Raises:
        DataError: If the directory cannot be written, or from `retrieve`. Nothing has then been
            added or changed.
    """
    if _missing(dataset, root):
        try:
            root.mkdir(parents=True, exist_ok=True)
            _bring_alone(dataset, root, retrieve)
        except OSError as error:
            raise DataError(
                f"data set {dataset.name!r} cannot be stored in {root / dataset.name}: {error}. "
                "Set PRIVNETS_DATA to a directory that can be written."
            ) from error
    return [root / dataset.name / file.name for file in dataset.files]


def _bring_alone(dataset: DatasetInfo, root: Path, retrieve: Retrieve) -> None:
    from filelock import FileLock

    lock = root / f".fetch-{dataset.name}.lock"
    with FileLock(lock):
        try:
            if missing := _missing(dataset, root):  # still, after waiting
                _bring(missing, root / dataset.name, retrieve)
        finally:
            # Who waits for it takes a new one; two at work would only do the same twice.
            lock.unlink(missing_ok=True)


def _bring(missing: list[DataFile], folder: Path, retrieve: Retrieve) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as aside:
        for file in missing:
            retrieve(file, Path(aside, file.name))
        folder.mkdir(exist_ok=True)
        for file in missing:
            os.replace(Path(aside, file.name), folder / file.name)


def _missing(dataset: DatasetInfo, root: Path) -> list[DataFile]:
    folder = root / dataset.name
    return [file for file in dataset.files if fault_of(file, folder / file.name)]
