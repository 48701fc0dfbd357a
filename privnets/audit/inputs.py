"""Files, arrays and records of users: their forms, their order, copies for models, equal records.

Files are not trusted: no pickle is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from numbers import Real
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privnets.attacks.view import Array, BoolArray
from privnets.data.files import UserFormError
from privnets.randomness import generator
from privnets.references.data import read_npz
from privnets.references.table_files import EXACT, read_frame

SAVED: Final = "privnets_audit"
"""Array that marks a `.npz` file as one of `AuditResult.save`."""

_SUFFIXES = (".npz", ".csv", ".csv.gz", ".parquet")
_MAX_GROUPS = 50


class AuditError(ValueError):
    """Raised for input that cannot be audited; the message says what to change."""


def read_columns(path: Path) -> dict[str, Any] | pd.DataFrame:
    """Reads arrays from a `.npz` file, or a table; see `read_frame`.

    Raises:
        AuditError: If the file is absent, of another kind, damaged, or too large.
    """
    if not path.name.lower().endswith(_SUFFIXES):
        raise AuditError(f"{path} must end in {', '.join(_SUFFIXES)}; got {path.suffix!r}")
    if not path.is_file():
        raise AuditError(f"{path} is not a file; give one that ends in {', '.join(_SUFFIXES)}")
    try:
        return read_npz(path) if path.suffix.lower() == ".npz" else read_frame(path)
    except Exception as error:  # parsers raise many types
        reason = str(error).partition("\n")[0]
        if isinstance(error, UserFormError):
            reason = f"it has {error.given}; expected {error.expected}"
        raise AuditError(f"{path} cannot be read: {reason}") from error


def as_array(name: str, value: Any) -> NDArray[Any]:
    """Array of an array, list, pandas object, sparse matrix or tensor on any device.

    Raises:
        AuditError: If it is none, or has masked entries.
    """
    try:
        if hasattr(value, "detach"):
            value = value.detach().cpu()
            # Numpy has no bfloat16.
            value = value.double() if value.is_floating_point() else value
        elif hasattr(value, "toarray"):
            value = value.toarray()
        array = np.asarray(value)
        if array.dtype.kind == "O" and all(isinstance(each, Real) for each in array.flat):
            array = array.astype(np.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        raise AuditError(
            f"{name} must be an array, not rows of different lengths or kinds: {reason}"
        ) from error
    if np.ma.is_masked(value):
        raise AuditError(f"{name} must not have masked entries")
    return array


def as_record_values(name: str, value: Any, records: int) -> NDArray[Any]:
    """Array of one known value for each record, shape [records].

    Raises:
        AuditError: If it has another shape, or missing values.
    """
    array = as_array(name, value)
    if array.shape != (records,):
        hint = "; .argmax(1) gives classes of one-hot rows" if array.ndim == 2 else ""
        raise AuditError(
            f"{name} must have shape {[records]}, one for each record; got {list(array.shape)}"
            f"{hint}"
        )
    if pd.isna(array).any():
        raise AuditError(f"{name} must not hold missing values; give them a name of their own")
    return array


def as_groups(value: Any, records: int) -> NDArray[np.object_]:
    """Group of each record, as given, shape [records].

    Raises:
        AuditError: If there is not one for each record, one is missing, or there are too many.
    """
    groups = as_record_values("groups", value, records)
    if (count := len(pd.unique(groups))) > _MAX_GROUPS:
        raise AuditError(f"groups must be at most {_MAX_GROUPS}; got {count}: join some, or cut")
    return groups.astype(object)


def as_numbers(name: str, value: Any, expected: str = "numbers") -> Array:
    """Numbers in float64, perhaps not finite.

    Raises:
        AuditError: If some are text, dates or objects, or whole numbers that float64 would round.
    """
    array = as_array(name, value)
    if array.dtype.kind not in "fiub":
        example = repr(array.ravel()[:1].tolist()[0])[:40] if array.size else "nothing"
        raise AuditError(f"{name} must be {expected}; got {array.dtype} such as {example}")
    if array.size == 0:
        raise AuditError(f"{name} is empty")
    numbers = array.astype(np.float64)
    if array.dtype.kind in "iu" and (np.abs(numbers) > EXACT).any():
        raise AuditError(f"{name} has whole numbers beyond 2**53, which would be rounded")
    return numbers


def align(values: Mapping[str, Any], axes: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Brings pandas objects into the order of the first one by their index.

    Args:
        values: Pandas objects and others by name.
        axes: Meaning of each axis, such as `record`, by name; axes of one meaning are aligned.

    Raises:
        AuditError: If two indices differ in more than order, or order cannot be told because an
            array beside them has no index.
    """
    aligned, first = dict(values), dict[str, tuple[str, pd.Index]]()
    pairs = [(name, axis, meaning) for name in values for axis, meaning in enumerate(axes[name])]
    with_index = {name for name in values if isinstance(values[name], pd.Series | pd.DataFrame)}
    for name, axis, meaning in pairs:
        if name not in with_index:
            continue
        index = aligned[name].axes[axis]
        leader, expected = first.setdefault(meaning, (name, index))
        if index.equals(expected):
            continue
        arrays = [other for other, _, same in pairs if same == meaning and other not in with_index]
        is_same = index.is_unique and expected.is_unique and len(index) == len(expected)
        if arrays or not (is_same and index.isin(expected).all()):
            also = f", and {arrays[0]} has none" if arrays else ""
            raise AuditError(
                f"{leader} and {name} have different indices{also}, so that their order is not "
                f"known: {list(expected[:3])} and {list(index[:3])} come first. Give them one "
                "index, or arrays (.to_numpy()) in one order"
            )
        aligned[name] = aligned[name].reindex(expected, axis=axis)
    return aligned


