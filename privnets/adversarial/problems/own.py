"""The user's own tables and folders of images as problems, and how all own records are split."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.encodings import (
    IMAGE_SUFFIXES,
    Array,
    ImageEncoding,
    RecordEncoding,
    TableEncoding,
    open_image,
    read_centre,
    released_name,
    require_distinct_releases,
)
from privnets.adversarial.problem import (
    SHARES,
    NetworkKind,
    Problem,
    ProblemSpec,
    RecordArrays,
    Splits,
    SplitSizes,
    split_records,
    stratified_sizes,
)
from privnets.data import UserFormError, raise_together
from privnets.data.catalog import combined_fingerprint
from privnets.data.files import digest
from privnets.references.columns import (
    describe_classes,
    describe_records,
    identifier_remarks,
    require_distinct_classes,
    text_remarks,
)
from privnets.references.data import digest_of
from privnets.references.problems import (
    ImageProblemReference,
    LabelledReference,
    OwnReference,
    TableProblemReference,
)
from privnets.references.table_files import read_frame
from privnets.references.table_format import TableFormat
from privnets.references.tables import (
    category_texts,
    class_labels,
    encode_classes,
    known_records,
    require_columns,
)
from privnets.references.user_files import absolute_path, combine_digests

MIN_RECORDS: Final = sum(SHARES)  # of a class, so that every part has some
_MAX_CLASSES: Final = 100
_MAX_NUMBERS: Final = 2**30  # pixels of all images, times channels; 4 GiB


@dataclass(frozen=True, eq=False)
class Labels:
    """Classes of each record, int64, shape [n]; their names in order, and their values."""

    codes: NDArray[np.int64]
    classes: tuple[str, ...]
    values: tuple[bool | int | float | str, ...]

    def describe(self, name: str) -> str:
        """Sentence on the number of records of each class."""
        counts = np.bincount(self.codes).tolist()
        return describe_classes(name, dict(zip(self.classes, counts, strict=True)))


class OwnProblem(Problem):
    """The user's own records.

    Attributes:
        digest: Identifies the content of all files.
        x: Encoded records, read-only, shape [n, ...].
    """

    encoding: RecordEncoding
    reference: OwnReference
    digest: str
    x: Array

    @cached_property
    def _fingerprint(self) -> str:
        return self.fingerprint_as(self.reference)

    def fingerprint(self, config: AdversarialConfig) -> str:
        """Identifies the content of the files and the way they are read."""
        return self._fingerprint

    def fingerprint_as(self, reference: OwnReference) -> str:
        """Fingerprint of these files if `reference` named them."""
        return combined_fingerprint(reference.model_dump_json(), (self.digest,))

    @abstractmethod
    def encode_release(self, released: Any) -> Array:
        """Encodes the release of these records, as `encoding.read` returns it, shape [n, ...]."""

    def record_encoding(self, config: AdversarialConfig) -> RecordEncoding:
        """Relation of the user's form of records to their arrays."""
        return self.encoding

    def test_set(self, config: AdversarialConfig) -> tuple[str, float]:
        """All records, of which each seed draws a test split at random."""
        sizes = self.whole_sizes(config)
        share = sizes.test / (sizes.train + sizes.attack + sizes.validation + sizes.test)
        return f"{self.name} {self._fingerprint[:8]}", share


