"""How a study describes a table in a file: the format of its text, and which columns count."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field, field_validator

from privnets.config import UserForm

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

    keeps_raw_columns: ClassVar[bool] = False
    """Whether models take the columns as they are; attacks use encoded ones."""

    table: str
    columns: Names | None = None
    ignore: Names = ()
    categorical: Names = ()
    missing: MissingValues = "error"

    def __str__(self) -> str:
        """Name of the file."""
        return Path(self.table).name
