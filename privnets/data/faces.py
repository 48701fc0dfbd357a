"""Photographs of faces with identity, gender and perhaps smile; for research only."""

from __future__ import annotations

import io
import itertools
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from privnets.data.catalog import DataSource, combined_fingerprint
from privnets.data.files import DataError, DataFile, DatasetInfo, FileState, digest

UNKNOWN: Final = -1
"""Label that the collection does not give."""

_ATTRIBUTES, _IDENTITIES = "list_attr_celeba.txt", "identity_CelebA.txt"
_PARTITION, _IMAGES = "list_eval_partition.txt", "img_align_celeba"
_TEST = 2  # number of the test part of CelebA
_COLUMNS = ("identity", "male", "smiling", "jpeg")  # of LFW
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


Collection: TypeAlias = tuple[FaceLabels, Callable[[int], Image.Image]]
"""Labels of all images, and a function that reads an image by its row."""


class FaceSource(DataSource):
    """A collection of faces in the authors' form."""

    @abstractmethod
    def collection(self) -> Collection:
        """Labels and a reader of images, cropped as the authors say, once per process and content.

        Raises:
            DataError: If a file is absent or malformed.
        """

    def labels(self) -> FaceLabels:
        """Labels of all images; see `collection`."""
        return self.collection()[0]

    def pixels(self, rows: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
        """Levels of the centres of images by row, shape [n, 3, size, size]."""
        levels, image = np.empty((len(rows), 3, size, size), dtype=np.uint8), self.collection()[1]

        def read(place: int) -> None:
            square = centre_square(image(int(rows[place])), size)
            levels[place] = np.asarray(square).transpose(2, 0, 1)

        with ThreadPoolExecutor(_THREADS) as pool:
            for _ in pool.map(read, range(len(rows))):
                pass
        return levels


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


class CelebaSource(FaceSource):
    """The aligned and cropped images, in `img_align_celeba`, with lists of them.

    The authors give no checksums. The fingerprint is that of the lists: images are taken as the
    lists say.
    """

    info = DatasetInfo(
        name="celeba",
        title="CelebA, aligned and cropped, with gender and smile",
        records=202_599,
        attributes=3 * 218 * 178,
        task="multiclass",
        classes=10_177,
        source="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
        licence="non-commercial research only",
        citation="Z. Liu, P. Luo, X. Wang and X. Tang, ICCV, 2015",
        kind="faces",
        lists=(_ATTRIBUTES, _IDENTITIES, _PARTITION),
    )

    def state(self) -> FileState:
        """Whether all lists and the first listed image are there."""
        return "absent" if self._absent_files() else "present"

    def fingerprint(self) -> str:
        """Identifies the lists; see `DataSource.fingerprint`."""
        if absent := self._absent_files():
            raise DataError(
                f"data set {self.name!r} cannot be used: {' and '.join(absent)} absent. Looked in "
                f"{self.info.folder}. Unpack there what {self.info.source} provides, or set "
                "PRIVNETS_DATA."
            )
        return combined_fingerprint(self.name, tuple(digest(path) for path in self._lists()))

    def collection(self) -> Collection:
        """Reads the lists; see `FaceSource.collection`."""
        return _read_lists(self.info.folder, self.fingerprint())

    def _lists(self) -> list[Path]:
        return [self.info.folder / name for name in self.info.lists]

    def _absent_files(self) -> list[str]:
        absent = [path.name for path in self._lists() if not path.exists()]
        if absent:
            return absent
        with self._lists()[0].open() as lines:  # a number and the columns' names come first
            line = next(itertools.islice(lines, 2, None), "")
        first = f"{_IMAGES}/{next(iter(line.split()), '')}"
        return [] if (self.info.folder / first).exists() else [first]


@lru_cache(maxsize=2)
def _read_lists(folder: Path, _fingerprint: str) -> Collection:
    """Labels by attributes (1 or -1), identities and the published parts."""
    import pandas as pd  # half a second to import

    try:
        attributes = pd.read_csv(folder / _ATTRIBUTES, sep=r"\s+", skiprows=1)
        identity, part = (
            pd.read_csv(folder / name, sep=r"\s+", header=None, index_col=0)[1].loc[
                attributes.index
            ]
            for name in (_IDENTITIES, _PARTITION)
        )
        male, smiling = (
            (attributes[name].to_numpy(np.int64) > 0).astype(np.int64)
            for name in ("Male", "Smiling")
        )
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"the lists in {folder} cannot be read: {error}.") from error
    people = np.unique(identity.to_numpy(), return_inverse=True)[1].astype(np.int64)
    names = tuple(attributes.index)

    def read(row: int) -> Image.Image:
        return open_face(names[row], folder / _IMAGES / names[row])

    return FaceLabels(people, male, smiling, part.to_numpy() == _TEST), read


class LfwSource(FaceSource):
    """All images of LFW deep-funneled, cropped to 128 pixels around the face, in one table.

    `smiling` is linked from the SMILEs set: it is noisy, and unknown for 782 images.
    """

    info = DatasetInfo(
        name="lfw",
        title="Labeled Faces in the Wild, 64x64, with gender and smile",
        records=13_233,
        attributes=3 * 64 * 64,
        task="multiclass",
        classes=5_749,
        source="http://vis-www.cs.umass.edu/lfw/",
        licence="none stated; research only",
        citation=(
            "G. B. Huang et al., 2007 and 2012; M. Afifi and A. Abdelhamed, 2017 (gender); "
            "D. Hromada, 2010 (smiles)"
        ),
        files=(
            DataFile(
                "lfw_faces64.parquet",
                None,
                33_918_589,
                "4cbf1ac956a17a257f26f05899d19e33e02162bfa31dedff2792012efe6cd969",
            ),
        ),
        kind="faces",
        shape=(3, 64, 64),
    )

    def collection(self) -> Collection:
        """Reads the table; see `FaceSource.collection`."""
        return _read_once(self.info.paths[0], self.fingerprint())


@lru_cache(maxsize=1)
def _read_once(path: Path, _fingerprint: str) -> Collection:
    return read_table(path)


def read_table(path: Path) -> Collection:
    """Reads a parquet table with the columns identity, male, smiling and jpeg.

    Raises:
        DataError: If it has other columns, or labels out of range.
    """
    import pandas as pd  # half a second to import

    try:
        frame = pd.read_parquet(path, columns=list(_COLUMNS))
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"{path} must be a parquet table with {', '.join(_COLUMNS)}: {error}."
        ) from error
    identity, male, smiling = (frame[name].to_numpy(np.int64) for name in _COLUMNS[:3])
    if identity.min() < 0 or not {*male, *smiling} <= {0, 1, UNKNOWN}:
        raise DataError(f"{path} must have identities from 0, and labels 0, 1 or {UNKNOWN}.")
    files = frame["jpeg"].to_numpy(object)
    labels = FaceLabels(identity, male, smiling)
    return labels, lambda row: open_face(f"image {row} of LFW", files[row])
