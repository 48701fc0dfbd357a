"""Encodings of records: from the user's form to a network's arrays, and back.

A trained releaser is stored with its encoding, so both are plain JSON without code.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field

from privnets.adversarial.released_columns import (
    CategoryColumn,
    ColumnChange,
    NumberColumn,
)
from privnets.data import UserFormError
from privnets.data.faces import centre_square
from privnets.references.columns import is_number
from privnets.references.problems import Range
from privnets.references.table_files import STANDARD, read_frame
from privnets.references.table_format import MissingValues, TableFormat
from privnets.references.tables import require_columns

Array = NDArray[np.float32]

IMAGE_SUFFIXES: Final = (".jpeg", ".jpg", ".png")
_IMAGES_AT_ONCE = 256


class RecordEncoding(BaseModel):
    """Base class of encodings, which by default read and write tables.

    Attributes:
        form: Settings by which tables are read and written.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    form: TableFormat = STANDARD
    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".csv.gz", ".parquet")
    """Names of files that `write` writes; none if it writes folders."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one encoded record."""

    @abstractmethod
    def encode(self, records: Any) -> Array:
        """Encodes records to an array [n, *shape].

        Raises:
            UserFormError: If the records have another form.
        """

    def secret_classes(self, records: Any) -> NDArray[np.int64] | None:
        """Secrets of records [n, ...], for a releaser that sees them; -1 where unknown."""
        return None

    @abstractmethod
    def decode(self, z: Array, records: Any) -> Any:
        """Returns encoded releases [n, *shape] in the form of the records, which they replace."""

    def reencode(self, z: Array) -> Array:
        """Returns releases [n, *shape] as they are after `decode` and `encode`."""
        return z

    def changes(self, records: Any, released: Any, z: Array) -> tuple[ColumnChange, ...]:
        """Compares each column of records with its release, which `z` was before `decode`."""
        return ()

    def read(self, path: Path) -> Any:
        """Reads records from a file or folder of the user: here a CSV or parquet file.

        Raises:
            UserFormError: If that is not possible.
        """
        return read_frame(path, form=self.form)

    def read_release(self, path: Path) -> Any:
        """Reads what `write` wrote: a CSV file has a header."""
        form = self.form.model_copy(update={"header": True})
        return self.model_copy(update={"form": form}).read(path)

    def complete(self, records: Any) -> Any:
        """Records of a file that can be released."""
        return records

    def parts(self, records: Any) -> Iterator[Any]:
        """Splits records into parts that fit into memory once released."""
        yield records

    def write(self, released: Any, path: Path) -> None:
        """Writes the decoded releases of one part: here a parquet file, else a CSV file.

        Raises:
            OSError: If that is not possible.
        """
        if path.suffix == ".parquet":
            released.to_parquet(path, index=False)
        else:
            form = self.form
            separators = {"sep": form.separator, "decimal": form.decimal}
            released.to_csv(path, index=False, encoding=form.encoding, **separators)


