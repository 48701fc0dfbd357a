"""Columns of released tables: arrays for networks, and values of the type that they had before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from privnets.data import UserFormError
from privnets.references.columns import is_number, kind_of
from privnets.references.problems import Range
from privnets.references.table_files import EXACT
from privnets.references.tables import MISSING, category_texts

Dtype = Literal["object", "category", "boolean", "Int64", "Float64"]

_MAX_DECIMALS: Final = 6


class ColumnChange(NamedTuple):
    """Difference between a released column and the original.

    Attributes:
        name: Name of the column.
        kind: `integers`, `numbers`, `categories` or `truth values`.
        change: Mean absolute difference, or the share of records with another category.
        clipped: Share of numbers that were moved to an end of the column's range.
        decimals: Decimals to which numbers were rounded; None if they were not.
    """

    name: str
    kind: Literal["integers", "numbers", "categories", "truth values"]
    change: float
    clipped: float = 0.0
    decimals: int | None = None

    @property
    def description(self) -> str:
        """Sentence on the column."""
        if self.kind in ("categories", "truth values"):
            return f"{self.name}: {self.kind}, {self.change:.1%} of records have another one"
        rounding = f", rounded to {self.decimals} decimals" if self.decimals else ""
        return (
            f"{self.name}: {self.kind}{rounding}, mean absolute change {self.change:.4g}, "
            f"{self.clipped:.1%} clipped to the range"
        )


class NumberColumn(BaseModel):
    """Column of numbers, scaled to mean 0 and standard deviation 1.

    Releases have no more decimals than the measured numbers, and stay in a range.

    Attributes:
        low: Smallest released number: the smallest measured one, or as declared.
        high: Largest released number.
        decimals: Decimals of released numbers; None if the measured ones have more than six.
        fill: Replaces missing values; None if they are errors.
        width: Number of encoded columns.
    """

    width: ClassVar[int] = 1
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    mean: float
    std: float = Field(gt=0)
    low: float
    high: float
    decimals: int | None = Field(ge=0, le=_MAX_DECIMALS)
    fill: float | None = None

    @property
    def is_whole(self) -> bool:
        """Whether releases are integers."""
        return self.decimals == 0 and max(-self.low, self.high) <= EXACT

    @classmethod
    def fit(
        cls, name: str, column: pd.Series[Any], *, fills: bool, declared: Range | None = None
    ) -> NumberColumn:
        """Measures a column, whose median `fills` missing values; `declared` is another range.

        Raises:
            UserFormError: If numbers are infinite, or the range has decimals that they lack.
        """
        fill = float(column.median()) if fills else None
        known = column.dropna().to_numpy(np.float64)
        numbers = column.to_numpy(np.float64, na_value=np.nan)
        numbers = np.where(np.isnan(numbers), fill or 0.0, numbers)
        if not np.isfinite(numbers).all():
            raise UserFormError("columns", f"infinite numbers in {name!r}", "finite ones")
        low, high = declared or (known.min(), known.max())
        counts = range(_MAX_DECIMALS + 1)  # the fewest that write all numbers exactly
        decimals = next((d for d in counts if np.array_equal(known.round(d), known)), None)
        if decimals is not None and any(round(end, decimals) != end for end in (low, high)):
            expected = f"ends with at most {decimals} decimals, as the column has"
            raise UserFormError("ranges", f"{name}: [{low:g}, {high:g}]", expected)
        return cls(
            name=name,
            mean=numbers.mean(),
            std=numbers.std() or 1.0,
            low=low,
            high=high,
            decimals=decimals,
            fill=fill,
        )

    def encode(self, column: pd.Series[Any]) -> NDArray[np.float64]:
        """Scales numbers, shape [n, 1]."""
        if not is_number(column) and len(column):
            raise UserFormError(self.name, f"{column.iloc[0]!r} in this column", "numbers")
        numbers = column.to_numpy(np.float64, na_value=np.nan)
        if self.fill is not None:
            numbers = np.where(np.isnan(numbers), self.fill, numbers)
        if not np.isfinite(numbers).all():
            raise UserFormError(self.name, "missing or infinite numbers", "finite ones")
        return self._scale(numbers)

    def decode(self, z: NDArray[np.float64]) -> NDArray[Any]:
        """Rounded numbers in original units and in the range, shape [n]."""
        numbers = self._numbers(z).clip(self.low, self.high)
        return numbers.astype(np.int64) if self.is_whole else numbers

    def reencode(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scales the numbers that `decode` returns, shape [n, 1]."""
        return self._scale(self.decode(z).astype(np.float64))

    def change(
        self, original: pd.Series[Any], released: pd.Series[Any], z: NDArray[np.float64]
    ) -> ColumnChange:
        """Compares a column with its release, which `z` [n, 1] was before rounding."""
        numbers = self._numbers(z)
        clipped = float(((numbers < self.low) | (numbers > self.high)).mean())
        kind: Literal["integers", "numbers"] = "integers" if self.is_whole else "numbers"
        difference = float((released - original).abs().mean())
        return ColumnChange(self.name, kind, difference, clipped, self.decimals)

    def _scale(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        return (numbers[:, None] - self.mean) / self.std

    def _numbers(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rounded numbers in original units, shape [n]."""
        numbers: NDArray[np.float64] = self.mean + self.std * z[:, 0]
        if self.decimals is not None:
            numbers = numbers.round(self.decimals)
        return numbers + 0.0  # no negative zero, whose sign a file would show


class CategoryColumn(BaseModel):
    """Column of categories, as zeros and a one.

    Attributes:
        categories: Texts, sorted; `missing` for missing values.
        dtype: Type of pandas of released values; `object` for texts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    categories: tuple[str, ...] = Field(min_length=1)
    dtype: Dtype

    @property
    def width(self) -> int:
        """Number of encoded columns."""
        return len(self.categories)

    @classmethod
    def fit(cls, name: str, column: pd.Series[Any]) -> CategoryColumn:
        """Collects the categories of a column."""
        texts = tuple(sorted(set(category_texts(column))))
        dtype: Dtype = "object"
        if column.dtype == "category":
            dtype = "category"
        elif kind_of(column) == "truth values":
            dtype = "boolean"
        elif is_number(column):
            is_whole = all(text.lstrip("-").isdigit() for text in texts if text != MISSING)
            dtype = "Int64" if is_whole else "Float64"
        return cls(name=name, categories=texts, dtype=dtype)

    @model_validator(mode="after")
    def _require_values(self) -> Self:
        self._values()
        return self

    def encode(self, column: pd.Series[Any]) -> NDArray[np.float64]:
        """Zeros and a one for each record, shape [n, categories]."""
        texts = self._texts(column)
        numbers = {category: number for number, category in enumerate(self.categories)}
        codes = texts.map(numbers)
        if codes.isna().any():
            unknown = texts[codes.isna()].iloc[0]
            listed = ", ".join(self.categories[:10])
            expected = f"a category that the releaser was trained on: {listed}"
            raise UserFormError(self.name, repr(unknown), expected)
        return np.eye(self.width)[codes.to_numpy(np.int64)]

    def decode(self, z: NDArray[np.float64]) -> Any:
        """The category with the highest score for each record, in its type, shape [n]."""
        values, likeliest = self._values(), z.argmax(axis=1)
        if None in values or self.dtype == "category":
            return pd.array(values, dtype=self.dtype).take(likeliest)
        return np.array(values, dtype=object if self.dtype == "object" else None)[likeliest]

    def reencode(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        """A one for the highest score, and zeros, shape [n, categories]."""
        ones: NDArray[np.float64] = np.eye(self.width)[z.argmax(axis=1)]
        return ones

    def change(
        self, original: pd.Series[Any], released: pd.Series[Any], z: NDArray[np.float64]
    ) -> ColumnChange:
        """Compares a column with its release."""
        different = self._texts(original) != self._texts(released)
        kind: Literal["categories", "truth values"] = "categories"
        if self.dtype == "boolean":
            kind = "truth values"
        return ColumnChange(self.name, kind, float(different.mean()))

    def _texts(self, column: pd.Series[Any]) -> pd.Series[str]:
        """Values as texts; numbers as those of `categories` are written."""
        if self.dtype == "Float64" and is_number(column):
            return column.astype("float64").astype(str).where(column.notna(), MISSING)
        return category_texts(column)

    def _values(self) -> list[Any]:
        """Categories as values; those of missing numbers and truth values are None."""
        if self.dtype in ("object", "category"):
            return list(self.categories)
        parse: dict[str, Callable[[str], Any]] = {"Int64": int, "Float64": float}
        parse["boolean"] = "True".__eq__
        return [None if text == MISSING else parse[self.dtype](text) for text in self.categories]
