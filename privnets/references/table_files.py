"""Reader of tables: the same columns have the same types, however a file stores them."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow
import pyarrow.parquet as pq

from privnets.data.files import UserFormError
from privnets.references.table_format import MAX_BYTES, TableFormat

NOT_AVAILABLE: Final = (
    *("NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "-NaN", "-nan"),
    *("null", "NULL", "None", "none"),
)
"""Texts that mean a missing value in columns of numbers or truth values."""

EXACT: Final = 2**53
"""Largest size of whole numbers that are all exact as floating-point numbers."""

TRUTHS: Final = dict.fromkeys(("True", "TRUE", "true"), True) | dict.fromkeys(
    ("False", "FALSE", "false"), False
)
"""Truth value of each text that means one."""

_INTEGER: Final = r"^[-+]?\d+$"
_CODE: Final = r"^[-+]?0\d+$"
_MONTH: Final = r"^(?:0[1-9]|1[0-2])\.(?:19|20)\d\d$"  # as 01.2024
_LONG: Final = r"^[-+]?\d{16,}(?:\.0*)?$"  # 2**53 has 16 digits
_SEPARATORS: Final = ";\t|,"
_BLOCK: Final = 2**27  # bytes; a record must fit
_OTHER_FILES: Final = {
    b"\x1f\x8b": "a gzip file; name it .csv.gz",
    b"PK\x03\x04": "a zip file or a workbook; save it as CSV",
    b"PAR1": "a parquet file; name it .parquet",
}
_MARK: Final = "\ufeff"  # byte order mark at the beginning of a file
_NO_HEADER: Final = "in a study, header: false if the file has none"
_UNNAMED: Final = "Unnamed: "
_UNNAMED_INDEX: Final = "__index_level_"  # pandas stores an index without a name so


STANDARD: Final = TableFormat()
"""Comma-separated UTF-8 with decimal points."""


def read_frame(path: Path, field: str = "table", form: TableFormat = STANDARD) -> pd.DataFrame:
    """Reads a CSV or parquet file; rows are numbered from 0.

    An index that pandas stored in a parquet file is a column if it has a name.

    A column of texts that are all numbers, or all truth values, has them as values, in parquet
    files too; other texts stay as they are. Whole numbers that begin with 0, as codes do, and
    those beyond 64 bits, or that float64 would round beside fractions, stay texts. Empty cells are
    missing values.

    Args:
        field: Entry of the study that has the path.

    Raises:
        UserFormError: If it has another suffix, cannot be parsed, has no rows,
            repeats a column, or has other values than dates in a column of dates.
    """
    suffix = (path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix).lower()
    if suffix not in (".csv", ".parquet") or path.suffix == ".gz" != suffix == ".parquet":
        raise UserFormError(field, str(path), "a file that ends in .csv, .csv.gz or .parquet")
    try:
        names, columns = _read_csv(path, form) if suffix == ".csv" else _read_parquet(path)
        values = [
            _parse(each, form, is_date=name in form.dates)
            for name, each in zip(names, columns, strict=True)
        ]
    except UserFormError:
        raise
    except Exception as error:  # parsers raise many types
        reason = " ".join(str(error).split())[:300]
        given = f"{path}, which cannot be parsed ({reason})"
        raise UserFormError(field, given, "a header, and as many cells in each row") from error
    if repeated := [name for name, count in Counter(map(str.strip, names)).items() if count > 1]:
        raise UserFormError(field, f"{repeated[0]!r} twice in the header", "each column once")
    if not columns or not len(columns[0]):
        raise UserFormError(field, f"{path} without rows", "at least one row below the header")
    parsed = dict(zip(names, values, strict=True))
    # Absent columns are reported together with those of other settings.
    parsed |= {name: _days(parsed[name], name, form) for name in form.dates if name in parsed}
    return pd.DataFrame(parsed)


def _read_csv(path: Path, form: TableFormat) -> tuple[list[str], list[pa.ChunkedArray]]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError("more than 4 GiB; store it as parquet")
    if kinds := [kind for magic, kind in _OTHER_FILES.items() if content.startswith(magic)]:
        raise ValueError(f"it is {kinds[0]}")
    try:
        text = content.decode(form.encoding).removeprefix(_MARK)
    except UnicodeError as error:
        marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        expected = "utf-16" if content.startswith(marks) else "that of the file, as cp1252"
        given = f"{form.encoding}, which {path} is not written in ({error})"
        raise UserFormError("encoding", given, expected) from error
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=form.separator)
    header = next((row for row in rows if row), [])
    if len(header) == 1 and (others := [each for each in _SEPARATORS if each in header[0]]):
        given = f"{form.separator!r} for a first row of one column, {header[0][:80]!r}"
        raise UserFormError("separator", given, repr(others[0]))
    ids = [str(number) for number in range(len(header))]
    table = arrow.read_csv(
        pa.BufferReader(text.encode()),
        arrow.ReadOptions(column_names=ids, use_threads=False, block_size=_BLOCK),
        arrow.ParseOptions(delimiter=form.separator, newlines_in_values=True),
        arrow.ConvertOptions(
            column_types=dict.fromkeys(ids, pa.string()), strings_can_be_null=False
        ),
    )
    columns = table.columns
    if form.header:
        # No slice: before Arrow 24, `if_else` misreads its texts (issue 49410 of apache/arrow).
        columns = table.filter(pa.array(np.arange(len(table)) > 0)).columns
        _require_one_header(columns, header, text, form)
    # A separator at the end of each row makes a column without name and values.
    empty = {i for i, name in enumerate(header) if not name and set(columns[i].to_pylist()) <= {""}}
    kept = [number for number in range(len(header)) if number not in empty]
    names = [_named(header[i], i) if form.header else f"column_{i + 1}" for i in kept]
    return names, [columns[i] for i in kept]


def _require_one_header(
    columns: Sequence[pa.ChunkedArray], header: Sequence[str], text: str, form: TableFormat
) -> None:
    """Refuses a file that joins others, each with a header. One column may have it as a value."""
    names = [name.strip() for name in header]
    marked = [pc.utf8_ltrim(columns[0], _MARK), *columns[1:]]
    cells = map(pc.utf8_trim_whitespace, marked)
    equal = [pc.equal(each, name) for each, name in zip(cells, names, strict=True)]
    if len(header) < 2 or not pc.any(reduce(pc.and_, equal)).as_py():
        return
    rows = csv.reader(io.StringIO(text.replace(_MARK, ""), newline=""), delimiter=form.separator)
    number = [rows.line_num for row in rows if [*map(str.strip, row)] == names][1]
    raise UserFormError("table", f"line {number}, which repeats the header", f"one; {_NO_HEADER}")


def _read_parquet(path: Path) -> tuple[list[str], list[pa.ChunkedArray]]:
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        about = file.metadata
        groups = map(about.row_group, range(about.num_row_groups))
        # Neither long pages nor long runs of equal values may fill the memory.
        size = sum(group.total_byte_size for group in groups)
        if max(size, 8 * about.num_rows * about.num_columns) > MAX_BYTES:
            raise ValueError("more than 4 GiB")
        table = file.read()
    stored: Mapping[str, Any] = table.schema.pandas_metadata or {}
    index = {name for name in stored.get("index_columns", ()) if isinstance(name, str)}
    unnamed = {name for name in index if name.startswith(_UNNAMED_INDEX)}
    kept = [i for i, name in enumerate(table.column_names) if name not in unnamed]
    return [_named(table.column_names[i], i) for i in kept], [table.column(i) for i in kept]


def _named(name: str, number: int) -> str:
    return name if name.strip() else f"{_UNNAMED}{number}"


def is_unnamed(name: str) -> bool:
    """Whether the header has no name for a column, which pandas and this reader then make."""
    return name.startswith(_UNNAMED)


def _parse(column: pa.ChunkedArray, form: TableFormat, *, is_date: bool) -> pd.Series[Any]:
    """Values of a column as numbers, truth values, instants, texts, or whatever was stored."""
    kind, types = column.type, pa.types
    is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    if is_text or types.is_decimal(kind):  # many decimals have more digits than float64
        form = form if is_text else STANDARD
        return _parse_texts(column.cast(pa.large_string()), form, is_date=is_date)
    if types.is_floating(kind):
        column = column.cast(pa.float64())
    elif types.is_date(kind):
        column = column.cast(pa.timestamp("s"))
    values = _to_pandas(column)
    return values.astype("boolean") if types.is_boolean(kind) and column.null_count else values


def _parse_texts(texts: pa.ChunkedArray, form: TableFormat, *, is_date: bool) -> pd.Series[Any]:
    """Numbers or truth values if all texts are, else the texts; missing ones are absent.

    Dates stay texts, since `%d%m%Y` and `%m.%Y` look like numbers.
    """
    trimmed = pc.utf8_trim_whitespace(texts)
    absent = _is_in(trimmed, ("", *form.missing_values))
    unavailable = pc.or_(absent, _is_in(trimmed, NOT_AVAILABLE))
    values = pc.if_else(unavailable, None, trimmed)
    if is_date:
        dates: pd.Series[Any] = values.to_pandas()
        return dates
    known = values.drop_null()
    if len(known) and pc.all(_is_in(known, tuple(TRUTHS))).as_py():
        truths: pd.Series[Any] = values.to_pandas().map(TRUTHS)
        return truths.astype("boolean" if values.null_count else "bool")
    parsed = pc.if_else(absent, None, texts)
    if len(known) and pc.all(pc.match_substring_regex(known, form.number_pattern)).as_py():
        if form.thousands:
            values = pc.replace_substring(values, form.thousands, "")
        values = pc.replace_substring_regex(pc.replace_substring(values, ",", "."), r"^\+", "")
        numbers = _as_numbers(values)
        parsed = parsed if numbers is None else numbers
    return _to_pandas(parsed)


def _to_pandas(column: pa.ChunkedArray) -> pd.Series[Any]:
    """Values; whole numbers beside missing ones are floats, unless these would round them."""
    kinds: Mapping[Any, Any] = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
    is_large = False
    if column.type in kinds and 0 < column.null_count < len(column):
        ends = pc.min_max(column).as_py()
        is_large = max(map(abs, ends.values())) > EXACT
    values: pd.Series[Any] = column.to_pandas(types_mapper=kinds.get if is_large else None)
    return values


def _as_numbers(values: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Numbers from texts; None for codes, months, and whole numbers that would be rounded."""
    months = pc.match_substring_regex(values, _MONTH)
    if pc.all(months).as_py() and pc.any(pc.starts_with(values, "0")).as_py():
        return None
    if not pc.all(pc.match_substring_regex(values, _INTEGER)).as_py():
        long = values.filter(pc.match_substring_regex(values, _LONG)).to_pylist()
        is_rounded = any(Decimal(float(text)) != Decimal(text) for text in long)
        return None if is_rounded else values.cast(pa.float64())
    if pc.any(pc.match_substring_regex(values, _CODE)).as_py():
        return None
    for kind in (pa.int64(), pa.uint64()):
        try:
            return values.cast(kind)
        except pa.ArrowInvalid:
            continue
    return None


