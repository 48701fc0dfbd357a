"""UCI Adult: 14 attributes of a person, and whether the income exceeds 50,000 dollars."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privnets.data.catalog import DataSource, Table
from privnets.data.files import DataError, DataFile, DatasetInfo

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
_URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult"


class AdultSource(DataSource):
    """Table of adult.data followed by adult.test."""

    info = DatasetInfo(
        name="adult",
        title="Adult (Census Income)",
        records=48_842,
        attributes=14,
        task="binary",
        classes=2,
        source="https://archive.ics.uci.edu/dataset/2/adult",
        licence="CC BY 4.0",
        citation="R. Kohavi and B. Becker, UCI Machine Learning Repository, 1996",
        files=(
            DataFile(
                "adult.data",
                f"{_URL}/adult.data",
                3_974_305,
                "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            ),
            DataFile(
                "adult.test",
                f"{_URL}/adult.test",
                2_003_153,
                "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            ),
        ),
    )

    def read(self, paths: Sequence[Path]) -> Table:
        """Reads both files; see `parse`."""
        train, test = (path.read_text(encoding="ascii") for path in paths)
        return *parse(train, test), ATTRIBUTES


def parse(train: str, test: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Parses adult.data followed by adult.test.

    A category becomes its position in the alphabetical order of the column's categories over both
    files; `?` (missing) is a category. adult.test starts with a comment line and has a dot after
    each label; both files end with an empty line.
    """
    rows = _rows("adult.data", train) + _rows("adult.test", test)
    if not rows:
        raise DataError("adult.data and adult.test have no rows.")
    *columns, labels = zip(*rows, strict=True)
    x = [_encode(name, column) for name, column in zip(ATTRIBUTES, columns, strict=True)]
    return np.column_stack(x), np.array([_target(label) for label in labels])


def _rows(name: str, text: str) -> list[list[str]]:
    try:
        lines = list(csv.reader(text.splitlines(), skipinitialspace=True))
    except csv.Error as error:
        raise DataError(f"{name} is not a csv file: {error}.") from error
    rows = [[cell.strip() for cell in row] for row in lines if row and not row[0].startswith("|")]
    expected = len(ATTRIBUTES) + 1
    for row in rows:
        if len(row) != expected:
            raise DataError(f"{name} has a row of {len(row)} columns, expected {expected}.")
    return rows


def _target(label: str) -> float:
    try:
        return _TARGETS[label.removesuffix(".")]
    except KeyError:
        raise DataError(f"an income of adult must be <=50K or >50K; got {label!r}.") from None


def _encode(name: str, column: tuple[str, ...]) -> NDArray[np.float64]:
    if name in _NUMERIC:
        return _numbers(name, column)
    codes = {category: code for code, category in enumerate(sorted(set(column)))}
    return np.array([codes[category] for category in column], dtype=np.float64)


def _numbers(name: str, column: tuple[str, ...]) -> NDArray[np.float64]:
    try:
        numbers = np.array(column, dtype=np.float64)
    except ValueError as error:
        raise DataError(f"the attribute {name} of adult must hold numbers: {error}.") from error
    if not np.isfinite(numbers).all():
        raise DataError(f"the attribute {name} of adult must hold finite numbers.")
    return numbers
