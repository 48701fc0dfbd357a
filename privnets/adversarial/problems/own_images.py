"""The user's own folder of images as a problem, with labels in a table."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from privnets.adversarial.encodings import (
    IMAGE_SUFFIXES,
    Array,
    ImageEncoding,
    open_image,
    read_centre,
    released_name,
    require_distinct_releases,
)
from privnets.adversarial.problems.own import LabelledRecords
from privnets.data import UserFormError
from privnets.data.files import digest
from privnets.references.data import TableFormat, digest_of
from privnets.references.problems import ImageProblemReference
from privnets.references.table_files import read_frame
from privnets.references.tables import require_columns
from privnets.references.user_files import absolute_path, combine_digests

if TYPE_CHECKING:
    import pandas as pd

_MAX_NUMBERS: Final = 2**30  # pixels of all images, times channels; 4 GiB


def open_images(reference: ImageProblemReference) -> ImageProblem:
    """Reads the table and the images, once per process and state of these files."""
    folder, table = absolute_path(reference.images), absolute_path(reference.attributes)
    if not folder.is_dir():
        raise UserFormError("images", f"{folder}, which is not a folder", "a folder of images")
    content, states = digest_of(table, "attributes"), []
    for name in _listed_names(table, content, reference.file, reference.form):
        with suppress(OSError):  # an absent image is reported when the problem is read
            status = (folder / name).stat()
            states.append((name, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return _image_problem(reference, folder, table, content, hash(tuple(states)))


class ImageProblem(LabelledRecords):
    """The user's images; their pixels are read when training needs them."""

    network = "convolutional"
    releasers = ("mlp", "convolutional")
    attacker_width = 16
    has_pixels = True

    def __init__(
        self, reference: ImageProblemReference, folder: Path, table: Path, content: str
    ) -> None:
        """Reads the table, and the header of every image; `content` is the table's digest.

        Raises:
            UserFormError: If the table does not fit its description, or an image is absent.
        """
        labels = list({name: 0 for names in reference.labels.values() for name in names})
        frame = read_frame(table, "attributes", reference.form)
        require_columns(frame, [reference.file], "file")
        require_columns(frame, reference.dates, "dates")
        for field, names in reference.labels.items():
            require_columns(frame, names, field)
        known = frame[[reference.file, *labels]].notna().all(axis=1)
        if unknown := int((~known).sum()):
            lacking = f"{unknown:,} of {len(frame):,} images without a name or label are left out"
            self.remarks = (f"{table.name}: {lacking}.",)
        frame = frame[known]
        self.encoding = ImageEncoding(size=reference.size)
        self._paths = _listed_images(folder, frame[reference.file].astype(str))
        if len(self._paths) * 3 * reference.size**2 > _MAX_NUMBERS:
            given = f"{reference.size} for {len(self._paths):,} images"
            raise UserFormError("size", given, "a smaller one, so that they fit into 4 GiB")
        digests = {name: digest(path) for name, path in self._paths.items()}
        identity = combine_digests({**digests, "": content})
        super().__init__(reference, identity, frame[labels])

    @cached_property
    def x(self) -> Array:
        """Pixels in [0, 1], read at first use, shape [n, 3, size, size]."""
        pixels = self.encoding.encode(self._paths)
        pixels.setflags(write=False)
        return pixels

    def encode_release(self, released: Mapping[str, Path]) -> Array:
        """Encodes the images that the table lists; see `OwnProblem.encode_release`."""
        names = [released_name(name) for name in self._paths]
        if absent := [name for name in names if name not in released]:
            raise UserFormError("output", f"no release {absent[0]}", "one of each listed image")
        return self.encoding.encode({name: released[name] for name in names})


@lru_cache(maxsize=2)
def _image_problem(
    reference: ImageProblemReference, folder: Path, table: Path, content: str, _state: int
) -> ImageProblem:
    """The problem, read again if the size or a time stamp of an image changes."""
    return ImageProblem(reference, folder, table, content)


@lru_cache(maxsize=2)
def _listed_names(table: Path, _content: str, column: str, form: TableFormat) -> tuple[str, ...]:
    """Names of images in a column of a table; empty without the column."""
    frame = read_frame(table, "attributes", form)
    return tuple(frame[column].dropna().astype(str)) if column in frame else ()


def _listed_images(folder: Path, names: pd.Series[str]) -> dict[str, Path]:
    """Paths of images by name.

    Raises:
        UserFormError: If a name repeats, leads out of the folder, or is not an image.
    """
    names = names.map(lambda name: str(Path(name)))  # without a leading `./`
    if (repeated := names[names.duplicated()]).size:
        raise UserFormError("file", f"{repeated.iloc[0]} twice", "each image once")
    paths = {name: folder / name for name in names}
    for name, path in paths.items():
        if ".." in Path(name).parts or not path.is_relative_to(folder):
            raise UserFormError("file", repr(name), "paths in the folder of images")
        if path.suffix.lower() not in IMAGE_SUFFIXES:
            raise UserFormError(
                "file", repr(name), f"names that end in {', '.join(IMAGE_SUFFIXES)}"
            )
        with open_image(name, path) as image:
            if image.has_transparency_data:
                read_centre(image, image.width)
    require_distinct_releases("file", list(paths))
    return paths
