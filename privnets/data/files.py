"""Published files of data sets: descriptions, location on disk, and verification."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import platformdirs

Task = Literal["regression", "binary", "multiclass"]
Kind = Literal["table", "series", "faces"]
FileState = Literal["present", "absent", "altered"]


class DataError(Exception):
    """Raised when a data set is unknown, absent, truncated or altered, or cannot be fetched.

    The message names the file, the directory searched, and how to obtain the file.
    """


class UserFormError(DataError):
    """Raised when a user's own data or code cannot be read, or do not fit their description.

    Attributes:
        field: Entry of the data set's description that is wrong, as `target`; with a dot, its place
            in the configuration, as `model.params`.
        given: The value, or what was found.
        expected: Values that are accepted.
        others: Further mistakes that were found together with this one.
    """

    def __init__(
        self, field: str, given: str, expected: str, others: Sequence[UserFormError] = ()
    ) -> None:
        """Joins the attributes to a message."""
        self.field, self.given, self.expected, self.others = field, given, expected, tuple(others)
        super().__init__(f"{field}: got {given}; expected {expected}")


def raise_together(errors: Sequence[UserFormError]) -> None:
    """Raises the first error with all others attached to it; does nothing without any."""
    if errors:
        first, *others = errors
        first.others += tuple(each for error in others for each in (error, *error.others))
        raise first


@dataclass(frozen=True, slots=True)
class DataFile:
    """One published file.

    Attributes:
        url: Address of the public source; None if no source serves it as one file.
        size: Bytes.
        sha256: Checksum of the bytes, in hexadecimal digits.
    """

    name: str
    url: str | None
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """Description of a data set, available without reading it.

    Attributes:
        name: Name in configurations and commands, and of its folder in the data directory.
        task: `binary` has targets 0 and 1, `multiclass` 0 to `classes` - 1.
        classes: Number of classes; 0 for regression.
        files: Empty if a package ships the data set, or if there are `lists`.
        kind: `load` reads a `table`; the module with the data set's name reads `series`, and
            `faces` are a `privnets.data.faces.FaceSource`.
        shape: Channels, height and width of an image, whose pixels the columns are in this order;
            empty for other tables.
        lists: Names of the lists in a folder of images that has no `files`.
        remarks: Sentences on the data for the author of a study.
        labels: Classes as the user's data name them, sorted; empty for numbers from 0.
    """

    name: str
    title: str
    records: int
    attributes: int
    task: Task
    classes: int
    source: str
    licence: str
    citation: str
    files: tuple[DataFile, ...] = ()
    kind: Kind = "table"
    shape: tuple[int, ...] = ()
    lists: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    labels: tuple[bool | int | float | str, ...] = ()

    @property
    def folder(self) -> Path:
        """Folder of the data set in the data directory."""
        return directory() / self.name

    @property
    def paths(self) -> list[Path]:
        """Paths of `files` in the data directory, in the same order."""
        return [self.folder / file.name for file in self.files]


def directory() -> Path:
    """Returns the data directory: `PRIVNETS_DATA`, else the platform's user data directory."""
    configured = os.environ.get("PRIVNETS_DATA")
    if configured:
        try:
            return Path(configured).expanduser().absolute()
        except RuntimeError as error:
            raise DataError(f"PRIVNETS_DATA is {configured!r}: {error}") from error
    return platformdirs.user_data_path("privnets", appauthor=False)


def fault_of(file: DataFile, path: Path) -> str | None:
    """Describes the fault of a file in words; None if it is the published one."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return f"{file.name} is not a file"
        if status.st_size != file.size:
            fault = "truncated" if status.st_size < file.size else "altered"
            return f"{file.name} is {fault} ({status.st_size:,} bytes, expected {file.size:,})"
        sha256 = digest(path)
    except FileNotFoundError:
        return f"{file.name} is absent"
    except OSError as error:
        return f"{file.name} cannot be read ({error.strerror})"
    if sha256 != file.sha256:
        return f"{file.name} is altered (sha256 {sha256}, expected {file.sha256})"
    return None


def unpack_gzip(content: bytes, name: str, max_bytes: int, advice: str = "") -> bytes:
    """Unpacks a gzip file in memory.

    Raises:
        DataError: If it is not complete, or unpacks to more than `max_bytes`.
    """
    try:
        with gzip.open(io.BytesIO(content)) as stream:
            body = stream.read(max_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name} is not a complete gzip file: {error}. {advice}") from error
    if len(body) > max_bytes:
        raise DataError(f"{name} unpacks to more than {max_bytes:,} bytes. {advice}")
    return body


def digest(path: Path) -> str:
    """Returns the sha256 of a file, cached until its size or a time stamp changes."""
    status = path.stat()
    return _digest(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@lru_cache(maxsize=256)
def _digest(path: Path, _size: int, _modified: int, _changed: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
