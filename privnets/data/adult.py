"""UCI Adult: 14 attributes of a person and whether their income exceeds 50,000 dollars."""

from __future__ import annotations

import csv

import numpy as np
from numpy.typing import NDArray

from privnets.data.catalog import DataError

ATTRIBUTES = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
)
_NUMERIC = frozenset(
    {"age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"}
)
_TARGETS = {"<=50K": 0.0, ">50K": 1.0}


def parse(train: str, test: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Read adult.data followed by adult.test.

    A category becomes its place in the alphabetical order of that column's categories over both
    files; `?` (missing) is a category of its own. adult.test opens with a comment line and ends
    its labels in a dot; both files end in an empty line.

    Args:
        train: Text of adult.data.
        test: Text of adult.test.

    Returns:
        Attributes, shape [N, 14], and targets, shape [N]: 1 for an income above 50K.

    Raises:
        DataError: If a row is none of 14 attributes and a label.
    """
    rows = _rows("adult.data", train) + _rows("adult.test", test)
    if not rows:
        raise DataError("adult.data and adult.test have no rows.")
    *columns, labels = zip(*rows, strict=True)
    x = [_codes(name, column) for name, column in zip(ATTRIBUTES, columns, strict=True)]
    return np.column_stack(x), np.array([_target(label) for label in labels])


def _rows(name: str, text: str) -> list[list[str]]:
    try:
        read = list(csv.reader(text.splitlines(), skipinitialspace=True))
    except csv.Error as error:
        raise DataError(f"{name} is no csv file: {error}.") from error
    rows = [[cell.strip() for cell in row] for row in read if row and not row[0].startswith("|")]
    wrong = [len(row) for row in rows if len(row) != len(ATTRIBUTES) + 1]
    if wrong:
        raise DataError(f"{name} has a row of {wrong[0]} columns, expected {len(ATTRIBUTES) + 1}.")
    return rows


def _target(label: str) -> float:
    try:
        return _TARGETS[label.removesuffix(".")]
    except KeyError:
        raise DataError(f"an income of adult must be <=50K or >50K; got {label!r}.") from None


def _codes(name: str, column: tuple[str, ...]) -> NDArray[np.float64]:
    if name in _NUMERIC:
        return _numbers(name, column)
    codes = {category: code for code, category in enumerate(sorted(set(column)))}
    return np.array([codes[category] for category in column], dtype=np.float64)


def _numbers(name: str, column: tuple[str, ...]) -> NDArray[np.float64]:
    try:
        found = np.array(column, dtype=np.float64)
    except ValueError as error:
        raise DataError(f"the attribute {name} of adult must hold numbers: {error}.") from error
    if not np.isfinite(found).all():
        raise DataError(f"the attribute {name} of adult must hold finite numbers.")
    return found
