"""The user's own data sets as a study describes them: a table, arrays in a file, or a function.

The readers, and pandas with them, are imported when a data set is opened.
"""

from __future__ import annotations

import zipfile
from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, JsonValue

from privnets.data.catalog import DataReference, DataSource
from privnets.data.files import Task, UserFormError, digest
from privnets.references.table_format import MAX_BYTES, TableAttributes
from privnets.references.user_files import (
    absolute_path,
    describe_error,
    folder,
    import_object,
    source_digest,
)


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

    reader: ClassVar[str] = "privnets.references.tables:TableSource"

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

    keeps_raw_columns: ClassVar[bool] = True


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

    reader: ClassVar[str] = "privnets.references.tables:ArraySource"
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
    reader: Any = EntryPoint("reader", reference.reader, "").load()
    source: DataSource = reader(reference, place, content)
    return source


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
