"""The user's own data sets as a study describes them: a table, arrays in a file, or a function.

The readers, and pandas with them, are imported when a data set is opened.
"""

from __future__ import annotations

import zipfile
from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, JsonValue, field_validator

from privnets.config import UserForm
from privnets.data.catalog import DataReference, DataSource
from privnets.data.files import Task, UserFormError, digest
from privnets.references.user_files import (
    absolute_path,
    describe_error,
    folder,
    import_object,
    source_digest,
)

# YAML has lists, and strict validation accepts only tuples.
Names = Annotated[
    tuple[str, ...], BeforeValidator(lambda v: tuple(v) if isinstance(v, list) else v)
]
MissingValues = Literal["error", "drop", "replace", "keep"]

MAX_BYTES: Final = 2**32
"""Largest size of a file's content that is read, once it is decompressed."""


class TableFormat(UserForm):
    """Settings by which the text of a table is read.

    Attributes:
        separator: Character between the columns of a CSV file.
        decimal: Character before the decimals of a number.
        thousands: Character between groups of three digits, if there is one.
        encoding: Encoding of the characters of a CSV file, as `utf-16` or `cp1252`.
        missing_values: Texts that mean a missing value, besides empty cells. In columns of
            numbers or truth values, texts such as NA and null mean one too.
        dates: Columns of dates, which become numbers of days since 1970-01-01, in UTC.
        date_format: Their format, as `%d/%m/%Y`; ISO 8601 if null.
        header: Whether the first row of a CSV file names the columns; if not, they are `column_1`,
            `column_2` and so on.
    """

    separator: str = ","
    decimal: Literal[".", ","] = "."
    thousands: Literal[",", ".", " ", "'", "_", "\u00a0", "\u2009", "\u202f", "\u2019"] | None = (
        None
    )
    encoding: str = "utf-8"
    missing_values: Names = ()
    dates: Names = ()
    date_format: str | None = None
    # Absent by default: configurations without the setting keep their identity.
    header: bool = Field(default=True, exclude_if=lambda value: value)

    @property
    def form(self) -> TableFormat:
        """These settings without those of a subclass."""
        return TableFormat(**{name: getattr(self, name) for name in TableFormat.model_fields})

    @field_validator("separator", "encoding", "thousands", "date_format")
    @classmethod
    def _check_text(cls, value: str | None, info: Any) -> str | None:
        if info.field_name == "separator" and (
            value is None or len(value) != 1 or not value.isascii() or value in '"\r\n'
        ):
            raise ValueError('must be one ASCII character, as ";" or "\\t"')
        if info.field_name == "encoding":
            try:
                "".encode(str(value))
            except (LookupError, ValueError) as error:
                raise ValueError("must be an encoding of Python, as utf-16 or cp1252") from error
        if info.field_name == "thousands" and value == info.data.get("decimal", "."):
            raise ValueError("must be another character than decimal")
        if info.field_name == "date_format" and value is not None and "%" not in value:
            raise ValueError("must be a format of strptime, as %d/%m/%Y, or null for ISO 8601")
        return value

    @property
    def number_pattern(self) -> str:
        """Regular expression of a number."""
        grouped = rf"[1-9]\d{{0,2}}(?:[{self.thousands}]\d{{3}})+|" if self.thousands else ""
        point = f"[{self.decimal}]"
        digits = rf"(?:(?:{grouped}\d+)(?:{point}\d*)?|{point}\d+)(?:[eE][-+]?\d+)?"
        return rf"^[-+]?(?:{digits}|(?i:inf|infinity))$"


class TableAttributes(TableFormat):
    """Table in a file, and which of its columns are attributes.

    Attributes:
        table: Path of a CSV or parquet file, from the study's folder.
        columns: Attributes; every column without another use if null.
        ignore: Columns that are not attributes, such as identifiers.
        categorical: Columns whose values are categories, besides those that hold texts.
        missing: Whether a missing value is an error, removes its record, is replaced by the
            column's median or a category of its own, or is kept for a model of raw columns.
    """

    table: str
    columns: Names | None = None
    ignore: Names = ()
    categorical: Names = ()
    missing: MissingValues = "error"

    def __str__(self) -> str:
        """Name of the file."""
        return Path(self.table).name


class TableReference(TableAttributes, DataReference):
    """Table with a column to predict.

    Attributes:
        target: Column to predict.
        task: Kind of target; if null, texts, truth values and whole numbers with at most 20
            values are classes, and other numbers a regression target.
        categories: Whether a category becomes a column of zeros and ones, or a whole number in
            alphabetical order.
        scale: Whether attributes get mean 0 and standard deviation 1.
    """

    target: str
    task: Task | None = None
    categories: Literal["one-hot", "integer"] = "one-hot"
    scale: Literal["standard", "none"] = "standard"

    def source(self) -> DataSource:
        """Reads the file, once per process."""
        path = absolute_path(self.table)
        return _open(self, path, digest_of(path, "table"))


