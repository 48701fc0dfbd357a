"""The user's own tables and arrays as data sets: which records and columns are used, and how."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privnets.config import did_you_mean
from privnets.data.catalog import Attributes, DataSource, Table, Target, combined_fingerprint
from privnets.data.files import DatasetInfo, FileState, Task, UserFormError, raise_together
from privnets.references.columns import (
    describe_classes,
    describe_records,
    identifier_remarks,
    is_number,
    kind_of,
    reading_remarks,
    require_distinct_classes,
    text_remarks,
    unclear_columns,
)
from privnets.references.data import OwnArrays, TableReference
from privnets.references.table_files import EXACT, is_unnamed, read_frame
from privnets.references.table_format import TableAttributes

_MAX_CLASSES: Final = 20
"""Whole numbers with more distinct values are a regression target, unless the task is given."""
_LISTED_COLUMNS = 20
_MAX_CATEGORIES = 1000
_MAX_GROUPS = 50
_IMAGE_DIMENSIONS: Final = 4
MISSING: Final = "missing"
"""Category of missing values."""


@dataclass(frozen=True, eq=False)
class RawRecords:
    """Records of a table without any encoding.

    Attributes:
        frame: Attributes [N, columns] with their names; those that a study calls categorical are
            of that type.
        target: Values of the target, shape [N].
        remarks: Sentences on texts that look like numbers or dates.
    """

    frame: pd.DataFrame
    target: NDArray[Any]
    remarks: tuple[str, ...]


class _OwnSource(DataSource):
    """A user's data in memory: `x` [N, d], `y` [N], the names of the d columns, a fingerprint."""

    x: Attributes
    y: Target
    feature_names: tuple[str, ...]
    content: str

    def state(self) -> FileState:
        """The data were present when they were read."""
        return "present"

    def fingerprint(self) -> str:
        """Identifies the content and the way it is read."""
        return self.content

    def read(self, paths: Sequence[Path]) -> Table:
        """Returns the encoded attributes and targets."""
        return self.x, self.y, self.feature_names


