"""Fetching published files: download from the public source, or copy from a directory or store.

All missing files are written to a temporary directory first and then renamed, so an interruption
leaves no partial file. A lock lets concurrent callers, in any process, wait for the first one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from privnets.data.catalog import info
from privnets.data.files import DataError, DataFile, DatasetInfo, fault_of

Report = Callable[[str, int, int], None]
"""Receives a file's name, the bytes received so far, and the file's size."""

_Retrieve = Callable[[DataFile, Path], None]

_CHUNK_BYTES = 2**16
_TIMEOUT_SECONDS = 30


def fetch(name: str, report: Report | None = None) -> list[Path]:
    """Downloads a data set into the data directory; intact files are kept.

    `report` is called as bytes arrive.

    Returns:
        Paths of the data set's files; empty if a package ships it.

    Raises:
        DataError: If the name is unknown, the directory is not writable, the source is
            unreachable, or a downloaded file is not the published one. No file is then changed.
    """
    import requests

    dataset = info(name)

    def download(file: DataFile, target: Path) -> None:
        place = dataset.folder / file.name
        if file.url is None:
            raise DataError(
                f"cannot download {file.name}: no public source serves it as one file. Nothing was "
                f"changed. Copy it to {place}. `sweeps data list` gives the source, and "
                f"the documentation of privnets.data.{name} the other formats it reads."
            )
        try:
            with requests.get(file.url, stream=True, timeout=_TIMEOUT_SECONDS) as response:
                response.raise_for_status()
                _store(file, target, response.iter_content(_CHUNK_BYTES), file.url, report)
        except OSError as error:  # includes the exceptions of requests
            raise DataError(
                f"cannot download {file.name} from {file.url}: {error}. Nothing was changed. "
                f"Without a network, copy the published file to {place}."
            ) from error

    return _fetch_missing(dataset, download)


def copy(name: str, source: str) -> list[Path]:
    """Copies a data set into the data directory; intact files are kept.

    Args:
        source: Directory, or URI that pyarrow can read (`s3://`, `gs://`, `file://`, ...). It
            holds the files, or a folder with the data set's name that holds them.

    Returns:
        Paths of the data set's files; empty if a package ships it.

    Raises:
        DataError: If the name is unknown, the data directory is not writable, or the source lacks
            a file or holds another one than published. No file is then changed.
    """
    from pyarrow import fs

    dataset, base = info(name), str(Path(source).expanduser().absolute())
    filesystem: fs.FileSystem = fs.LocalFileSystem()
    if "://" in source:
        try:
            filesystem, base = fs.FileSystem.from_uri(source)
        except (OSError, ValueError) as error:
            # The URI and pyarrow's message may contain credentials, so neither is shown.
            raise DataError(
                "source must be a directory or a URI that pyarrow can open, such as "
                "s3://BUCKET/PREFIX or file:///PATH; got an invalid "
                f"{source.partition(':')[0]}: URI."
            ) from (None if "@" in source or "?" in source else error)
        base = base.rstrip("/")

    def copy_file(file: DataFile, target: Path) -> None:
        path = f"{base}/{name}/{file.name}"
        try:
            if filesystem.get_file_info(path).type != fs.FileType.File:
                path = f"{base}/{file.name}"
        except OSError as error:
            raise DataError(f"cannot read {base}: {error}. Nothing was changed.") from error
        try:
            with filesystem.open_input_stream(path) as stream:
                _store(file, target, iter(lambda: stream.read(_CHUNK_BYTES), b""), path)
        except OSError as error:
            raise DataError(
                f"cannot copy {file.name} from {path.rpartition('/')[0]}: {error}. Nothing was "
                "changed. Every node must be able to read the source."
            ) from error

    return _fetch_missing(dataset, copy_file)


def _fetch_missing(dataset: DatasetInfo, retrieve: _Retrieve) -> list[Path]:
    if dataset.lists:
        raise DataError(
            f"data set {dataset.name!r} cannot be fetched: it is a folder of images. Ask "
            f"{dataset.source} for it, and unpack it in {dataset.folder}."
        )
    if not _missing_files(dataset):
        return dataset.paths
    from filelock import FileLock

    root = dataset.folder.parent
    lock = root / f".fetch-{dataset.name}.lock"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(lock), tempfile.TemporaryDirectory(dir=root, prefix=".fetch-") as temporary:
            try:
                # Another process may have fetched some while this one waited for the lock.
                missing = _missing_files(dataset)
                for file in missing:
                    retrieve(file, Path(temporary, file.name))
                dataset.folder.mkdir(exist_ok=True)
                for file in missing:
                    os.replace(Path(temporary, file.name), dataset.folder / file.name)
            finally:
                # A waiting process then locks a new file; at worst two fetch the same data.
                lock.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            f"cannot store data set {dataset.name!r} in {dataset.folder}: {error}. "
            "Set PRIVNETS_DATA to a writable directory."
        ) from error
    return dataset.paths


def _missing_files(dataset: DatasetInfo) -> list[DataFile]:
    files = zip(dataset.files, dataset.paths, strict=True)
    return [file for file, path in files if fault_of(file, path)]


def _store(
    file: DataFile,
    target: Path,
    chunks: Iterable[bytes],
    source: str,
    report: Report | None = None,
) -> None:
    """Writes a file, and checks that it is the published one; stops when it is too long."""
    size, fault = 0, None
    with target.open("wb") as sink:
        for chunk in chunks:
            size += sink.write(chunk)
            if size > file.size:
                fault = f"{file.name} is altered (more than {file.size:,} bytes)"
                break
            if report is not None:
                report(file.name, size, file.size)
    if fault := fault or fault_of(file, target):
        raise DataError(f"{source} is not the published file: {fault}. Nothing was changed.")
