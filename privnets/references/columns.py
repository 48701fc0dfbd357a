"""Columns of tables: what their values are, what is unclear about them, and how to say it."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from privnets.data.files import UserFormError
from privnets.references.table_files import EXACT, NOT_AVAILABLE, TRUTHS
from privnets.references.table_format import TableFormat

Kind = Literal["numbers", "categories", "truth values", "dates", "others"]

_HALF: Final = 0.5
_EXAMPLES: Final = 3
_LISTED: Final = 8
_MAX_MISSING: Final = 5
_HARDLY: Final = "case, blanks, dashes, quotes or hidden characters"
_PLAIN: Final = str.maketrans(
    "\u2010\u2012\u2013\u2014\u2212\u2018\u2019\u201c\u201d", "-----''\"\""
)
_DIGIT: Final = re.compile(r"\d")
_WITH_DIGIT: Final = re.compile(r".*\d.*", re.DOTALL)
_WHOLE: Final = re.compile(r"[-+]?\d+")
# Digits, perhaps in groups of three, and signs, currency or a unit around them.
_LIKE_NUMBER: Final = re.compile(
    r"[-+\u2212(]*\s*(?:[$€£¥₹]|[A-Z]{3}\s)?\s*[-+\u2212]?"
    r"(?:(?:\d+|\d{1,3}(?:[.,'\u2019_\s]\d{3})+|\d{1,2}(?:,\d\d)+,\d{3})(?:[.,]\d*)?|[.,]\d+)"
    r"(?:[eE][-+]?\d+)?\s*(?:[$€£¥₹%‰°]|[A-Za-z]{1,3})?\)?"
)
# Forms that names, codes and classes of numbers also have.
_MAYBE_NUMBER: Final = re.compile(
    rf"{_LIKE_NUMBER.pattern}|0[xX][0-9A-Fa-f]+|\d+/\d+"
    r"|(?:[~<>=≤≥≈±'\"]+|[A-Za-z]{1,3}\.)?\s*[-+\u2212]?(?:\d[\d.,]*|[.,]\d+)"
    r"(?:[dD][-+]?\d+|\s*±\s*[\d.,]+|\s?[-\u2212+*'\"]|\s?[A-Za-z]{4,10}\.?)?"
)
_RANGE: Final = re.compile(
    r"\d[\d.,]*\s*(?:[-\u2013]|to)\s*\d[\d.,]*\s*[A-Za-z]{0,10}"
    r"|[(\[][-+\s\d.inf]+[-,;][-+\s\d.inf]+[)\]]"
)
_BELOW: Final = re.compile(r"[<≤].*")
_ABOVE: Final = re.compile(r"[>≥].*|.*\+")
_DOTTED: Final = re.compile(r"\d+(?:\.\d+){2,}")  # addresses and versions
_LETTERED: Final = re.compile(r"([A-Za-z]?)\d[\d.]*\s?([A-Za-z]?|st|nd|rd|th)")
_MAGNITUDES: Final = frozenset("kmbgt")
_ISO_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d.*)?")
_LIKE_DATE: Final = re.compile(
    r"\d{4}[-/.]\d{1,2}(?:[-/.]\d{1,2})?(?:[T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}(?: .*)?"
    r"|\d{1,2}[-. ]+[A-Za-z]{3,9}\.?[-, ]+\d{2,4}(?: .*)?|[A-Za-z]{3,9}\.? \d{1,2},? \d{4}(?: .*)?"
    r"|\d{1,2}:\d\d(?::\d\d.*)?|(?:0?[1-9]|1[0-2])[-/.](?:19|20)\d\d"
)
_FORMS: Final = (
    {"decimal": "."},
    {"decimal": ","},
    {"thousands": ","},
    *({"decimal": ",", "thousands": each} for each in ". "),
    *({"thousands": each} for each in " '_\u00a0\u2009\u202f\u2019"),
)


def is_number(column: pd.Series[Any]) -> bool:
    """Whether a column holds numbers, not texts or truth values."""
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def kind_of(column: pd.Series[Any]) -> Kind:
    """Kind of a column that `read_frame` returns."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return "categories"
    if pd.api.types.is_bool_dtype(column):
        return "truth values"
    if is_number(column):
        return "numbers"
    if pd.api.types.is_datetime64_any_dtype(column):
        return "dates"
    is_text = pd.api.types.infer_dtype(column, skipna=True) in ("string", "empty")
    return "categories" if is_text else "others"


