"""VGGFace2: many images of each of 9,131 people."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from privnets.data.faces.collection import (
    UNKNOWN,
    FaceFolder,
    FaceFolderSource,
    FaceLabels,
    first_word,
    person_numbers,
)
from privnets.data.files import DatasetInfo

_META, _PARTS = "identity_meta.csv", ("train", "test")


class VggFace2Source(FaceFolderSource):
    """The loosely cropped images, in `train` and `test` with a folder for each person."""

    info = DatasetInfo(
        name="vggface2",
        title="VGGFace2, loosely cropped",
        records=3_311_286,
        attributes=0,
        task="multiclass",
        classes=9_131,
        source="https://www.robots.ox.ac.uk/~vgg/data/vgg_face2/",
        licence="non-commercial research only",
        citation="Q. Cao, L. Shen, W. Xie, O. M. Parkhi and A. Zisserman, FG, 2018",
        kind="faces",
        lists=(_META, *(f"{part}_list.txt" for part in _PARTS)),
    )

    def first_image(self, folder: Path) -> str:
        """The first training image."""
        with (folder / f"{_PARTS[0]}_list.txt").open() as lines:
            return f"{_PARTS[0]}/{first_word(lines)}"

    def read_folder(self, folder: Path) -> FaceFolder:
        """Reads the genders of people, and the lists of both parts."""
        import pandas as pd  # half a second to import

        meta = pd.read_csv(folder / _META, skipinitialspace=True, index_col="Class_ID")
        listed = [(folder / f"{part}_list.txt").read_text().split() for part in _PARTS]
        people = np.array([name.split("/")[0] for names in listed for name in names])
        gender = meta["Gender"].str.strip().loc[people].to_numpy(str)
        labels = FaceLabels(
            person_numbers(people),
            (gender == "m").astype(np.int64),
            np.full(len(people), UNKNOWN),
            np.repeat([False, True], [len(names) for names in listed]),
        )
        parts = zip(_PARTS, listed, strict=True)
        return FaceFolder(labels, [f"{part}/{name}" for part, names in parts for name in names])
