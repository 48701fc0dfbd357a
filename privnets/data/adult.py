"""UCI Adult: 14 attributes of a person and whether their income exceeds 50,000 dollars."""

from __future__ import annotations

import csv

import numpy as np
from numpy.typing import NDArray

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
    """
    rows = _rows(train) + _rows(test)
    *columns, labels = zip(*rows, strict=True)
    x = [_codes(name, column) for name, column in zip(ATTRIBUTES, columns, strict=True)]
    y = [_TARGETS[label.removesuffix(".")] for label in labels]
    return np.column_stack(x), np.array(y)


def _rows(text: str) -> list[list[str]]:
    reader = csv.reader(text.splitlines(), skipinitialspace=True)
    return [[cell.strip() for cell in row] for row in reader if row and not row[0].startswith("|")]


def _codes(name: str, column: tuple[str, ...]) -> NDArray[np.float64]:
    if name in _NUMERIC:
        return np.array(column, dtype=np.float64)
    codes = {category: code for code, category in enumerate(sorted(set(column)))}
    return np.array([codes[category] for category in column], dtype=np.float64)
