"""Copying published files from a directory or store that this machine can read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from privnets.data.arrival import bring
from privnets.data.catalog import DataFile, DatasetInfo, info
from privnets.data.errors import DataError
from privnets.data.files import directory, fault_of

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_CHUNK_BYTES = 2**20


def copy(name: str, source: str) -> list[Path]:
    """Copy a data set into the data directory; files that are there and intact stay.

    Args:
        name: The data set.
        source: A directory, or a URI that pyarrow can read (`s3://`, `gs://`, `file://`, ...),
            which holds the files, or a folder of the data set's name with them.

    Returns:
        The data set's files; none when it comes with scikit-learn.

    Raises:
        DataError: If there is no data set of that name, the data directory cannot be written, or
            the source lacks a file or has another than the published one. Nothing has then been
            added or changed.
    """
    return copy_into(info(name), directory(), source)


def copy_into(dataset: DatasetInfo, root: Path, source: str) -> list[Path]:
    """Copy a data set into `root/<name>`.

    Raises:
        DataError: As `copy` does.
    """
    filesystem, base = _opened(source)

    def retrieve(file: DataFile, aside: Path) -> None:
        _retrieve(file, filesystem, _place(filesystem, base, dataset.name, file.name), aside)

    return bring(dataset, root, retrieve)


def _opened(source: str) -> tuple[FileSystem, str]:
    from pyarrow import fs

    if "://" not in source:
        return fs.LocalFileSystem(), str(Path(source).expanduser().absolute())
    try:
        filesystem, base = fs.FileSystem.from_uri(source)
    except (OSError, ValueError) as error:
        # Neither the URI nor what is said of it: both may hold credentials.
        raise DataError(
            "the source must be a directory or a URI that pyarrow can open, such as s3://BUCKET/"
            f"PREFIX or file:///PATH; got a {source.partition(':')[0]}: URI that it cannot."
        ) from (None if "@" in source or "?" in source else error)
    return filesystem, base.rstrip("/")


def _place(filesystem: FileSystem, base: str, folder: str, name: str) -> str:
    """Where the file is: in the data set's own folder there, or right in the source."""
    from pyarrow import fs

    own = f"{base}/{folder}/{name}"
    try:
        known = filesystem.get_file_info(own).type == fs.FileType.File
    except OSError as error:
        raise DataError(f"{base} cannot be read: {error}. Nothing was changed.") from error
    return own if known else f"{base}/{name}"


def _retrieve(file: DataFile, filesystem: FileSystem, place: str, aside: Path) -> None:
    try:
        with filesystem.open_input_stream(place) as source, aside.open("wb") as sink:
            # No more than shows that it is another file, however large that is.
            left = file.size + 1
            while left and (chunk := source.read(min(left, _CHUNK_BYTES))):
                left -= sink.write(chunk)
    except OSError as error:
        raise DataError(
            f"{file.name} cannot be copied from {place.rpartition('/')[0]}: {error}. Nothing was "
            "changed. Every node must be able to read the source."
        ) from error
    if not left:
        fault = f"{file.name} is altered ({file.size + 1:,} bytes or more, expected {file.size:,})"
    else:
        fault = fault_of(file, aside) or ""
    if fault:
        raise DataError(f"{place} is not the published file: {fault}. Nothing was changed.")
