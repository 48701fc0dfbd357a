"""The user's own arrays as a data set: from an npz file, or from a function that returns them."""

from __future__ import annotations

import hashlib
import zipfile
from abc import abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, JsonValue

from privnets.data.catalog import DataReference, DataSource, Table, combined_fingerprint
from privnets.data.files import DatasetInfo, FileState, Task, UserFormError
from privnets.references.table_files import MAX_BYTES
from privnets.references.tables import class_labels, describe_target, digest_of, encode_target
from privnets.references.user_files import (
    absolute_path,
    describe_error,
    folder,
    import_object,
    source_digest,
)

_IMAGE_DIMENSIONS: Final = 4


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
    """

    task: Task | None = None
    scale: Literal["standard", "none"] = "standard"

    @abstractmethod
    def load(self) -> tuple[Any, Any]:
        """Returns x and y as the user gives them."""


class ArraysReference(OwnArrays):
    """Arrays `x` and `y` of an npz file, without pickled objects.

    Attributes:
        arrays: Path of the file, from the study's folder.
    """

    arrays: str

    def source(self) -> DataSource:
        """Reads the file, once per process."""
        return _source(self, folder(), digest_of(absolute_path(self.arrays), "arrays"))

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
    params: dict[str, JsonValue] = Field(default_factory=dict)

    def source(self) -> DataSource:
        """Calls the function, once per process and source."""
        return _source(self, folder(), source_digest(self.torch, "torch"))

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


class ArraySource(DataSource):
    """A user's arrays in memory."""

    def __init__(self, reference: OwnArrays) -> None:
        """Reads and checks the arrays.

        Raises:
            UserFormError: If they cannot be read, or their shapes or values are of no use.
        """
        import pandas as pd  # half a second to import

        field = "arrays" if isinstance(reference, ArraysReference) else "torch"
        x, y = (np.asarray(each) for each in reference.load())
        if x.ndim < 2 or y.ndim != 1 or len(x) != len(y):
            given = f"x of shape {list(x.shape)} and y of shape {list(y.shape)}"
            raise UserFormError(field, given, "x [N, ...] and y [N] with equal N")
        if x.dtype.kind not in "buif":
            raise UserFormError(field, f"x of type {x.dtype}", "finite numbers")
        is_image = x.ndim == _IMAGE_DIMENSIONS
        self.x = np.ascontiguousarray(x.reshape(len(x), -1))
        if self.x.dtype != np.uint8:
            self.x = self.x.astype(np.float32 if is_image else np.float64)
        if not np.isfinite(self.x).all():
            raise UserFormError(field, "x with NaN or infinity", "finite numbers")
        self.y, task, classes = encode_target(pd.Series(y, name="y"), reference.task)
        content = hashlib.sha256(self.x.tobytes() + self.y.tobytes()).hexdigest()
        self._fingerprint = combined_fingerprint(
            reference.model_dump_json(), (str(x.shape), content)
        )
        self.info = DatasetInfo(
            name=str(reference),
            title=f"arrays {reference}",
            records=len(x),
            attributes=self.x.shape[1],
            task=task,
            classes=len(classes),
            source=str(reference),
            licence="the user's own",
            citation="",
            shape=x.shape[1:] if is_image else (),
            remarks=(
                f"{reference}: records: {len(x):,}, each of shape {list(x.shape[1:])}.",
                describe_target("y", self.y, classes),
            ),
            labels=class_labels(pd.Series(y)) if classes else (),
        )

    def state(self) -> FileState:
        """The arrays were present when they were read."""
        return "present"

    def fingerprint(self) -> str:
        """Identifies the content and the way it is read."""
        return self._fingerprint

    def read(self, paths: Sequence[Path]) -> Table:
        """Returns the attributes and targets."""
        return self.x, self.y, tuple(f"x{column}" for column in range(self.x.shape[1]))


@lru_cache(maxsize=4)
def _source(reference: OwnArrays, _folder: Path, _content: str) -> ArraySource:
    return ArraySource(reference)
