"""CelebA: celebrities with identity and forty attributes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from privnets.data.catalog import combined_fingerprint
from privnets.data.faces.collection import FaceLabels, FaceSource, open_face, person_numbers
from privnets.data.files import DataError, DatasetInfo, FileState, digest

_ATTRIBUTES, _IDENTITIES = "list_attr_celeba.txt", "identity_CelebA.txt"
_PARTITION, _IMAGES = "list_eval_partition.txt", "img_align_celeba"
_TEST = 2  # number of the test part


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

    def labels(self) -> FaceLabels:
        """Labels of all images; see `FaceSource.labels`."""
        return _read_lists(self.info.folder, self.fingerprint())[0]

    def reader(self) -> Callable[[int], Image.Image]:
        """Reads images; see `FaceSource.reader`."""
        folder = self.info.folder
        _, names = _read_lists(folder, self.fingerprint())

        def read(row: int) -> Image.Image:
            return open_face(names[row], folder / _IMAGES / names[row])

        return read

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
def _read_lists(folder: Path, _fingerprint: str) -> tuple[FaceLabels, tuple[str, ...]]:
    """Labels by attributes (1 or -1), identities and the published parts; names of images."""
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
    labels = FaceLabels(
        person_numbers(identity.to_numpy()), male, smiling, part.to_numpy() == _TEST
    )
    return labels, tuple(attributes.index)
