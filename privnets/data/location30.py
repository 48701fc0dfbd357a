"""Location-30: which of 446 places and place types a Foursquare user visited, in 30 clusters."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib

import numpy as np
from numpy.typing import NDArray

from privnets.data.catalog import DataError

_MEMBER = "bangkok"
_CLASSES = 30
_MOST_BYTES = 16 * 2**20  # the published archive unpacks to 4.3 MiB


def parse(archive: bytes) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Read the published archive in memory; nothing is unpacked to disk.

    Args:
        archive: Bytes of dataset_location.tgz.

    Returns:
        Binary features, shape [N, 446], and classes, shape [N], 0 to 29 (1 to 30 in the file).

    Raises:
        DataError: If it is not a gzipped tar, unpacks to more than 16 MiB, lacks the regular
            file `bangkok`, or that is no table of classes and zeros and ones.
    """
    table = _table(_member(_unpacked(archive)))
    return table[:, 1:].astype(np.float64), table[:, 0] - 1


def _table(content: bytes) -> NDArray[np.int64]:
    """Class and features of each record."""
    if not content.strip():
        raise DataError(f"Location-30's file {_MEMBER!r} is empty.")
    try:
        table = np.loadtxt(
            io.BytesIO(content), dtype=np.int64, delimiter=",", quotechar='"', ndmin=2
        )
    except (ValueError, OverflowError) as error:
        raise DataError(f"Location-30's file {_MEMBER!r} is no table: {error}.") from error
    classes, features = table[:, 0], table[:, 1:]
    known = ((classes >= 1) & (classes <= _CLASSES)).all()
    if not features.shape[1] or not known or not ((features == 0) | (features == 1)).all():
        raise DataError(
            f"Location-30's file {_MEMBER!r} must hold classes from 1 to {_CLASSES}, each with "
            "features of 0 and 1."
        )
    return table


def _unpacked(archive: bytes) -> bytes:
    try:
        with gzip.open(io.BytesIO(archive)) as stream:
            tar = stream.read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"Location-30's archive is not a whole gzip file: {error}.") from error
    if len(tar) > _MOST_BYTES:
        raise DataError(f"Location-30's archive unpacks to more than {_MOST_BYTES:,} bytes.")
    return tar


def _member(tar: bytes) -> bytes:
    try:
        with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as members:
            for member in members:
                if member.name == _MEMBER and member.isreg() and not member.issparse():
                    stream = members.extractfile(member)
                    return stream.read() if stream else b""
    # Headers that cannot be are for tarfile, or for what it calls, to complain of.
    except (tarfile.TarError, OSError, ValueError, EOFError, OverflowError) as error:
        raise DataError(f"Location-30's archive is not a tar file: {error}.") from error
    raise DataError(f"Location-30's archive has no regular file {_MEMBER!r}.")
