"""Published files on disk: where they lie, and whether they are the published ones."""

from __future__ import annotations

import hashlib
import os
import stat
from functools import lru_cache
from pathlib import Path
from typing import Literal

import platformdirs

from privnets.data.catalog import DataError, DataFile, DatasetInfo

State = Literal["present", "absent", "altered"]


def directory() -> Path:
    """The data directory: `PRIVNETS_DATA`, else the platform's user data directory.

    Raises:
        DataError: If it begins with `~` and a user that there is not.
    """
    chosen = os.environ.get("PRIVNETS_DATA")
    if chosen:
        try:
            return Path(chosen).expanduser().absolute()
        except RuntimeError as error:
            raise DataError(f"PRIVNETS_DATA is {chosen!r}: {error}") from error
    return platformdirs.user_data_path("privnets", appauthor=False)


def verify(dataset: DatasetInfo, root: Path) -> None:
    """Check that a data set's files are the published ones.

    A file's digest is computed once and remembered until its size or a time stamp changes.

    Args:
        dataset: Its files are looked for in `root/<name>`.
        root: The data directory.

    Raises:
        DataError: If any file is absent, unreadable, truncated or altered; tells of all of them.
    """
    folder = root / dataset.name
    faults = [fault for file in dataset.files if (fault := fault_of(file, folder / file.name))]
    if faults:
        wanted = " and ".join(f"{dataset.name}/{file.name}" for file in dataset.files)
        raise DataError(
            f"data set {dataset.name!r} cannot be used: {'; '.join(faults)}. "
            f"Looked in {folder}. Get it with `sweeps data fetch {dataset.name}`, "
            f"or set PRIVNETS_DATA to a directory that holds {wanted}."
        )


def state_of(dataset: DatasetInfo, root: Path) -> State:
    """Whether a data set's files lie in `root/<name>`, and whether they are the published ones.

    Returns:
        `altered` when a file that is there is not the published one, else `absent` when one is
        missing, else `present`.
    """
    paths = {file: root / dataset.name / file.name for file in dataset.files}
    there = {file: path for file, path in paths.items() if path.exists()}
    if any(fault_of(file, path) for file, path in there.items()):
        return "altered"
    return "present" if len(there) == len(paths) else "absent"


def fault_of(file: DataFile, path: Path) -> str | None:
    """What is wrong with a file, in words; None when it is the published one."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            return f"{file.name} is not a file"
        if found.st_size != file.size:
            how = "truncated" if found.st_size < file.size else "altered"
            return f"{file.name} is {how} ({found.st_size:,} bytes, expected {file.size:,})"
        sha256 = digest(path)
    except FileNotFoundError:
        return f"{file.name} is absent"
    except OSError as error:
        return f"{file.name} cannot be read ({error.strerror})"
    if sha256 != file.sha256:
        return f"{file.name} is altered (sha256 {sha256}, expected {file.sha256})"
    return None


def digest(path: Path) -> str:
    """The sha256 of a file's bytes, remembered until its size or a time stamp changes.

    Raises:
        OSError: If it cannot be read.
    """
    found = path.stat()
    return _digest(path, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@lru_cache(maxsize=256)
def _digest(path: Path, _size: int, _modified: int, _changed: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