def unclear_columns(
    columns: pd.DataFrame, form: TableFormat, field: str = "columns", way_out: str = ""
) -> list[UserFormError]:
    """Mistakes in columns, without an empty one, that the study does not call categories.

    Numbers are infinite, texts look like numbers or dates, or values are of another type.

    Args:
        field: Entry of the study that names the columns.
        way_out: Change of the study that allows any texts.
    """
    errors = []
    for name, column in columns.items():
        kind, known = kind_of(column), column.dropna()
        if kind == "numbers" and np.isinf(column.to_numpy(np.float64, na_value=np.nan)).any():
            errors.append((f"infinite numbers in {name!r}", "finite ones"))
        elif kind == "numbers" and column.dtype.kind in "iu":
            large = known[(known > EXACT) | (known < -EXACT)]
            if any(int(float(number)) != number for number in large):
                given = f"{name!r} with whole numbers that float64 rounds"
                errors.append((given, "smaller numbers"))
        elif kind == "dates":
            errors.append(_unclear_dates(str(name), known.iloc[0], is_iso=True))
        elif kind == "others":
            stored = type(known.iloc[0]).__name__
            errors.append((f"{name!r} with values of type {stored}", "numbers or texts"))
        elif column.dtype != "category" and kind == "categories":
            errors += filter(None, [_unclear_texts(str(name), column, form)])
    ways = f"; or {way_out or 'list the column under categorical or ignore'}"
    return [UserFormError(field, given, wanted + ways) for given, wanted in errors]


def reading_remarks(columns: pd.DataFrame, form: TableFormat) -> tuple[str, ...]:
    """Sentences on texts like numbers or dates, for a model that gets them as they are."""
    texts = {
        str(name): column
        for name, column in columns.items()
        if column.dtype != "category" and kind_of(column) == "categories"
    }
    unclear = [_unclear_texts(name, column, form) for name, column in texts.items()]
    return tuple(
        f"the model gets the texts of {given}; expected {wanted}, unless its own code reads them."
        for given, wanted in filter(None, unclear)
    )


def _unclear_texts(name: str, column: pd.Series[Any], form: TableFormat) -> tuple[str, str] | None:
    """The given and the expected if texts look like dates, or like numbers that are not read."""
    counts = column.dropna().str.strip().value_counts()
    texts, total = list(counts.index), int(counts.sum())
    if _share(counts, _LIKE_DATE) >= _HALF:
        return _unclear_dates(name, texts[0], is_iso=_share(counts, _ISO_DATE) >= _HALF)
    if _share(counts, _MAYBE_NUMBER) < _HALF or _are_labels(counts):
        return None
    number = re.compile(form.number_pattern, re.ASCII)
    texts = [text for text in texts if text not in NOT_AVAILABLE]
    others = [text for text in texts if not number.fullmatch(text)]
    if not others:
        if any(len(_DIGIT.findall(text)) >= len(str(EXACT)) for text in texts):
            return f"{name!r} with whole numbers too large to be exact", "smaller numbers"
        return f"{name!r} with other texts in records that are left out", "numbers in all records"
    listed = _listed(map(repr, others), _EXAMPLES)
    given = (
        f"{name!r}, where {counts[others].sum():,} of {total:,} values are not numbers: {listed}"
    )
    return given, f"numbers ({_reading_hint(texts, others, form)})"


def _unclear_dates(name: str, example: object, *, is_iso: bool) -> tuple[str, str]:
    how = "" if is_iso else " and date_format, as %d/%m/%Y"
    return f"{name!r}, which has dates or times as {str(example)!r}", f"dates: [{name}]{how}"