class TableSource(_OwnSource):
    """A user's table in memory.

    Attributes:
        raw: Records without any encoding.
    """

    def __init__(self, reference: TableReference, path: Path, content: str) -> None:
        """Reads and encodes the table; `content` is the file's digest.

        Raises:
            UserFormError: If the file cannot be parsed, or a column does not fit its use.
        """
        whole = read_frame(path, form=reference.form)
        frame, errors = known_records(whole, reference, {"target": (reference.target,)})
        self._reader, self._records = partial(read_frame, path, form=reference.form), frame.index
        self._groups: dict[str, tuple[NDArray[np.int64], tuple[str, ...]]] = {}
        target = frame[reference.target]
        if reference.task in (None, "regression"):
            way_out = "set task: multiclass"
            errors += unclear_columns(target.to_frame(), reference.form, "target", way_out)
        try:
            self.y, task, classes = encode_target(target, reference.task)
        except UserFormError as error:
            errors.append(error)
        raise_together(errors)
        columns, categorical = frame.drop(columns=reference.target), reference.categorical
        known = [name for name in categorical if name in columns]
        raw = columns.astype(dict.fromkeys(known, "category"))
        is_raw = reference.keeps_raw_columns
        remarks = reading_remarks(raw, reference) if is_raw else ()
        self.raw = RawRecords(raw, target.to_numpy(), remarks)
        most = None if is_raw else _MAX_CATEGORIES
        self.x, self.feature_names = encode_columns(
            columns, categorical, reference.categories, most
        )
        self.x.setflags(write=False)
        self.content = combined_fingerprint(reference.model_dump_json(), (content,))
        # Texts that a model of raw columns gets, as attacks see them.
        long = [
            f"attacks see the {raw[name].nunique():,} categories of {name} as whole numbers in "
            f"alphabetical order, not as columns: there are more than {_MAX_CATEGORIES:,}."
            for name in (raw if is_raw and reference.categories == "one-hot" else ())
            if kind_of(raw[name]) != "numbers" and name in self.feature_names
        ]
        self.info = _describe(
            str(reference), f"table {path.name}", str(path), self.x, task, classes,
            labels=class_labels(target) if classes else (),
            remarks=(
                describe_records(path.name, len(whole), columns, categorical, self.x.shape[1]),
                describe_target(reference.target, self.y, classes),
                *identifier_remarks(columns),
                *text_remarks(frame, categorical),
                *long,
                *remarks,
            ),
        )  # fmt: skip

    def column(self, name: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """Reads a column of the file whose values, at most 50, group the records."""
        if name not in self._groups:
            require_columns(whole := self._reader(), (name,), "groups")
            codes, names = encode_classes(whole.loc[self._records, name])
            if len(names) > _MAX_GROUPS:
                given = f"{name!r} with {len(names):,} values"
                raise UserFormError("groups", given, f"a column of at most {_MAX_GROUPS} values")
            self._groups[name] = codes, names
        return self._groups[name]


class ArraySource(_OwnSource):
    """A user's arrays in memory."""

    def __init__(self, reference: OwnArrays, folder: Path, content: str) -> None:
        """Reads and checks the arrays, whose own digest replaces that of their file.

        Raises:
            UserFormError: If they cannot be read, or their shapes or values are of no use.
        """
        x, y = (np.asarray(each) for each in reference.load())
        if x.ndim < 2 or y.ndim != 1 or len(x) != len(y):
            given = f"x of shape {list(x.shape)} and y of shape {list(y.shape)}"
            raise UserFormError(reference.entry, given, "x [N, ...] and y [N] with equal N")
        if x.dtype.kind not in "buif":
            raise UserFormError(reference.entry, f"x of type {x.dtype}", "finite numbers")
        is_image = x.ndim == _IMAGE_DIMENSIONS
        kind: Any = np.uint8 if x.dtype == np.uint8 else np.float32 if is_image else np.float64
        self.x = np.ascontiguousarray(x.reshape(len(x), -1), dtype=kind)
        if not np.isfinite(self.x).all():
            raise UserFormError(reference.entry, "x with NaN or infinity", "finite numbers")
        self.y, task, classes = encode_target(pd.Series(y, name="y"), reference.task)
        self.feature_names = tuple(f"x{column}" for column in range(self.x.shape[1]))
        digest = hashlib.sha256(self.x.tobytes() + self.y.tobytes()).hexdigest()
        identity = (str(x.shape), digest)
        self.content = combined_fingerprint(reference.model_dump_json(), identity)
        name = str(reference)
        self.info = _describe(
            name, f"arrays {name}", name, self.x, task, classes,
            shape=x.shape[1:] if is_image else (),
            labels=class_labels(pd.Series(y)) if classes else (),
            remarks=(
                f"{name}: records: {len(x):,}, each of shape {list(x.shape[1:])}.",
                describe_target("y", self.y, classes),
            ),
        )  # fmt: skip


def _describe(
    name: str, title: str, source: str, x: Attributes, task: Task, classes: Sequence[str],
    **others: Any,
) -> DatasetInfo:  # fmt: skip
    return DatasetInfo(
        name, title, records=len(x), attributes=x.shape[1], task=task, classes=len(classes),
        source=source, licence="the user's own", citation="", **others,
    )  # fmt: skip


def require_columns(frame: pd.DataFrame, names: Sequence[str], field: str) -> None:
    """Raises UserFormError for names that are not columns; `field` is the entry that gave them."""
    raise_together(_absent_columns(frame, {field: names}))


def _absent_columns(
    frame: pd.DataFrame, fields: Mapping[str, Sequence[str]]
) -> list[UserFormError]:
    """An error for each name, by the entry that gave it, that is not a column."""
    columns, errors = [*map(str, frame.columns)], []
    for field, names in fields.items():
        for name in names:
            if name not in columns:
                is_long = len(columns) > _LISTED_COLUMNS
                shown = [*columns[: _LISTED_COLUMNS - 2], "…", columns[-1]] if is_long else columns
                quoted = (each if each == each.strip() else repr(each) for each in shown)
                same = [each for each in columns if each.strip() == name.strip()]
                meant = f" (did you mean {same[0]!r}?)" if same else did_you_mean(name, columns)
                listed = ", ".join(quoted) + meant
                expected = f"columns of the table: {listed}"
                errors.append(UserFormError(field, repr(name), expected))
    return errors


def encode_target(
    column: pd.Series[Any], task: Task | None
) -> tuple[Target, Task, tuple[str, ...]]:
    """Encodes a target column as `Dataset.y`.

    Returns:
        Targets [N], the task, and the classes in the order of their numbers, sorted.

    Raises:
        UserFormError: If the column does not fit the task.
    """
    if unknown := int(column.isna().sum()):
        raise UserFormError("target", f"{column.name!r} with {unknown:,} missing values", "none")
    require_distinct_classes(column, "target")
    has_numbers = is_number(column)
    if task is None and has_numbers:
        numbers = column.to_numpy(np.float64)
        is_class = bool((numbers == np.round(numbers)).all()) and column.nunique() <= _MAX_CLASSES
        task = None if is_class else "regression"
    if task == "regression":
        if not has_numbers or not np.isfinite(column.to_numpy(np.float64)).all():
            given = f"{column.name!r}, which holds other values"
            raise UserFormError("target", given, "a column of finite numbers")
        return column.to_numpy(np.float64), "regression", ()
    codes, classes = encode_classes(column)
    if task == "binary" and len(classes) != 2:
        raise UserFormError("task", f"binary and {len(classes)} classes", "a target of 2 classes")
    if len(classes) < 2:
        given = f"{column.name!r}, which always is {classes[0]}"
        raise UserFormError("target", given, "a column of several values")
    if task is None:
        task = "binary" if len(classes) == 2 else "multiclass"
    return (codes.astype(np.float64) if task == "binary" else codes), task, classes


def encode_classes(column: pd.Series[Any]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Numbers of the classes of a column, from 0 in sorted order, and the classes as texts.

    Values other than numbers, and columns with missing values, are sorted as texts.
    """
    has_order = is_number(column) and not column.isna().any()
    codes, values = pd.factorize(column if has_order else category_texts(column), sort=True)
    return codes.astype(np.int64), tuple(category_texts(pd.Series(values)))


def category_texts(column: pd.Series[Any]) -> pd.Series[str]:
    """Categories as texts, `missing` for missing values; whole numbers have no decimal point.

    Raises:
        UserFormError: If missing values stand beside that text.
    """
    is_known = column.notna()
    if is_number(column) and column.dtype.kind == "f":
        numbers = column[is_known].to_numpy(np.float64)
        if (numbers == np.round(numbers)).all() and (np.abs(numbers) <= EXACT).all():
            column = column.astype("Int64")
    texts = column.astype(str)
    if not is_known.all() and (texts == MISSING)[is_known].any():
        given = f"missing values of {column.name!r} beside the value {MISSING!r}"
        raise UserFormError(
            "missing", given, f"missing_values: [{MISSING!r}], or another name of that value"
        )
    return texts.where(is_known, MISSING)


def describe_target(name: str, target: Target, classes: Sequence[str]) -> str:
    """Sentence on the classes of a target, or on the range of its numbers."""
    if not classes:
        return f"target {name} has numbers from {target.min():.6g} to {target.max():.6g}."
    counts = np.bincount(target.astype(np.int64)).tolist()
    return describe_classes(f"target {name}", dict(zip(classes, counts, strict=True)))


def class_labels(column: pd.Series[Any]) -> tuple[bool | int | float | str, ...]:
    """Classes of a column in the order of their numbers, of the types that the column has."""
    values = column if pd.api.types.is_numeric_dtype(column) else category_texts(column)
    return tuple(np.array(sorted(values.unique())).tolist())


def encode_columns(
    frame: pd.DataFrame,
    categorical: Sequence[str],
    encoding: Literal["one-hot", "integer"],
    most: int | None = _MAX_CATEGORIES,
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Encodes attributes as numbers.

    Columns of texts or truth values are categorical, as are those that `categorical` lists.
    Missing numbers become the median, other missing values a category.

    Args:
        most: Categories that a column may have as zeros and ones; None numbers those of others.

    Returns:
        Attributes [N, d], and the names of the d columns; `column=category` for zeros and ones.

    Raises:
        UserFormError: If a column has too many categories.
    """
    blocks: list[NDArray[np.float64]] = []
    names: list[str] = []
    for name, column in frame.items():
        if is_number(column) and name not in categorical:
            numbers = column.to_numpy(np.float64, na_value=np.nan)
            blocks.append(np.where(np.isnan(numbers), column.median(), numbers)[:, None])
            names.append(str(name))
            continue
        codes, classes = encode_classes(column)
        is_long = len(classes) > (_MAX_CATEGORIES if most is None else most)
        if encoding == "one-hot" and is_long and most is not None:
            given = f"{name!r} with {len(classes):,} categories"
            raise UserFormError(
                "columns", given, f"at most {most:,}; list identifiers and free texts under ignore"
            )
        if encoding == "integer" or is_long:
            blocks.append(codes[:, None].astype(np.float64))
            names.append(str(name))
        else:
            blocks.append(np.eye(len(classes))[codes])
            names += [f"{name}={each}" for each in classes]
    return np.ascontiguousarray(np.hstack(blocks)), tuple(names)


def known_records(
    frame: pd.DataFrame, reference: TableAttributes, labels: Mapping[str, Sequence[str]]
) -> tuple[pd.DataFrame, list[UserFormError]]:
    """Selects the records that a study uses, with the columns of attributes, then of labels.

    Also returns the mistakes in attributes, to which the caller adds those in labels.

    Attributes may have missing values if the entry says how to replace them; labels have none.

    Args:
        labels: Columns that are not attributes, by the entry of the reference that names them.

    Raises:
        UserFormError: If a label's column has no values or is absent, or no attribute is left.
    """
    fields = ("columns", "ignore", "categorical", "dates")
    named = {field: getattr(reference, field) or () for field in fields}
    errors = _absent_columns(frame, {**labels, **named})
    uses = {name: field for field, names in labels.items() for name in names if name in frame}
    attributes = _attribute_names(frame, reference, uses, errors)
    used = frame[[*attributes, *uses]]
    counts = {str(name): int(used[name].isna().sum()) for name in used}
    empty = [name for name, count in counts.items() if count == len(used)]
    for name in empty:
        expected = "a column of values" + ("" if name in uses else "; list it under ignore")
        errors.append(
            UserFormError(uses.get(name, "columns"), f"{name!r} without any value", expected)
        )
    used = used.drop(columns=empty)
    is_raw = reference.keeps_raw_columns
    other, unfit = ("keep", "replace") if is_raw else ("replace", "keep")
    if reference.missing == unfit:
        form = "raw" if is_raw else "encoded"
        expected = f"error, drop or {other} with {form} columns"
        errors.append(UserFormError("missing", reference.missing, expected))
    lacking = {name: count for name, count in counts.items() if count and name in used}
    if reference.missing == "error" and lacking:
        listed = ", ".join(f"{name} ({count})" for name, count in lacking.items())
        given = f"error, which refuses {sum(lacking.values()):,} missing values: {listed}"
        errors.append(UserFormError("missing", given, f"drop or {other}"))
    in_use = [name for name in uses if name in used]
    used = used.dropna(subset=None if reference.missing == "drop" else in_use)
    if used.empty:
        errors.append(UserFormError("missing", "a missing value in every record", other))
    else:
        unstated = [name for name in used if name not in {*uses, *reference.categorical}]
        if is_raw:  # the model's own code gives a meaning to texts and dates
            unstated = [name for name in unstated if is_number(used[name])]
        errors += unclear_columns(used[unstated], reference)
    if used.empty or len(in_use) < sum(map(len, labels.values())):
        raise_together(errors)
    return used, errors


def _attribute_names(
    frame: pd.DataFrame,
    reference: TableAttributes,
    labels: Mapping[str, str],
    errors: list[UserFormError],
) -> list[str]:
    """Names of the columns that are attributes; adds mistakes to `errors`.

    Args:
        labels: Use of the columns that are none.
    """
    excluded = {*labels, *reference.ignore}
    chosen = reference.columns or [name for name in frame.columns if name not in excluded]
    for name in chosen:
        if name in labels:
            errors.append(
                UserFormError("columns", f"the {labels[name]} {name!r}", "attributes only")
            )
        elif is_unnamed(name) and not reference.columns:
            given = f"{name!r}, a column without a name in the header"
            errors.append(UserFormError("columns", given, "a name, or the column under ignore"))
    names = [name for name in chosen if name in frame and name not in labels]
    if not names:
        given = f"at least one column besides {', '.join(labels)}"
        raise_together([*errors, UserFormError("columns", "none", given)])
    return names