def as_records(x: Any) -> Any:
    """Records that rows can be taken from; lists of numbers become an array.

    Raises:
        AuditError: If `x` holds no records.
    """
    if hasattr(x, "shape") and len(x.shape):
        return x.tocsr() if hasattr(x, "tocsr") else x
    try:
        rows = list(x)
    except TypeError as error:
        kind = type(x).__name__
        raise AuditError(f"x must be an array, DataFrame or list of records; got {kind}") from error
    try:
        array = np.asarray(rows)
    except (TypeError, ValueError, RuntimeError):
        return rows
    return array if array.dtype.kind in "biuf" else rows


def text_columns(x: Any) -> list[Any]:
    """Names of the columns of a DataFrame that hold no numbers; none for other records."""
    if not isinstance(x, pd.DataFrame):
        return []
    return [name for name in x if not pd.api.types.is_numeric_dtype(x[name].dtype)]


def copy_records(x: Any) -> Any:
    """Copy of records, which a model may change."""
    return x.detach().clone() if hasattr(x, "detach") else deepcopy(x)


def take_records(x: Any, rows: NDArray[np.int64]) -> Any:
    """Copy of some records, in the form that the user gave."""
    if hasattr(x, "iloc"):
        return copy_records(x.iloc[rows])
    return copy_records([x[row] for row in rows] if isinstance(x, list) else x[rows])


def describe_equal_records(x: Any, y: NDArray[Any], member: BoolArray) -> tuple[str, ...]:
    """Sentences about records that are equal in x and y, and what that does to an audit."""
    if hasattr(x, "tocsr"):
        x = x.copy()
        x.sum_duplicates()
        # Entries are summed in the order of columns, so equal rows have equal sums.
        x = x @ generator(0, "keys of records").standard_normal(x.shape[1])
    if isinstance(x, list):
        x = np.array([repr(row) for row in x], dtype=object)
    if not isinstance(x, pd.Series | pd.DataFrame):
        x = pd.DataFrame(as_array("x", x).reshape(len(y), -1))
    hashes, labels = (
        pd.util.hash_pandas_object(each, index=False, categorize=False).to_numpy(np.uint64)
        for each in (x, pd.Series(y))
    )
    keys = hashes * np.uint64(0x9E3779B97F4A7C15) + labels
    inside, outside = keys[member], keys[~member]
    notes = []
    if copies := int(np.isin(outside, inside).sum()):
        notes.append(
            f"{copies} of the {len(outside)} non-members are copies of members (equal x and y), "
            "so that the model has seen them: every figure is too low. Leave them out."
        )
    repeated = sum(int(pd.Series(side).duplicated(keep=False).sum()) for side in (inside, outside))
    if repeated:
        notes.append(
            f"{repeated} records have a copy on their own side (equal x and y); reference models "
            "without such a record may have trained with its copy, which lowers their figures."
        )
    return tuple(notes)
