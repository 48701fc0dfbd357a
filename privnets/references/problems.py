"""What a study may say of a problem: settings of a packaged one, or the user's own records."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field

from privnets.config import UserForm
from privnets.data import UserFormError
from privnets.points import Scalar
from privnets.references.table_format import Names, TableAttributes, TableFormat

SequenceForm = Literal["joint", "sum"]


def _require_order(ends: tuple[float, float]) -> tuple[float, float]:
    if ends[0] > ends[1]:
        raise ValueError("must have the smallest number first")
    return ends


# YAML has lists, and strict validation accepts only tuples.
Range = Annotated[
    tuple[float, float],
    BeforeValidator(lambda v: tuple(v) if isinstance(v, list) else v),
    AfterValidator(_require_order),
]
"""Smallest and largest number of a release."""


class ProblemSettings(UserForm):
    """Settings of a problem; none by default.

    A setting whose name is in `stackable` must be a number that may differ within a stack.
    """

    @property
    def shows_side_information(self) -> bool:
        """Whether releaser and adversary see the records' side information."""
        return False

    @property
    def sequence_form(self) -> SequenceForm:
        """Conditional entropy of a sequence: of all steps jointly, or summed."""
        return "joint"


class SequenceSettings(ProblemSettings):
    """Settings of a problem whose records are sequences with a secret at each step."""

    sequence: SequenceForm = Field(
        "joint", description="conditional entropy of a sequence: of all steps jointly, or summed"
    )

    @property
    def sequence_form(self) -> SequenceForm:
        """The setting `sequence`."""
        return self.sequence


class OwnReference(ProblemSettings):
    """The user's own records, which a study describes where it could name a problem.

    Attributes:
        defaults: Configuration fields whose default differs from the experiment's.
    """

    defaults: ClassVar[Mapping[str, Scalar]]

    @abstractmethod
    def describe(self, records: Path, labels: Path | None) -> Self:
        """Describes other records of the same form.

        Args:
            records: Their file or folder.
            labels: File of their labels, if that is another one.

        Raises:
            UserFormError: If this form of records needs such a file, or has none.
        """


class TableFileReference(OwnReference):
    """The user's own records in one table, with their labels.

    Attributes:
        ranges: Smallest and largest released number of columns, in place of those of the table.
        file_field: Entry with the path of the table.
    """

    ranges: dict[str, Range] = Field(default_factory=dict)
    file_field: ClassVar[str]

    def __hash__(self) -> int:
        """Hash of all entries; `ranges` alone has none."""
        return hash(self.model_dump_json())

    def __str__(self) -> str:
        """Name of the file."""
        return Path(getattr(self, self.file_field)).name

    def describe(self, records: Path, labels: Path | None) -> Self:
        """Describes another table; see `OwnReference.describe`."""
        if labels is not None:
            expected = "none, since the records have their secrets"
            raise UserFormError("labels", str(labels), expected)
        return self.model_copy(update={self.file_field: str(records.absolute())})


class LabelledReference(OwnReference):
    """Records with labels in columns of a table.

    Attributes:
        secret: Column of the secret, or several columns: each combination of values is a class.
        utility: Columns of the utility label, in the same way; null for a release that should
            only resemble its record.
    """

    secret: str | Names
    utility: str | Names | None = None

    @property
    def labels(self) -> Mapping[str, tuple[str, ...]]:
        """Columns by the entry that names them."""
        given = {"secret": self.secret, "utility": self.utility or ()}
        return {k: (v,) if isinstance(v, str) else tuple(v) for k, v in given.items()}


class TableProblemReference(TableFileReference, TableAttributes, LabelledReference):
    """The user's table: attributes are released, and a secret is hidden."""

    defaults: ClassVar[Mapping[str, Scalar]] = {}
    file_field: ClassVar[str] = "table"


class ImageProblemReference(TableFormat, LabelledReference):
    """The user's folder of JPEG and PNG images, and a table of their attributes.

    Attributes:
        images: Folder, from the study's folder.
        attributes: CSV or parquet table with a row for each image, from the study's folder.
        file: Column of the images' paths in the folder.
        size: Height and width to which the centre of each image is resized, in pixels.
    """

    images: str
    attributes: str
    file: str = "file"
    size: int = Field(64, ge=8, le=512)

    defaults: ClassVar[Mapping[str, Scalar]] = {
        "releaser": "convolutional",
        "adversary_width": 16,
        "distortion_weight": 10.0,
        "utility_weight": 2.0,
        "noise_std": 0.1,
        "batch_size": 64,
    }

    def __str__(self) -> str:
        """Name of the folder."""
        return f"images {Path(self.images).name}"

    def describe(self, records: Path, labels: Path | None) -> Self:
        """Describes another folder; see `OwnReference.describe`."""
        if labels is None:
            raise UserFormError("labels", "nothing", "the table of the images' attributes")
        paths = {"images": str(records.absolute()), "attributes": str(labels.absolute())}
        return self.model_copy(update=paths)


class SeriesProblemReference(TableFileReference, TableFormat, SequenceSettings):
    """The user's table of readings, in any order.

    Attributes:
        series: CSV or parquet table with a row for each reading, from the study's folder.
        id: Column of the series that a reading belongs to.
        time: Column by which the readings of a series are ordered: numbers, times, or ISO 8601
            texts.
        value: Column of the reading, which is released.
        secret: Column of the secret at that time, or several columns; it may be empty.
        window: Readings that are released together.
    """

    series: str
    id: str
    time: str
    value: str
    secret: str | Names
    window: int = Field(24, ge=2, le=1024)

    file_field: ClassVar[str] = "series"
    defaults: ClassVar[Mapping[str, Scalar]] = {
        "releaser": "recurrent",
        "adversary_width": 32,
        "batch_size": 64,
    }

    @property
    def secrets(self) -> tuple[str, ...]:
        """Columns of the secret."""
        return (self.secret,) if isinstance(self.secret, str) else tuple(self.secret)


PROBLEM_FORMS: Final[Mapping[str, type[OwnReference]]] = {
    "table": TableProblemReference,
    "images": ImageProblemReference,
    "series": SeriesProblemReference,
}
"""Everything that a study may give in place of the name of a problem."""