def _reading_hint(texts: Sequence[str], others: Sequence[str], form: TableFormat) -> str:
    """Settings, or else changes of the file, that would make numbers of all texts."""
    absent = [text for text in others if not any(map(str.isdigit, text))]
    if TRUTHS.keys() & absent:
        return "write truth values as 1 and 0"
    absent = absent if len(absent) <= _MAX_MISSING else []
    missing = [f"missing_values: [{', '.join(map(repr, absent))}]"] if absent else []
    numbers = [text for text in texts if text not in absent]
    fitting: list[dict[str, str]] = []
    for settings in ({}, *_FORMS):
        trial = form.model_copy(update={"thousands": None, **settings} if settings else {})
        pattern = re.compile(trial.number_pattern, re.ASCII)
        is_needless = any(each.items() <= settings.items() for each in fitting)
        if not is_needless and all(map(pattern.fullmatch, numbers)):
            fitting.append(settings)
    ways = [" and ".join(f"{k}: {json.dumps(v)}" for k, v in each.items()) for each in fitting]
    if not ways:
        return "all written in one way, without signs and units: 5k as 5000, (5) as -5"
    return f"set {' and '.join(filter(None, [*missing, ' or '.join(ways)]))}"


def _share(counts: pd.Series[int], pattern: re.Pattern[str]) -> float:
    """Share of the values, or of the different ones, that have a form."""
    matched = np.array([pattern.fullmatch(text) is not None for text in counts.index])
    return max(float(matched.mean()), float(counts[matched].sum()) / int(counts.sum()))


def _are_labels(counts: pd.Series[int]) -> bool:
    """Whether texts with digits are certainly no numbers: codes, addresses, or ranges."""
    texts, like_numbers = list(counts.index), _share(counts, _LIKE_NUMBER)
    begin_with_zero = any(len(text) > 1 and text.startswith("0") for text in texts)
    if all(map(_WHOLE.fullmatch, texts)) and begin_with_zero:
        return True
    # Letters distinguish at least a tenth of the texts, as in 12A and E11, not in 5k.
    found = [match.groups() for text in texts if (match := _LETTERED.fullmatch(text))]
    lettered = [before + after for before, after in found if before + after]
    letters = {each.lower() for each in lettered}
    if len(letters) > 1 and len(lettered) >= len(texts) / 10 and not letters <= _MAGNITUDES:
        return True
    are_ranges = any(map(_RANGE.fullmatch, texts)) or (
        any(map(_BELOW.fullmatch, texts)) and any(map(_ABOVE.fullmatch, texts))
    )
    is_dotted = like_numbers < 1 and all(map(_DOTTED.fullmatch, texts))
    return is_dotted or (like_numbers < _HALF and are_ranges)


def identifier_remarks(attributes: pd.DataFrame) -> tuple[str, ...]:
    """Sentences on columns that may identify records: texts or whole numbers that all differ."""
    unique = [
        name
        for name, column in attributes.items()
        if column.is_unique and not (is_number(column) and (column.dropna() % 1 != 0).any())
    ]
    remarks = [
        f"column {name} has another value in each of the {len(attributes):,} records; if it "
        "identifies records, list it under ignore."
        for name in unique[:_LISTED]
    ]
    more = [f"{len(unique) - _LISTED:,} other columns do, too."] if len(unique) > _LISTED else []
    return (*remarks, *more)


