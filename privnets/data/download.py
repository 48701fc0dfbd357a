"""Fetching published files from their public sources."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from privnets.data.catalog import DataFile, DatasetInfo, info
from privnets.data.errors import DataError
from privnets.data.files import directory, fault_of

Report = Callable[[str, int, int], None]
"""Told a file's name, the bytes that came so far (about), and the bytes it has."""

_CHUNK_BYTES = 2**16
_TIMEOUT_SECONDS = 30


def fetch(name: str, report: Report | None = None) -> list[Path]:
    """Download a data set into the data directory; files that are there and intact stay.

    Args:
        name: The data set.
        report: Called as bytes come in.

    Returns:
        The data set's files; none when it comes with scikit-learn.

    Raises:
        DataError: If there is none of that name, the directory cannot be written, the source
            cannot be reached, or what it serves is not the published file. Nothing has then been
            added or changed.
    """
    return download(info(name), directory(), report)


def download(dataset: DatasetInfo, root: Path, report: Report | None = None) -> list[Path]:
    """Download a data set into `root/<name>`.

    All missing files come aside, are checked, and only then move to their places, so an
    interruption leaves nothing half-written.

    Raises:
        DataError: As `fetch` does.
    """
    folder = root / dataset.name
    missing = [file for file in dataset.files if fault_of(file, folder / file.name)]
    if missing:
        try:
            root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=root, prefix=".fetch-") as aside:
                arrived = [_retrieve(file, folder, Path(aside), report) for file in missing]
                folder.mkdir(exist_ok=True)
                for path in arrived:
                    os.replace(path, folder / path.name)
        except OSError as error:
            raise DataError(
                f"data set {dataset.name!r} cannot be stored in {folder}: {error}. "
                "Set PRIVNETS_DATA to a directory that can be written."
            ) from error
    return [folder / file.name for file in dataset.files]


def _retrieve(file: DataFile, folder: Path, aside: Path, report: Report | None) -> Path:
    import pooch

    if file.url is None:
        raise DataError(
            f"{file.name} cannot be downloaded: nobody serves it as one file. Nothing was changed. "
            f"Put it at {folder / file.name} by hand; `sweeps data list` gives the source, and the "
            f"documentation of privnets.data.{folder.name} other forms that can be read."
        )
    try:
        with ExitStack() as opened:
            downloader = pooch.HTTPDownloader(
                progressbar=_Progress(file, report) if report else False,
                chunk_size=_CHUNK_BYTES,
                timeout=_TIMEOUT_SECONDS,
                # pooch leaves the response of a download that fails open.
                hooks={"response": lambda response, **_: opened.enter_context(response)},
            )
            # Checked below and not by pooch, which would not tell a short file from another.
            downloader(file.url, str(aside / file.name), None)
    except OSError as error:  # requests' exceptions are among them
        raise DataError(
            f"{file.name} cannot be downloaded from {file.url}: {error}. Nothing was changed. "
            f"Without a network, put the published file at {folder / file.name} by hand."
        ) from error
    if fault := fault_of(file, aside / file.name):
        raise DataError(
            f"what {file.url} serves is not the published file: {fault}. Nothing was changed."
        )
    return aside / file.name


class _Progress:
    """What pooch asks of a progress bar, passed on to a report."""

    def __init__(self, file: DataFile, report: Report) -> None:
        self.total = 0  # set by pooch
        self._file = file
        self._report = report
        self._done = 0

    def update(self, count: int) -> None:
        self._done = min(self._done + count, self._file.size)
        self._report(self._file.name, self._done, self._file.size)

    def reset(self) -> None:
        """Pooch starts over to end at the total; there is no reason to go back."""

    def close(self) -> None:
        """Nothing is open."""
