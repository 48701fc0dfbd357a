"""MNIST: handwritten digits of 28x28 pixels, in the four idx files of the authors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privnets.data.catalog import DataSource, Table
from privnets.data.files import DataError, DataFile, DatasetInfo, unpack_gzip

_TRAIN, _TEST, _SIDE = 60_000, 10_000, 28
_UNSIGNED_BYTES = 0x08
_URL = "https://ossci-datasets.s3.amazonaws.com/mnist"
_ADVICE = "Get it with `sweeps data fetch mnist`."


class MnistSource(DataSource):
    """Images with the digit as target."""

    info = DatasetInfo(
        name="mnist",
        title="MNIST handwritten digits, 28x28 (60,000 to train, 10,000 to test)",
        records=70_000,
        attributes=784,
        task="multiclass",
        classes=10,
        source="http://yann.lecun.com/exdb/mnist/",
        licence="commonly given as CC BY-SA 3.0",
        citation="Y. LeCun, C. Cortes and C. J. C. Burges, The MNIST database, 1998",
        files=(
            DataFile(
                "train-images-idx3-ubyte.gz",
                f"{_URL}/train-images-idx3-ubyte.gz",
                9_912_422,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            DataFile(
                "train-labels-idx1-ubyte.gz",
                f"{_URL}/train-labels-idx1-ubyte.gz",
                28_881,
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            DataFile(
                "t10k-images-idx3-ubyte.gz",
                f"{_URL}/t10k-images-idx3-ubyte.gz",
                1_648_877,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            DataFile(
                "t10k-labels-idx1-ubyte.gz",
                f"{_URL}/t10k-labels-idx1-ubyte.gz",
                4_542,
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
        shape=(1, _SIDE, _SIDE),
    )

    def read(self, paths: Sequence[Path]) -> Table:
        """Returns grey levels from 0 to 255, the records to train first."""
        images = read()
        x = np.concatenate([images.train_x, images.test_x]).reshape(-1, _SIDE**2)
        y = np.concatenate([images.train_y, images.test_y])
        names = tuple(f"{row}-{column}" for row in range(_SIDE) for column in range(_SIDE))
        return x, y, names


@dataclass(frozen=True, eq=False)
class MnistImages:
    """MNIST as published. The arrays are shared and read-only: copy them before changing them.

    Attributes:
        train_x: Grey levels, uint8, 0 is the background, shape [60000, 28, 28].
        train_y: Digits, int64, shape [60000].
        test_x: Shape [10000, 28, 28].
        test_y: Shape [10000].
        fingerprint: Identifies the data and the way it is read.
    """

    train_x: NDArray[np.uint8]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.int64]
    fingerprint: str


def read() -> MnistImages:
    """Returns MNIST from the data directory, parsed once per process."""
    return _read(MnistSource().fingerprint())


def parse(content: bytes, name: str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Parses one gzipped idx file of unsigned bytes.

    Format: two zero bytes, the type of the values, the number of dimensions, each dimension as a
    big-endian 32-bit integer, the values.

    Args:
        shape: Expected dimensions.

    Raises:
        DataError: If it is not a complete gzip file, or has another header or length.
    """
    size = 4 + 4 * len(shape) + int(np.prod(shape))
    body = unpack_gzip(content, name, size, _ADVICE)
    if len(body) < size:
        raise DataError(f"{name} unpacks to {len(body):,} bytes, expected {size:,}. {_ADVICE}")
    header = bytes((0, 0, _UNSIGNED_BYTES, len(shape)))
    header += np.array(shape, dtype=">u4").tobytes()
    if not body.startswith(header):
        raise DataError(
            f"{name} is not the published idx file: its header is {body[: len(header)].hex()}, "
            f"expected {header.hex()}. {_ADVICE}"
        )
    return np.frombuffer(body, dtype=np.uint8, offset=len(header)).reshape(shape)


@lru_cache(maxsize=1)
def _read(identity: str) -> MnistImages:
    shapes = ((_TRAIN, _SIDE, _SIDE), (_TRAIN,), (_TEST, _SIDE, _SIDE), (_TEST,))
    train_x, train_y, test_x, test_y = (
        parse(path.read_bytes(), path.name, shape)
        for path, shape in zip(MnistSource.info.paths, shapes, strict=True)
    )
    return MnistImages(train_x, _labels(train_y), test_x, _labels(test_y), identity)


def _labels(values: NDArray[np.uint8]) -> NDArray[np.int64]:
    labels = values.astype(np.int64)
    labels.setflags(write=False)
    return labels