def text_remarks(columns: pd.DataFrame, stated: Sequence[str] = ()) -> tuple[str, ...]:
    """Sentences on columns of texts whose values may not be what the user means.

    Args:
        stated: Columns that the study calls categorical.
    """
    remarks = []
    if variants := differing_texts(columns.columns.to_series(), case=True):
        remarks.append(f"names of columns differ in {_HARDLY} only: {variants}.")
    with_digits: list[str] = []
    for name, column in columns.items():
        known = column.dropna()
        if kind_of(column) == "numbers" and name not in stated and len(known):
            are_days = known.between(1900_01_01, 2100_12_31) & (known % 1 == 0)
            are_days &= (known % 100).between(1, 31) & (known // 100 % 100).between(1, 12)
            if are_days.all():  # as 20240131
                remarks.append(
                    f"column {name} has numbers such as {int(column.max())}; if they are dates, "
                    f'set dates: [{name}] and date_format: "%Y%m%d".'
                )
        if kind_of(column) != "categories":
            continue
        texts = column.dropna().astype(str)
        counts = texts.str.strip().value_counts()
        if name not in stated and len(counts) and _share(counts, _WITH_DIGIT) >= _HALF:
            examples = sorted(filter(_DIGIT.search, counts.index))[:2]
            with_digits.append(f"{name} ({' and '.join(map(repr, examples))})")
        if variants := differing_texts(texts, case=True):
            remarks.append(f"column {name} has values that differ in {_HARDLY} only: {variants}.")
        if len(named := counts[counts.index.isin(NOT_AVAILABLE)]):
            listed = " and ".join(f"{text!r} {count:,} times" for text, count in named.items())
            remarks.append(
                f"column {name} has {listed}, which count as values; "
                f"missing_values: {list(named.index)} makes them missing."
            )
    if with_digits:
        remarks.append(f"texts with digits count as categories: {_listed(with_digits)}.")
    return tuple(remarks)


def differing_texts(column: pd.Series[Any], *, case: bool) -> str:
    """Lists values of a column that look alike; empty without any.

    They differ in blanks, invisible characters or Unicode's normal form; with `case`, or in case,
    width, dashes or quotes. What their letters alone do not show has its code.
    """
    groups: dict[str, list[str]] = {}
    for text in sorted(column.dropna().astype(str).unique()):
        visible = text
        if not text.isascii():
            plain = "".join(each for each in text if unicodedata.category(each) != "Cf")
            visible = unicodedata.normalize("NFKC" if case else "NFC", plain)
        key = " ".join(visible.split())
        groups.setdefault(key.casefold().translate(_PLAIN) if case else key, []).append(text)
    quoted = [
        [repr(text) if unicodedata.is_normalized("NFKC", text) else ascii(text) for text in group]
        for group in groups.values()
        if len(group) > 1
    ]
    return _listed(map(" and ".join, quoted), _EXAMPLES)


def require_distinct_classes(column: pd.Series[Any], field: str) -> None:
    """Raises UserFormError if two classes differ in what cannot be seen only."""
    if kind_of(column) == "categories" and (same := differing_texts(column, case=False)):
        given = f"{column.name!r} with values that differ in blanks or hidden characters: {same}"
        raise UserFormError(field, given, "one spelling of each class")


def describe_records(
    name: str, total: int, columns: pd.DataFrame, categorical: Sequence[str], width: int
) -> str:
    """Sentence on the records of a table, the kinds of its attributes, and their encoding.

    Args:
        total: Records in the file, of which `columns` has those that are used.
        width: Number of attributes after encoding.
    """
    kinds: dict[str, list[str]] = {}
    for column_name, column in columns.items():
        kind = "categories" if column_name in categorical else kind_of(column)
        count = f" ({column.nunique():,})" if kind == "categories" else ""
        kinds.setdefault(kind, []).append(f"{column_name}{count}")
    listed = "; ".join(f"{kind}: {_listed(names)}" for kind, names in kinds.items())
    left_out = total - len(columns)
    dropped = f" ({left_out:,} others, with missing values, are left out)" if left_out else ""
    return (
        f"{name}: records: {len(columns):,}{dropped}; attributes: {len(columns.columns):,}, after "
        f"encoding: {width:,}; {listed}."
    )


def describe_classes(field: str, counts: Mapping[str, int]) -> str:
    """Sentence on the classes of a label, the largest first, with their shares."""
    total = sum(counts.values())
    ordered = sorted(counts.items(), key=lambda each: -each[1])
    listed = _listed(f"{name}: {count:,} ({count / total:.1%})" for name, count in ordered)
    return f"{field} has {len(counts):,} classes; {listed}."


def _listed(names: Iterable[str], count: int = _LISTED) -> str:
    """The first names, and how many there are more."""
    every = list(names)
    more = f" and {len(every) - count:,} more" if len(every) > count else ""
    return f"{', '.join(every[:count])}{more}"
