"""MNIST: handwritten digits of 28x28 pixels, in the four idx files of their authors."""

from __future__ import annotations

import gzip
import io
import zlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privnets.data.catalog import DataError, info
from privnets.data.datasets import fingerprint
from privnets.data.files import directory

_TRAIN, _TEST, _SIDE = 60_000, 10_000, 28
_UNSIGNED_BYTES = 0x08


@dataclass(frozen=True, eq=False)
class Images:
    """MNIST as published. The arrays are shared and read-only: copy before changing them.

    Attributes:
        train_x: Grey levels, uint8, 0 is the background, shape [60000, 28, 28].
        train_y: Digits, int64, shape [60000].
        test_x: Shape [10000, 28, 28].
        test_y: Shape [10000].
        fingerprint: Of the data and of the way it is read.
    """

    train_x: NDArray[np.uint8]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.int64]
    fingerprint: str


def read() -> Images:
    """MNIST from the data directory, parsed once per process.

    Raises:
        DataError: If a file is absent, truncated or altered.
    """
    return _read(fingerprint("mnist"))


def parse(content: bytes, name: str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """One gzipped idx file of unsigned bytes.

    The format is the one described on the data set's page: two zero bytes, the type of the
    values, the number of dimensions, each dimension as a big-endian 32-bit integer, the values.

    Args:
        content: The file's bytes.
        name: What messages call it.
        shape: The dimensions it must have.

    Raises:
        DataError: If it is no whole gzip file, or its header or length is another.
    """
    body = _unpacked(content, name, 4 + 4 * len(shape) + int(np.prod(shape)))
    header = bytes((0, 0, _UNSIGNED_BYTES, len(shape)))
    header += np.array(shape, dtype=">u4").tobytes()
    if not body.startswith(header):
        raise DataError(
            f"{name} is not the published idx file: its header is {body[: len(header)].hex()}, "
            f"expected {header.hex()}. Get it with `sweeps data fetch mnist`."
        )
    return np.frombuffer(body, dtype=np.uint8, offset=len(header)).reshape(shape)


@lru_cache(maxsize=1)
def _read(identity: str) -> Images:
    shapes = ((_TRAIN, _SIDE, _SIDE), (_TRAIN,), (_TEST, _SIDE, _SIDE), (_TEST,))
    train_x, train_y, test_x, test_y = (
        parse((directory() / "mnist" / file.name).read_bytes(), file.name, shape)
        for file, shape in zip(info("mnist").files, shapes, strict=True)
    )
    return Images(train_x, _labels(train_y), test_x, _labels(test_y), identity)


def _labels(values: NDArray[np.uint8]) -> NDArray[np.int64]:
    labels = values.astype(np.int64)
    labels.setflags(write=False)
    return labels


def _unpacked(content: bytes, name: str, size: int) -> bytes:
    try:
        with gzip.open(io.BytesIO(content)) as stream:
            body = stream.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{name} is not a whole gzip file: {error}. Get it with `sweeps data fetch mnist`."
        ) from error
    if len(body) != size:
        found = f"more than {size:,}" if len(body) > size else f"{len(body):,}"
        raise DataError(
            f"{name} unpacks to {found} bytes, expected {size:,}. "
            "Get it with `sweeps data fetch mnist`."
        )
    return body