def _is_in(texts: pa.ChunkedArray, values: Sequence[str]) -> pa.ChunkedArray:
    found = pc.is_in(texts, value_set=pa.array(values, texts.type))
    return pc.or_(found, pc.is_null(texts)) if "" in values else found


def _days(column: pd.Series[Any], name: str, form: TableFormat) -> pd.Series[Any]:
    """Days since 1970-01-01 of a column of dates; those without a zone count as UTC.

    Raises:
        UserFormError: If it has other values.
    """
    known = column.dropna()
    if not pd.api.types.is_datetime64_any_dtype(known):
        known = known.convert_dtypes().astype(str)
    pattern = form.date_format or "ISO8601"
    instants = pd.to_datetime(known, format=pattern, utc=True, errors="coerce")
    # pandas reads texts such as now and today as the time of reading.
    is_wrong = instants.isna() | ~known.astype(str).str.contains(r"\d")
    if (wrong := known[is_wrong]).size:
        given = f"{name!r}, where {len(wrong):,} values have another format: {wrong.iloc[0]!r}"
        expected = f"dates in the format {form.date_format or 'ISO 8601, or date_format'}"
        raise UserFormError("dates", given, expected)
    first, last = (each.tz_localize("UTC") for each in (pd.Timestamp.min, pd.Timestamp.max))
    if (far := known[~instants.between(first, last)]).size:
        given = f"{name!r}, where {len(far):,} values are as far as {str(far.iloc[0])!r}"
        raise UserFormError("dates", given, "dates of the years 1678 to 2261")
    days = (instants - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
    return days.reindex(column.index).astype("float64")
