"""Fetching published files: download from the public source, or copy from a directory or store.

All missing files are written to a temporary directory first and then renamed, so an interruption
leaves no partial file. A lock lets concurrent callers, in any process, wait for the first one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from privnets.data.catalog import info
from privnets.data.files import DataError, DataFile, DatasetInfo, directory, fault_of

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

Report = Callable[[str, int, int], None]
"""Receives a file's name, the bytes received so far (approximate), and the file's size."""

_Retrieve = Callable[[DataFile, Path], None]

_DOWNLOAD_CHUNK_BYTES = 2**16
_COPY_CHUNK_BYTES = 2**20
_TIMEOUT_SECONDS = 30
_UNCHANGED = "Nothing was changed."


def fetch(name: str, report: Report | None = None) -> list[Path]:
    """Downloads a data set into the data directory; intact files are kept.

    `report` is called as bytes arrive.

    Returns:
        Paths of the data set's files; empty if scikit-learn ships it.

    Raises:
        DataError: If the name is unknown, the directory is not writable, the source is
            unreachable, or a downloaded file is not the published one. No file is then changed.
    """
    return download(info(name), directory(), report)


def copy(name: str, source: str) -> list[Path]:
    """Copies a data set into the data directory; intact files are kept.

    Args:
        source: Directory, or URI that pyarrow can read (`s3://`, `gs://`, `file://`, ...). It
            holds the files, or a folder with the data set's name that holds them.

    Returns:
        Paths of the data set's files; empty if scikit-learn ships it.

    Raises:
        DataError: If the name is unknown, the data directory is not writable, or the source lacks
            a file or holds another one than published. No file is then changed.
    """
    return copy_into(info(name), directory(), source)


def download(dataset: DatasetInfo, root: Path, report: Report | None = None) -> list[Path]:
    """Downloads a data set into `root/<name>`; see `fetch`."""

    def retrieve(file: DataFile, target: Path) -> None:
        _download_file(file, root / dataset.name / file.name, target, report)

    return _fetch_missing(dataset, root, retrieve)


def copy_into(dataset: DatasetInfo, root: Path, source: str) -> list[Path]:
    """Copies a data set into `root/<name>`; see `copy`."""
    filesystem, base = _open_source(source)

    def retrieve(file: DataFile, target: Path) -> None:
        path = _source_path(filesystem, base, dataset.name, file.name)
        _copy_file(file, filesystem, path, target)

    return _fetch_missing(dataset, root, retrieve)


def _fetch_missing(dataset: DatasetInfo, root: Path, retrieve: _Retrieve) -> list[Path]:
    if _missing_files(dataset, root):
        try:
            root.mkdir(parents=True, exist_ok=True)
            _fetch_locked(dataset, root, retrieve)
        except OSError as error:
            raise DataError(
                f"cannot store data set {dataset.name!r} in {root / dataset.name}: {error}. "
                "Set PRIVNETS_DATA to a writable directory."
            ) from error
    return [root / dataset.name / file.name for file in dataset.files]


def _fetch_locked(dataset: DatasetInfo, root: Path, retrieve: _Retrieve) -> None:
    from filelock import FileLock

    lock = root / f".fetch-{dataset.name}.lock"
    with FileLock(lock):
        try:
            # Another process may have fetched them while this one waited for the lock.
            if missing := _missing_files(dataset, root):
                _fetch_files(missing, root / dataset.name, retrieve)
        finally:
            # A waiting process then locks a new file; at worst two processes fetch the same data.
            lock.unlink(missing_ok=True)


def _fetch_files(files: list[DataFile], folder: Path, retrieve: _Retrieve) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as temporary:
        for file in files:
            retrieve(file, Path(temporary, file.name))
        folder.mkdir(exist_ok=True)
        for file in files:
            os.replace(Path(temporary, file.name), folder / file.name)


def _missing_files(dataset: DatasetInfo, root: Path) -> list[DataFile]:
    folder = root / dataset.name
    return [file for file in dataset.files if fault_of(file, folder / file.name)]


def _download_file(file: DataFile, path: Path, target: Path, report: Report | None) -> None:
    import pooch

    if file.url is None:
        raise DataError(
            f"cannot download {file.name}: no public source serves it as one file. Nothing was "
            f"changed. Copy it to {path}. `sweeps data list` gives the source, and the "
            f"documentation of privnets.data.{path.parent.name} the other formats it reads."
        )
    try:
        with ExitStack() as responses:
            downloader = pooch.HTTPDownloader(
                progressbar=_DownloadProgress(file, report),
                chunk_size=_DOWNLOAD_CHUNK_BYTES,
                timeout=_TIMEOUT_SECONDS,
                # pooch does not close the response of a failed download.
                hooks={"response": lambda response, **_: responses.enter_context(response)},
            )
            # Checked below, since pooch's message does not tell truncated from altered files.
            downloader(file.url, str(target), None)
    except OSError as error:  # includes the exceptions of requests
        raise DataError(
            f"cannot download {file.name} from {file.url}: {error}. Nothing was changed. "
            f"Without a network, copy the published file to {path}."
        ) from error
    if fault := fault_of(file, target):
        raise DataError(f"{file.url} does not serve the published file: {fault}. {_UNCHANGED}")


class _DownloadProgress:
    """Progress bar of pooch that calls a report and stops downloads that are too long."""

    def __init__(self, file: DataFile, report: Report | None) -> None:
        self.total = 0  # set by pooch
        self._file = file
        self._report = report
        self._received = 0

    def update(self, count: int) -> None:
        if self._received + count > self._file.size + _DOWNLOAD_CHUNK_BYTES:
            raise DataError(
                f"{self._file.url} does not serve the published file: more than "
                f"{self._file.size:,} bytes. {_UNCHANGED}"
            )
        self._received += count
        if self._report is not None:
            size = self._file.size
            self._report(self._file.name, min(self._received, size), size)

    def reset(self) -> None:
        """Starts again from 0, as pooch does before its last update."""
        self._received = 0

    def close(self) -> None:
        """Does nothing; required by pooch."""


def _open_source(source: str) -> tuple[FileSystem, str]:
    from pyarrow import fs

    if "://" not in source:
        return fs.LocalFileSystem(), str(Path(source).expanduser().absolute())
    try:
        filesystem, base = fs.FileSystem.from_uri(source)
    except (OSError, ValueError) as error:
        # The URI and pyarrow's message may contain credentials, so neither is shown.
        raise DataError(
            "source must be a directory or a URI that pyarrow can open, such as s3://BUCKET/PREFIX "
            f"or file:///PATH; got an invalid {source.partition(':')[0]}: URI."
        ) from (None if "@" in source or "?" in source else error)
    return filesystem, base.rstrip("/")


def _source_path(filesystem: FileSystem, base: str, folder: str, name: str) -> str:
    """Path of a file in the source: in the data set's folder if there is one, else at the top."""
    from pyarrow import fs

    path = f"{base}/{folder}/{name}"
    try:
        exists = filesystem.get_file_info(path).type == fs.FileType.File
    except OSError as error:
        raise DataError(f"cannot read {base}: {error}. {_UNCHANGED}") from error
    return path if exists else f"{base}/{name}"


def _copy_file(file: DataFile, filesystem: FileSystem, path: str, target: Path) -> None:
    try:
        with filesystem.open_input_stream(path) as source, target.open("wb") as sink:
            # One byte more than published is enough to reject a larger file.
            remaining = file.size + 1
            while remaining and (chunk := source.read(min(remaining, _COPY_CHUNK_BYTES))):
                remaining -= sink.write(chunk)
    except OSError as error:
        raise DataError(
            f"cannot copy {file.name} from {path.rpartition('/')[0]}: {error}. {_UNCHANGED} "
            "Every node must be able to read the source."
        ) from error
    fault = fault_of(file, target)
    if not remaining:
        fault = f"{file.name} is altered ({file.size + 1:,} bytes or more, expected {file.size:,})"
    if fault:
        raise DataError(f"{path} is not the published file: {fault}. {_UNCHANGED}")
