"""Columns of tables: what their values are, what is unclear about them, and how to say it."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from privnets.data.files import UserFormError
from privnets.references.table_files import EXACT, NOT_AVAILABLE, TRUTHS, TableFormat

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["numbers", "categories", "truth values", "dates", "others"]

_HALF: Final = 0.5
_EXAMPLES: Final = 3
_LISTED: Final = 8
_MAX_MISSING: Final = 5
_HARDLY: Final = "case, blanks, hidden or similar characters"
# Cyrillic and Greek letters, of which a capital or small one looks Latin; dashes; quotes.
_SIMILAR: Final = str.maketrans(
    "\u0430\u0432\u0435\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445\u0456\u0458\u0455"
    "\u03b1\u03b2\u03b5\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u0131"
    "\u2010\u2012\u2013\u2014\u2212\u2018\u2019\u201c\u201d",
    "abekmhopctyxijsabeiknoptyxi-----''\"\"",
    "\ufe0e\ufe0f",  # variants of a symbol
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
# From the first digit to the last, with the decimal point of numbers such as .5.
_DIGITS: Final = re.compile(r"[.,]?\d(?:.*\d)?", re.ASCII)
_PARENTHESES: Final = re.compile(r"\((.*)\)")
# A minus of any kind before or after the digits; (5) is -5.
_NEGATIVE: Final = re.compile(r"\D*[-\u2212(]\D*\d|.*\d\s?[-\u2212]$")
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
    import pandas as pd  # half a second to import

    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def kind_of(column: pd.Series[Any]) -> Kind:
    """Kind of a column that `read_frame` returns."""
    import pandas as pd

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


def require_clear(
    columns: pd.DataFrame, form: TableFormat, field: str = "columns", way_out: str = ""
) -> None:
    """Checks that it is clear how to use columns that the study does not call categories.

    Args:
        field: Entry of the study that names the columns.
        way_out: Change of the study that allows any texts.

    Raises:
        UserFormError: If numbers are infinite, texts look like numbers or dates, or values are
            of another type; it has all such columns.
    """
    errors = []
    for name, column in columns.items():
        kind = kind_of(column)
        if kind == "numbers" and np.isinf(column.to_numpy(np.float64, na_value=np.nan)).any():
            errors.append((f"infinite numbers in {name!r}", "finite ones"))
        elif kind == "numbers" and column.dtype.kind in "iu" and _is_beyond_float64(column):
            errors.append((f"{name!r} with whole numbers that float64 rounds", "smaller numbers"))
        elif kind == "dates":
            errors.append(_unclear_dates(str(name), column.dropna().iloc[0], is_iso=True))
        elif kind == "others":
            stored = type(column.dropna().iloc[0]).__name__
            errors.append((f"{name!r} with values of type {stored}", "numbers or texts"))
        elif column.dtype != "category" and kind == "categories":
            errors += filter(None, [_unclear_texts(str(name), column, form)])
    if errors:
        ways = f"; or {way_out or 'list the column under categorical or ignore'}"
        first, *others = [UserFormError(field, given, wanted + ways) for given, wanted in errors]
        raise UserFormError(field, first.given, first.expected, others)


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


def _is_beyond_float64(column: pd.Series[Any]) -> bool:
    """Whether some whole numbers are so large that float64 rounds them."""
    known = column.dropna()
    large = known[(known > EXACT) | (known < -EXACT)]
    return any(int(float(number)) != number for number in large)


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
    """Settings, and changes of the file, that would make numbers of all texts."""
    absent = [text for text in others if not any(map(str.isdigit, text))]
    if TRUTHS.keys() & absent:
        return "write truth values as 1 and 0"
    absent = absent if len(absent) <= _MAX_MISSING else []
    missing = [f"missing_values: [{', '.join(map(repr, absent))}]"] if absent else []
    plain = [text for text in texts if text not in absent]
    signed = [_PARENTHESES.sub(r"-\1", text.replace("\u2212", "-")) for text in plain]
    bare = [_without_units(text) for text in signed]
    are_negative = any(map(_NEGATIVE.match, others))
    minus = "write negative numbers with '-'" if are_negative else ""
    units = " and ".join(filter(None, [minus, _units_hint(signed, "other " * are_negative)]))
    for numbers, change in ((plain, ""), (signed, minus), (bare, units)):
        if (settings := _fitting_forms(numbers, form)) is not None:
            parts = " and ".join([*missing, *filter(None, [" or ".join(settings)])])
            return "; ".join(filter(None, [change, f"set {parts}" if parts else ""]))
    return f"{units}, all written in one way"


def _without_units(text: str) -> str:
    digits = _DIGITS.search(text)
    if digits is None:
        return text
    return f"-{digits[0]}" if "-" in text[: digits.start()] else digits[0]


def _units_hint(texts: Sequence[str], other: str) -> str:
    """What to do about currency and units, without which differing ones would be lost."""
    found = [re.sub(r"[-+\s()]", "", _DIGITS.sub("", text)).lower() for text in texts]
    units = {unit for unit in found if unit}
    if units and units <= _MAGNITUDES and len(set(found)) > 1:
        return "write 5k as 5000"
    one = "in one unit, " if len(units) > 1 else ""
    return f"{one}without {other}signs and units"


def _fitting_forms(texts: Sequence[str], form: TableFormat) -> list[str] | None:
    """Settings that read all texts as numbers; an empty one if they need none, None without any."""
    fitting: list[dict[str, str]] = []
    for settings in ({}, *_FORMS):
        trial = form.model_copy(update={"thousands": None, **settings} if settings else {})
        pattern = re.compile(trial.number_pattern, re.ASCII)
        if all(map(pattern.fullmatch, texts)) and not any(
            each.items() <= settings.items() for each in fitting
        ):
            fitting.append(settings)
    ways = [" and ".join(f"{k}: {json.dumps(v)}" for k, v in each.items()) for each in fitting]
    return ways or None


def _share(counts: pd.Series[int], pattern: re.Pattern[str]) -> float:
    """Share of the values, or of the different ones, that have a form."""
    matched = np.array([pattern.fullmatch(text) is not None for text in counts.index])
    return max(float(matched.mean()), float(counts[matched].sum()) / int(counts.sum()))


def _are_labels(counts: pd.Series[int]) -> bool:
    """Whether texts with digits are certainly no numbers: codes, addresses, or ranges."""
    texts, like_numbers = list(counts.index), _share(counts, _LIKE_NUMBER)
    are_ranges = any(map(_RANGE.fullmatch, texts)) or (
        any(map(_BELOW.fullmatch, texts)) and any(map(_ABOVE.fullmatch, texts))
    )
    return (
        _are_codes(texts)
        or _have_letters(texts)
        or (like_numbers < 1 and all(map(_DOTTED.fullmatch, texts)))
        or (like_numbers < _HALF and are_ranges)
    )


def _are_codes(texts: Sequence[str]) -> bool:
    """Whether all texts are whole numbers, and some begin with 0."""
    whole = all(map(_WHOLE.fullmatch, texts))
    return whole and any(len(text) > 1 and text.startswith("0") for text in texts)


def _have_letters(texts: Sequence[str]) -> bool:
    """Whether letters distinguish at least a tenth of the texts, as in 12A and E11, not in 5k."""
    found = [match.groups() for text in texts if (match := _LETTERED.fullmatch(text))]
    lettered = [before + after for before, after in found if before + after]
    letters = {each.lower() for each in lettered}
    return len(letters) > 1 and len(lettered) >= len(texts) / 10 and not letters <= _MAGNITUDES


def identifier_remarks(attributes: pd.DataFrame) -> tuple[str, ...]:
    """Sentences on columns that may identify records: texts or whole numbers that all differ."""
    unique = [
        name
        for name, column in attributes.items()
        if column.is_unique and not (is_number(column) and (column.dropna() % 1 != 0).any())
    ]
    more = [f"{len(unique) - _LISTED:,} other columns do, too."] if len(unique) > _LISTED else []
    return (
        *(
            f"column {name} has another value in each of the {len(attributes):,} records; if it "
            "identifies records, list it under ignore."
            for name in unique[:_LISTED]
        ),
        *more,
    )


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
        if kind_of(column) == "numbers" and name not in stated and _are_dates(column):
            remarks.append(
                f"column {name} has numbers such as {int(column.max())}; if they are dates, set "
                f'dates: [{name}] and date_format: "%Y%m%d".'
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


def _are_dates(numbers: pd.Series[Any]) -> bool:
    """Whether all numbers are like 20240131."""
    known = numbers.dropna()
    if not len(known) or known.min() < 1900_01_01 or known.max() > 2100_12_31:
        return False
    days, months = known % 100, known // 100 % 100
    return bool((days.between(1, 31) & months.between(1, 12) & (known % 1 == 0)).all())


def differing_texts(column: pd.Series[Any], *, case: bool) -> str:
    """Lists values of a column that look alike; empty without any.

    They differ in blanks, invisible characters or Unicode's normal form; with `case`, or in case,
    width, or letters of another script that look like Latin ones.
    """
    groups: dict[str, list[str]] = {}
    for text in sorted(column.dropna().astype(str).unique()):
        visible = text
        if not text.isascii():
            plain = "".join(each for each in text if unicodedata.category(each) != "Cf")
            visible = unicodedata.normalize("NFKC" if case else "NFC", plain)
        key = " ".join(visible.split())
        groups.setdefault(key.casefold().translate(_SIMILAR) if case else key, []).append(text)
    alike = [group for group in groups.values() if len(group) > 1]
    return _listed((" and ".join(_distinct_texts(group)) for group in alike), _EXAMPLES)


def _distinct_texts(group: Sequence[str]) -> list[str]:
    """Texts in quotes; what their letters alone do not show has its code."""
    letters = {text.casefold().translate(_SIMILAR) for text in group}
    are_similar = len(letters) < len({text.casefold() for text in group})
    return [
        ascii(text) if are_similar or not unicodedata.is_normalized("NFKC", text) else repr(text)
        for text in group
    ]


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
