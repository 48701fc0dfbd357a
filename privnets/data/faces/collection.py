"""Interface of collections of faces: labels of all images, and pixels of some."""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from privnets.data.catalog import DataSource
from privnets.data.files import DataError

UNKNOWN: Final = -1
"""Label that the collection does not give."""

_MAX_LEVEL: Final = 2**16 - 1
_THREADS = 4  # Pillow decodes without the interpreter's lock


@dataclass(frozen=True, eq=False)
class FaceLabels:
    """Labels of a collection's images, int64, shape [n] each. Arrays are shared and read-only.

    Attributes:
        identity: Person, from 0.
        male: 1 for men, 0 for women, or `UNKNOWN`.
        smiling: 1, 0 or `UNKNOWN`.
        is_test: Whether the authors keep the image for tests, bool; None if they do not say.
    """

    identity: NDArray[np.int64]
    male: NDArray[np.int64]
    smiling: NDArray[np.int64]
    is_test: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        """Makes the arrays read-only."""
        for array in vars(self).values():
            if array is not None:
                array.setflags(write=False)


class FaceSource(DataSource):
    """A collection of faces in the authors' form."""

    @abstractmethod
    def labels(self) -> FaceLabels:
        """Labels of all images, read once per process and content.

        Raises:
            DataError: If a file is absent or malformed.
        """

    @abstractmethod
    def reader(self) -> Callable[[int], Image.Image]:
        """Function that reads an image by row, cropped as the authors publish it or say.

        The state of the files is checked once, before the first image.
        """

    def pixels(self, rows: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
        """Levels of the centres of images by row, shape [n, 3, size, size]."""
        levels, image = np.empty((len(rows), 3, size, size), dtype=np.uint8), self.reader()

        def read(place: int) -> None:
            square = centre_square(image(int(rows[place])), size)
            levels[place] = np.asarray(square).transpose(2, 0, 1)

        with ThreadPoolExecutor(_THREADS) as pool:
            for _ in pool.map(read, range(len(rows))):
                pass
        return levels


def person_numbers(names: NDArray[Any]) -> NDArray[np.int64]:
    """Numbers people by their names or numbers, from 0 in sorted order, shape [n]."""
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def centre_square(image: Image.Image, size: int) -> Image.Image:
    """The largest square in the middle of an upright image, resized, in RGB.

    Raises:
        ValueError: If pixels are transparent, or of a range that is not known.
    """
    upright = _to_rgb(ImageOps.exif_transpose(image))
    (width, height), side = upright.size, min(upright.size)
    left, top = (width - side) // 2, (height - side) // 2
    return upright.crop((left, top, left + side, top + side)).resize((size, size))


def _to_rgb(image: Image.Image) -> Image.Image:
    """Converts to RGB in 8 bits; 16 bits are scaled, where Pillow would clip them at 255."""
    if image.mode.startswith("I"):
        levels = np.asarray(image).astype(np.float64)
        if levels.min() < 0 or levels.max() > _MAX_LEVEL:
            raise ValueError("its pixels are not in the range of 8 or 16 bits")
        levels = (levels * (255 / _MAX_LEVEL)).round()
        return Image.fromarray(levels.astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers, whose range is unknown")
    if image.has_transparency_data:
        opacity = np.asarray(image.convert("RGBA").getchannel("A"))
        if opacity.min() < 255:  # hidden colours would be used
            raise ValueError("it has transparent pixels")
    return image.convert("RGB")


def open_face(name: str, content: bytes | Path) -> Image.Image:
    """Opens a JPEG or PNG file.

    Raises:
        DataError: If it is not one.
    """
    stream = io.BytesIO(content) if isinstance(content, bytes) else content
    try:
        image = Image.open(stream, formats=("JPEG", "PNG"))
        image.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{name} cannot be read as an image: {error}.") from error
    return image
