"""UCI Adult: 14 attributes of a person, and whether the income exceeds 50,000 dollars."""

from __future__ import annotations

import io
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
_MAX_MESSAGE = 300
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
    import pandas as pd  # slow to import

    try:
        rows = pd.read_csv(
            io.StringIO(f"{train}\n{test}"),
            header=None,
            dtype=str,
            comment="|",
            skipinitialspace=True,
            keep_default_na=False,
        )
        if rows.shape[1] != len(ATTRIBUTES) + 1 or rows.isna().any(axis=None):
            raise ValueError(f"each row must have {len(ATTRIBUTES) + 1} columns")
        *columns, labels = (rows[column] for column in rows)
        encoded = [
            column if name in _NUMERIC else column.astype("category").cat.codes
            for name, column in zip(ATTRIBUTES, columns, strict=True)
        ]
        x = np.column_stack([column.to_numpy(np.float64) for column in encoded])
        y = np.asarray(labels.str.removesuffix(".").map(_TARGETS), dtype=np.float64)
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise ValueError("numbers must be finite, and incomes <=50K or >50K")
    except ValueError as error:
        reason = str(error)[:_MAX_MESSAGE]
        raise DataError(f"adult.data and adult.test are not as published: {reason}.") from error
    return x, y