class RawTableReference(TableReference):
    """Table for models that take its raw columns; attacks use encoded ones."""


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Reads the arrays of an npz file, without pickled objects.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is damaged, has pickled objects, or more than 4 GiB once decompressed.
        zipfile.BadZipFile: If it is no npz file.
    """
    with zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > MAX_BYTES:
        raise ValueError(f"it holds {size:,} bytes; at most {MAX_BYTES:,} are read")
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


class OwnArrays(DataReference):
    """Records x of shape [N, ...] with targets y of shape [N].

    Attributes:
        task: Kind of target; if null, texts, truth values and whole numbers with at most 20
            values are classes, and other numbers a regression target.
        scale: Whether attributes get mean 0 and standard deviation 1; images by channel.
        entry: Name of the entry that says where they are.
    """

    task: Task | None = None
    scale: Literal["standard", "none"] = "standard"

    entry: ClassVar[str]

    @abstractmethod
    def load(self) -> tuple[Any, Any]:
        """Returns x and y as the user gives them."""


class ArraysReference(OwnArrays):
    """Arrays `x` and `y` of an npz file, without pickled objects.

    Attributes:
        arrays: Path of the file, from the study's folder.
    """

    arrays: str
    entry: ClassVar[str] = "arrays"

    def source(self) -> DataSource:
        """Reads the file, once per process."""
        return _open(self, folder(), digest_of(absolute_path(self.arrays), "arrays"))

    def load(self) -> tuple[Any, Any]:
        """Reads the file."""
        path = absolute_path(self.arrays)
        try:
            arrays = read_npz(path)
            return arrays["x"], arrays["y"]
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            given = f"{path}, which cannot be read ({error})"
            raise UserFormError("arrays", given, "an npz file with arrays x and y") from error

    def __str__(self) -> str:
        """Name of the file."""
        return Path(self.arrays).name


class TorchDatasetReference(OwnArrays):
    """Data set that a function of the user returns.

    The function must return equal records in equal order whenever it is called.

    Attributes:
        torch: Import path `module:function`. It returns tensors or arrays x and y, or a map-style
            data set whose items are pairs of a record and its target.
        params: Keyword arguments of the function.
    """

    torch: str
    entry: ClassVar[str] = "torch"
    params: dict[str, JsonValue] = Field(default_factory=dict)

    def source(self) -> DataSource:
        """Calls the function, once per process and source."""
        return _open(self, folder(), source_digest(self.torch, "torch"))

    def load(self) -> tuple[Any, Any]:
        """Calls the function, and reads every item of a data set."""
        function: Any = import_object(self.torch, "torch")
        try:
            result = function(**self.params)
            if isinstance(result, tuple):
                x, y = result
                return np.asarray(x), np.asarray(y)
            items = [result[index] for index in range(len(result))]
            return (
                np.stack([np.asarray(record) for record, _ in items]),
                np.asarray([np.asarray(target) for _, target in items]),
            )
        except Exception as error:  # any exception of the user's code
            given = f"{self.torch!r}, which fails: {describe_error(error)}"
            expected = "a function that returns x and y, or a data set of pairs"
            raise UserFormError("torch", given, expected) from error

    def __str__(self) -> str:
        """Import path."""
        return self.torch

    def __hash__(self) -> int:
        """Hash of all entries."""
        return hash(self.model_dump_json())


DATA_FORMS: Final[Mapping[str, type[DataReference]]] = {
    "table": TableReference,
    "arrays": ArraysReference,
    "torch": TorchDatasetReference,
}
"""Everything that a study may give in place of the name of a data set."""


@lru_cache(maxsize=8)
def _open(reference: DataReference, place: Path, content: str) -> DataSource:
    """Reads a data set once for each content; `place` is its file, or the study's folder."""
    from privnets.references.tables import ArraySource, TableSource  # pandas takes half a second

    if isinstance(reference, TableReference):
        return TableSource(reference, place, content)
    assert isinstance(reference, OwnArrays)
    return ArraySource(reference)


def digest_of(path: Path, field: str) -> str:
    """Returns the sha256 of a user's file.

    Raises:
        UserFormError: If it is absent or cannot be read; `field` is the entry with its path.
    """
    try:
        return digest(path)
    except OSError as error:
        given = f"{path}, which cannot be read ({error.strerror})"
        raise UserFormError(field, given, "a file that can be read") from error
