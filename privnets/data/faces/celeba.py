"""CelebA: celebrities with identity and forty attributes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from privnets.data.faces.collection import (
    FaceFolder,
    FaceFolderSource,
    FaceLabels,
    first_word,
    person_numbers,
)
from privnets.data.files import DatasetInfo

_ATTRIBUTES, _IDENTITIES = "list_attr_celeba.txt", "identity_CelebA.txt"
_PARTITION, _IMAGES = "list_eval_partition.txt", "img_align_celeba"
_TEST = 2  # number of the test part


class CelebaSource(FaceFolderSource):
    """The aligned and cropped images, in `img_align_celeba`."""

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

    def first_image(self, folder: Path) -> str:
        """The image of the third line, below a number and the columns' names."""
        with (folder / _ATTRIBUTES).open() as lines:
            return f"{_IMAGES}/{first_word(lines, skipped=2)}"

    def read_folder(self, folder: Path) -> FaceFolder:
        """Reads attributes (1 or -1), identities and the published parts."""
        import pandas as pd  # half a second to import

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
        labels = FaceLabels(
            person_numbers(identity.to_numpy()), male, smiling, part.to_numpy() == _TEST
        )
        return FaceFolder(labels, [f"{_IMAGES}/{name}" for name in attributes.index])