class LabelledRecords(OwnProblem):
    """Records with a secret and perhaps a utility label.

    The seed splits them, stratified by both labels.
    """

    network: ClassVar[NetworkKind] = "perceptron"
    releasers: ClassVar[tuple[str, ...]]
    attacker_width: ClassVar[int] = 64
    has_pixels: ClassVar[bool] = False

    def __init__(self, reference: LabelledReference, digest: str, labels: pd.DataFrame) -> None:
        """Describes records by the columns of their labels, a row for each record.

        Raises:
            UserFormError: If a label has too few classes, too many, or a rare one.
        """
        self.reference, self.digest, self._count = reference, digest, len(labels)
        self._secret = joint_classes(labels, reference.labels["secret"], "secret")
        self._utility = None
        if reference.utility is not None:
            self._utility = joint_classes(labels, reference.labels["utility"], "utility")
        uses = {"secret": self._secret, "utility": self._utility}
        self._classes = tuple(each.describe(use) for use, each in uses.items() if each)
        self.remarks = (*self.remarks, *self._classes, *text_remarks(labels))
        self.spec = ProblemSpec(
            name=str(reference),
            secret_classes=len(self._secret.classes),
            utility_classes=len(self._utility.classes) if self._utility else 0,
            releasers=self.releasers,
            defaults=reference.defaults,
            attacker_width=self.attacker_width,
            network=self.network,
            pixels=self.has_pixels,
        )

    def describe_labels(self, config: AdversarialConfig) -> tuple[str, ...]:
        """Sentences on both labels, with the user's names of classes."""
        return self._classes

    @property
    def utility_labels(self) -> NDArray[Any]:
        """Values of the label's column, or texts of several columns."""
        return np.array(self._utility.values if self._utility else ())

    def whole_sizes(self, config: AdversarialConfig) -> SplitSizes:
        """40, 35, 10 and 15% of the records."""
        return SplitSizes.from_counts(stratified_sizes(self._count, SHARES), self.encoding.shape)

    def load_records(
        self, configs: Sequence[AdversarialConfig]
    ) -> tuple[RecordArrays, list[Splits]]:
        """All records, and a split for each configuration."""
        secret, utility = self._secret.codes, self._utility.codes if self._utility else None
        strata = secret
        if utility is not None:  # Neighbouring strata share the secret: every part has its classes.
            strata = secret * (utility.max() + 1) + utility
        return RecordArrays(self.x, secret, utility), split_records(strata, configs)


class TableProblem(LabelledRecords):
    """The user's table as vectors: scaled numbers, and categories as zeros and ones.

    Means, deviations, ranges and categories come from all records and count as public.
    """

    releasers = ("linear", "mlp")

    def __init__(
        self,
        reference: TableProblemReference,
        path: Path,
        digest: str,
        encoding: RecordEncoding | None,
    ) -> None:
        """Reads a file; without an encoding, it is measured on the file.

        Raises:
            UserFormError: If the file does not fit its description.
        """
        whole = read_frame(path, form=reference.form)
        frame, errors = known_records(whole, reference, reference.labels)
        labels = [name for names in reference.labels.values() for name in names]
        try:
            super().__init__(reference, digest, frame[labels])
        except UserFormError as error:
            errors.append(error)
        raise_together(errors)
        attributes = frame.drop(columns=labels)
        if encoding is None:
            categorical, missing = reference.categorical, reference.missing
            form, ranges = reference.form, reference.ranges
            encoding = TableEncoding.fit(attributes, categorical, missing, form, ranges)
        width = encoding.shape[0]
        self.remarks = (
            describe_records(path.name, len(whole), attributes, reference.categorical, width),
            *identifier_remarks(attributes),
            *text_remarks(attributes, reference.categorical),
            *self.remarks,
        )
        self.encoding = encoding
        self._rows = encoding.complete(whole).index.get_indexer(frame.index)  # in a release
        self.x = encoding.encode(attributes)
        self.x.setflags(write=False)

    def encode_release(self, released: pd.DataFrame) -> Array:
        """Encodes the rows that are used; see `OwnProblem.encode_release`."""
        return self.encoding.encode(released.iloc[self._rows])


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
    def x(self) -> Array:  # type: ignore[override]
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


def joint_classes(frame: pd.DataFrame, names: Sequence[str], field: str) -> Labels:
    """Classes of one column, or of each combination of values of several.

    Raises:
        UserFormError: If there are not 2 to 100 classes of at least 20 records; `field` is the
            entry that named the columns.
    """
    require_columns(frame, names, field)
    for name in names:
        require_distinct_classes(frame[name], field)
    column: pd.Series[Any] = frame[names[0]]
    if len(names) > 1:
        texts = [name + "=" + category_texts(frame[name]) for name in names]
        column = reduce(lambda joined, each: joined + ", " + each, texts)
    codes, classes = encode_classes(column)
    given = f"{', '.join(names)} with {len(classes):,} classes"
    if not 2 <= len(classes) <= _MAX_CLASSES:
        raise UserFormError(field, given, f"2 to {_MAX_CLASSES} classes; group the values")
    counts = np.bincount(codes)
    if counts.min() < MIN_RECORDS:
        rare = f"{', '.join(names)}, where {classes[counts.argmin()]} has {counts.min()} records"
        raise UserFormError(field, rare, f"at least {MIN_RECORDS} records of each class")
    return Labels(codes, classes, class_labels(column))


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
