"""Location-30: places and place types that Foursquare users visited, in 30 clusters of users."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privnets.data.catalog import DataSource, Table
from privnets.data.files import DataError, DataFile, DatasetInfo, unpack_gzip

_MEMBER = "bangkok"
_CLASSES = 30
_MAX_BYTES = 16 * 2**20  # the published archive unpacks to 4.3 MiB
_URL = (
    "https://raw.githubusercontent.com/privacytrustlab/datasets/"
    "169de9de00de049dd2e571cf7279e64698ac046a"
)


class Location30Source(DataSource):
    """Table of 446 binary features and 30 classes."""

    info = DatasetInfo(
        name="location30",
        title="Location-30 (Foursquare check-ins, Bangkok)",
        records=5_010,
        attributes=446,
        task="multiclass",
        classes=_CLASSES,
        source="https://github.com/privacytrustlab/datasets",
        licence="none stated: research only, do not redistribute",
        citation=(
            "R. Shokri, M. Stronati, C. Song and V. Shmatikov, IEEE S&P, 2017; "
            "from D. Yang et al.'s check-ins"
        ),
        files=(
            DataFile(
                "dataset_location.tgz",
                f"{_URL}/dataset_location.tgz",
                287_293,
                "927203f85a868f8ee17a0ded1dc61699efe602167beabe34fbf45b4b1de94b33",
            ),
        ),
    )

    def read(self, paths: Sequence[Path]) -> Table:
        """Reads the archive; see `parse`."""
        x, y = parse(paths[0].read_bytes())
        return x, y, tuple(f"place-{column}" for column in range(x.shape[1]))


def parse(archive: bytes) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Parses the published archive in memory; no file is unpacked to disk.

    Returns:
        Binary features, shape [N, 446], and classes, shape [N], 0 to 29 (1 to 30 in the file).
    """
    tar, content = unpack_gzip(archive, "Location-30's archive", _MAX_BYTES), None
    try:
        with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as members:
            for member in members:
                is_file = member.isreg() and not member.issparse()
                if content is None and member.name == _MEMBER and is_file:
                    stream = members.extractfile(member)
                    content = stream.read() if stream else b""
    # Invalid headers raise errors of tarfile or of the functions that it calls.
    except (tarfile.TarError, OSError, ValueError, EOFError, OverflowError) as error:
        raise DataError(f"Location-30's archive is not a tar file: {error}.") from error
    if content is None:
        raise DataError(f"Location-30's archive has no regular file {_MEMBER!r}.")
    try:
        if not content.strip():
            raise ValueError("it is empty")
        table = np.loadtxt(
            io.BytesIO(content), dtype=np.int64, delimiter=",", quotechar='"', ndmin=2
        )
        classes, features = table[:, 0], table[:, 1:]
        valid = ((classes >= 1) & (classes <= _CLASSES)).all() and np.isin(features, (0, 1)).all()
        if not features.size or not valid:
            raise ValueError(f"a row needs a class from 1 to {_CLASSES} and features of 0 and 1")
    except (ValueError, OverflowError) as error:
        raise DataError(f"Location-30's file {_MEMBER!r} is not a table: {error}.") from error
    return features.astype(np.float64), classes - 1
