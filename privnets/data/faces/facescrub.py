"""FaceScrub: actors and actresses, as lists of links with the box of each face."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from privnets.data.catalog import combined_fingerprint
from privnets.data.faces.collection import (
    UNKNOWN,
    FaceFolder,
    FaceFolderSource,
    FaceLabels,
    person_numbers,
)
from privnets.data.files import DataError, DatasetInfo

_LISTS = ("facescrub_actors.txt", "facescrub_actresses.txt")
_SUFFIXES = (".jpg", ".jpeg", ".png")


class FaceScrubSource(FaceFolderSource):
    """Images that could be downloaded, as `NAME/NAME_FACE-ID.jpg`; links that failed are left out.

    Files hold the linked images, which are cropped to the listed box.
    """

    info = DatasetInfo(
        name="facescrub",
        title="FaceScrub: actors and actresses",
        records=106_863,
        attributes=0,
        task="multiclass",
        classes=530,
        source="http://vintage.winklerbros.net/facescrub.html",
        licence="CC BY-NC-ND 3.0 for the lists; the images belong to others",
        citation="H.-W. Ng and S. Winkler, ICIP, 2014",
        kind="faces",
        lists=_LISTS,
    )

    def fingerprint(self) -> str:
        """Identifies the lists, and the images that are there."""
        lists = super().fingerprint()
        return combined_fingerprint(lists, tuple(sorted(_image_paths(self.info.folder).values())))

    def read_folder(self, folder: Path) -> FaceFolder:
        """Reads both lists, and finds the images."""
        import pandas as pd  # half a second to import

        frames = [pd.read_csv(folder / name, sep="\t") for name in _LISTS]
        frame = pd.concat([f.assign(male=1 - i) for i, f in enumerate(frames)], ignore_index=True)
        paths = _image_paths(folder)
        keys = frame["name"] + "_" + frame["face_id"].astype(str)
        frame = frame.assign(path=keys.map(paths)).dropna(subset="path")
        if frame.empty:
            raise DataError(f"{folder} holds no image NAME/NAME_FACE-ID.jpg of its lists.")
        labels = FaceLabels(
            person_numbers(frame["name"].to_numpy(str)),
            frame["male"].to_numpy(np.int64),
            np.full(len(frame), UNKNOWN),
        )
        boxes = np.array([box.split(",") for box in frame["bbox"]], dtype=np.int64)
        return FaceFolder(labels, frame["path"].tolist(), boxes)


def _image_paths(folder: Path) -> dict[str, str]:
    """Path of each image below folders of people, by its name without the suffix."""
    paths = {}
    for person in os.scandir(folder):
        if person.is_dir():
            for name in os.listdir(person.path):
                stem, suffix = os.path.splitext(name)
                if suffix.lower() in _SUFFIXES:
                    paths[stem] = f"{person.name}/{name}"
    return paths
