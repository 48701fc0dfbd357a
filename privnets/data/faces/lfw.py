"""Labeled Faces in the Wild at 64x64 pixels, with identity, gender and smile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from privnets.data.faces.collection import UNKNOWN, FaceLabels, FaceSource, open_face
from privnets.data.files import DataError, DataFile, DatasetInfo

_COLUMNS = ("identity", "male", "smiling", "jpeg")


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

    def labels(self) -> FaceLabels:
        """Labels of all images; see `FaceSource.labels`."""
        return self._table.labels

    def reader(self) -> Callable[[int], Image.Image]:
        """Reads images; see `FaceSource.reader`."""
        files = self._table.files
        return lambda row: open_face(f"image {row} of LFW", files[row])

    @property
    def _table(self) -> FaceFile:
        return _read(self.info.paths[0], self.fingerprint())


@dataclass(frozen=True, eq=False)
class FaceFile:
    """A table of faces: labels, and the JPEG file of each image."""

    labels: FaceLabels
    files: NDArray[np.object_]


def read_table(path: Path) -> FaceFile:
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
    return FaceFile(FaceLabels(identity, male, smiling), frame["jpeg"].to_numpy(object))


@lru_cache(maxsize=1)
def _read(path: Path, _fingerprint: str) -> FaceFile:
    return read_table(path)
