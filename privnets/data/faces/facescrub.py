"""FaceScrub: actors and actresses, as lists of links with the box of each face."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
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
_THREADS = 4
_SUFFIXES = (".jpg", ".jpeg", ".png")


class FaceScrubSource(FaceFolderSource):
    """Images that could be downloaded, as `NAME/NAME_FACE-ID.jpg`; links that failed are left out.

    So are files with another checksum than listed. Files hold the linked images, which are cropped
    to the listed box.
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
        """Identifies the lists, and the images that are used."""
        lists = super().fingerprint()
        return combined_fingerprint(lists, tuple(sorted(self._folder.paths)))

    def remarks(self) -> tuple[str, ...]:
        """Says how many images are left out; see `FaceSource.remarks`."""
        return self._folder.remarks

    def content(self) -> str:
        """Identifies the lists, and the images that are there, by size and time of change."""
        folder, states = self.info.folder, []
        for path in sorted(_image_paths(folder).values()):
            status = (folder / path).stat()
            states.append(f"{path} {status.st_size} {status.st_mtime_ns}")
        return combined_fingerprint(super().content(), tuple(states))

    def read_folder(self, folder: Path) -> FaceFolder:
        """Reads both lists, and finds the images."""
        import pandas as pd  # half a second to import

        frames = [pd.read_csv(folder / name, sep="\t") for name in _LISTS]
        frame = pd.concat([f.assign(male=1 - i) for i, f in enumerate(frames)], ignore_index=True)
        paths = _image_paths(folder)
        keys = frame["name"] + "_" + frame["face_id"].astype(str)
        frame = frame.assign(path=keys.map(paths)).dropna(subset="path")
        with ThreadPoolExecutor(_THREADS) as pool:
            found = pool.map(_sha256, (folder / path for path in frame["path"]))
            is_listed = np.fromiter(found, dtype="U64", count=len(frame)) == frame["sha256"]
        others = len(frame) - int(is_listed.sum())
        remark = f"{others:,} images of {folder} have another checksum than listed; left out."
        frame = frame[is_listed]
        if frame.empty:
            raise DataError(
                f"{folder} holds no image NAME/NAME_FACE-ID.jpg of its lists with the listed "
                f"checksum; {others:,} have another one."
            )
        labels = FaceLabels(
            person_numbers(frame["name"].to_numpy(str)),
            frame["male"].to_numpy(np.int64),
            np.full(len(frame), UNKNOWN),
        )
        boxes = np.array([box.split(",") for box in frame["bbox"]], dtype=np.int64)
        return FaceFolder(labels, frame["path"].tolist(), boxes, (remark,) if others else ())


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


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