class ArrayEncoding(RecordEncoding):
    """Arrays that are already on the network's scale."""

    suffixes: ClassVar[tuple[str, ...]] = (".npy",)
    kind: Literal["array"] = "array"
    record_shape: tuple[Annotated[int, Field(ge=1)], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one record."""
        return self.record_shape

    def encode(self, records: Any) -> Array:
        """Checks the shape; see `RecordEncoding.encode`."""
        x = np.asarray(records, dtype=np.float32)
        if x.shape[1:] != self.shape or not np.isfinite(x).all():
            expected = f"finite numbers of shape [n, {', '.join(map(str, self.shape))}]"
            raise UserFormError("input", f"an array of shape {list(x.shape)}", expected)
        return x

    def decode(self, z: Array, records: Any) -> Array:
        """Returns the releases."""
        return z

    def read(self, path: Path) -> Any:
        """Reads an array from a `.npy` file; see `RecordEncoding.read`."""
        try:
            return np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            given = f"{path}, which cannot be read ({error})"
            raise UserFormError("input", given, "a file that ends in .npy") from error

    def write(self, released: Any, path: Path) -> None:
        """Writes an array as a `.npy` file."""
        np.save(path, released, allow_pickle=False)


class TableEncoding(RecordEncoding):
    """Columns of a table, side by side.

    Attributes:
        drops: Whether a file's records with missing values are left out.
    """

    kind: Literal["table"] = "table"
    columns: tuple[NumberColumn | CategoryColumn, ...] = Field(min_length=1)
    drops: bool = False

    @property
    def shape(self) -> tuple[int]:
        """Number of encoded columns."""
        return (sum(column.width for column in self.columns),)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [column.name for column in self.columns]

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame,
        categorical: Sequence[str],
        missing: MissingValues,
        form: TableFormat = STANDARD,
        ranges: Mapping[str, Range] | None = None,
    ) -> TableEncoding:
        """Measures every column of a table; see `TableProblemReference` for the arguments.

        Raises:
            UserFormError: If a range does not fit its column.
        """
        fills, declared = missing == "replace", ranges or {}
        numbers = [str(n) for n, each in frame.items() if is_number(each) and n not in categorical]
        require_numbers(declared, numbers)
        columns = [
            NumberColumn.fit(str(name), column, fills=fills, declared=declared.get(str(name)))
            if name in numbers
            else CategoryColumn.fit(str(name), column)
            for name, column in frame.items()
        ]
        return cls(columns=tuple(columns), drops=missing == "drop", form=form)

    def complete(self, records: pd.DataFrame) -> pd.DataFrame:
        """Records without missing values, if others are left out; see `RecordEncoding`."""
        require_columns(records, self.names, "input")
        complete = records.dropna(subset=self.names) if self.drops else records
        if complete.empty:
            raise UserFormError("input", "a missing value in every record", "complete records")
        return complete

    def encode(self, records: pd.DataFrame) -> Array:
        """Encodes a table's columns; others are left out. See `RecordEncoding.encode`."""
        require_columns(records, self.names, "input")
        blocks = [column.encode(records[column.name]) for column in self.columns]
        return np.hstack(blocks).astype(np.float32)

    def reencode(self, z: Array) -> Array:
        """Rounds numbers, and replaces the scores of categories by a one and zeros."""
        blocks = zip(self.columns, self._blocks(z), strict=True)
        return np.hstack([column.reencode(block) for column, block in blocks]).astype(np.float32)

    def decode(self, z: Array, records: pd.DataFrame) -> pd.DataFrame:
        """Rounded numbers in original units and in their range, and the likeliest categories.

        Both are computed from a release alone, so they reveal no more than it does.
        """
        values = zip(self.columns, self._blocks(z), strict=True)
        columns = {column.name: column.decode(block) for column, block in values}
        return pd.DataFrame(columns, index=records.index)

    def changes(
        self, records: pd.DataFrame, released: pd.DataFrame, z: Array
    ) -> tuple[ColumnChange, ...]:
        """Compares each column with its release; see `RecordEncoding.changes`."""
        blocks = zip(self.columns, self._blocks(z), strict=True)
        return tuple(c.change(records[c.name], released[c.name], block) for c, block in blocks)

    def _blocks(self, z: Array) -> list[NDArray[np.float64]]:
        """Encoded values of each column, [n, width]."""
        ends = np.cumsum([column.width for column in self.columns])[:-1]
        return np.split(z.astype(np.float64), ends, axis=1)


def require_numbers(ranges: Mapping[str, Range], numbers: Sequence[str]) -> None:
    """Raises UserFormError if a range is declared of another column than released numbers."""
    if wrong := [name for name in ranges if name not in numbers]:
        expected = f"released columns of numbers: {', '.join(numbers)}"
        raise UserFormError("ranges", repr(wrong[0]), expected)


class ImageEncoding(RecordEncoding):
    """Square RGB images: the centre of each, resized.

    Records are a mapping from file names to paths or images of Pillow. Releases are PNG files of
    exactly the `size` x `size` encoded pixels: the original's size and format would reveal more.
    """

    suffixes: ClassVar[tuple[str, ...]] = ()
    kind: Literal["images"] = "images"
    size: int = Field(ge=8, le=512)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return 3, self.size, self.size

    def encode(self, records: Mapping[str, Path | Image.Image]) -> Array:
        """Reads pixels in [0, 1]; see `RecordEncoding.encode`."""
        x = np.empty((len(records), *self.shape), dtype=np.float32)
        for place, (name, record) in enumerate(records.items()):
            with open_image(name, record) as image:
                square = read_centre(image, self.size)
                x[place] = np.asarray(square, dtype=np.float32).transpose(2, 0, 1) / 255
        return x

    def reencode(self, z: Array) -> Array:
        """Rounds pixels to 8 bits."""
        levels: Array = (z * 255).round().clip(0, 255)
        return levels / np.float32(255)

    def decode(self, z: Array, records: Mapping[str, Path | Image.Image]) -> dict[str, Image.Image]:
        """Images of `size` pixels, in 8 bits."""
        levels = (z.transpose(0, 2, 3, 1) * 255).round().clip(0, 255).astype(np.uint8)
        return dict(zip(records, map(Image.fromarray, levels), strict=True))

    def read(self, path: Path) -> dict[str, Path]:
        """Lists the images of a folder; see `RecordEncoding.read`."""
        files = sorted(path.rglob("*")) if path.is_dir() else []
        images = {str(f.relative_to(path)): f for f in files if f.suffix.lower() in IMAGE_SUFFIXES}
        if not images:
            given = f"{path}, which holds no such file"
            raise UserFormError("input", given, f"a folder of {', '.join(IMAGE_SUFFIXES)} files")
        require_distinct_releases("input", list(images))
        return images

    def parts(self, records: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Splits records into parts of 256 images."""
        names = list(records)
        for first in range(0, len(names), _IMAGES_AT_ONCE):
            yield {name: records[name] for name in names[first : first + _IMAGES_AT_ONCE]}

    def write(self, released: Mapping[str, Image.Image], path: Path) -> None:
        """Writes images to a folder as PNG files; see `released_name`."""
        for name, image in released.items():
            file = path / released_name(name)
            file.parent.mkdir(parents=True, exist_ok=True)
            image.save(file)


def released_name(name: str) -> str:
    """Name of the release of an image file: the same, but with the suffix `.png`."""
    return str(Path(name).with_suffix(".png"))


def require_distinct_releases(field: str, names: Sequence[str]) -> None:
    """Raises UserFormError if releases of two images have one name; `field` is their entry."""
    repeated = [name for name, count in Counter(map(released_name, names)).items() if count > 1]
    if repeated:
        given = f"{repeated[0]} twice as the name of a release"
        raise UserFormError(field, given, "images whose names differ without their suffixes")


def open_image(name: str, record: Path | Image.Image) -> Image.Image:
    """Opens an image, without reading its pixels yet.

    Raises:
        UserFormError: If it is not a JPEG or PNG file.
    """
    if isinstance(record, Image.Image):
        return record.copy()
    try:
        return Image.open(record, formats=("JPEG", "PNG"))
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        given = f"{name}, which cannot be read ({error})"
        raise UserFormError("images", given, "a JPEG or PNG file") from error


def read_centre(image: Image.Image, size: int) -> Image.Image:
    """The largest square in the middle of an image, resized, in RGB.

    Raises:
        UserFormError: If the file is damaged, or pixels are transparent or of an unknown range.
    """
    try:
        return centre_square(image, size)
    except (OSError, ValueError, SyntaxError) as error:  # a damaged file
        name = getattr(image, "filename", "an image")
        given = f"{name}, which cannot be read ({error})"
        raise UserFormError("images", given, "a JPEG or PNG file without transparency") from error
