"""Fetching published files from their public sources."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from privnets.data.arrival import bring
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

    Raises:
        DataError: As `fetch` does.
    """

    def retrieve(file: DataFile, aside: Path) -> None:
        _retrieve(file, root / dataset.name / file.name, aside, report)

    return bring(dataset, root, retrieve)


def _retrieve(file: DataFile, place: Path, aside: Path, report: Report | None) -> None:
    import pooch

    if file.url is None:
        raise DataError(
            f"{file.name} cannot be downloaded: nobody serves it as one file. Nothing was changed. "
            f"Put it at {place} by hand; `sweeps data list` gives the source, and the "
            f"documentation of privnets.data.{place.parent.name} other forms that can be read."
        )
    try:
        with ExitStack() as opened:
            downloader = pooch.HTTPDownloader(
                progressbar=_Progress(file, report),
                chunk_size=_CHUNK_BYTES,
                timeout=_TIMEOUT_SECONDS,
                # pooch leaves the response of a download that fails open.
                hooks={"response": lambda response, **_: opened.enter_context(response)},
            )
            # Checked below and not by pooch, which would not tell a short file from another.
            downloader(file.url, str(aside), None)
    except OSError as error:  # requests' exceptions are among them
        raise DataError(
            f"{file.name} cannot be downloaded from {file.url}: {error}. Nothing was changed. "
            f"Without a network, put the published file at {place} by hand."
        ) from error
    if fault := fault_of(file, aside):
        raise DataError(
            f"what {file.url} serves is not the published file: {fault}. Nothing was changed."
        )


class _Progress:
    """What pooch asks of a progress bar, passed on to a report; ends a download without end."""

    def __init__(self, file: DataFile, report: Report | None) -> None:
        self.total = 0  # set by pooch
        self._file = file
        self._report = report
        self._done = 0

    def update(self, count: int) -> None:
        if self._done + count > self._file.size + _CHUNK_BYTES:
            raise DataError(
                f"what {self._file.url} serves is not the published file: it is longer than "
                f"{self._file.size:,} bytes. Nothing was changed."
            )
        self._done += count
        if self._report is not None:
            self._report(self._file.name, min(self._done, self._file.size), self._file.size)

    def reset(self) -> None:
        """Pooch starts over to end at the total."""
        self._done = 0

    def close(self) -> None:
        """Nothing is open."""
