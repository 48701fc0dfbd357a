"""Data sets that scikit-learn ships, which need no download: digits and diabetes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import ClassVar

import numpy as np

from privnets.data.catalog import DataSource, Table, combined_fingerprint
from privnets.data.files import DataError, DatasetInfo, FileState, digest


class BundledSource(DataSource):
    """Data set among the files of the installed scikit-learn."""

    bundled_files: ClassVar[tuple[str, ...]]

    def state(self) -> FileState:
        """Returns `present`, or raises DataError if scikit-learn lacks a file."""
        self.fingerprint()
        return "present"

    def fingerprint(self) -> str:
        """Identifies the files of the installed scikit-learn."""
        try:
            digests = tuple(digest(_folder() / file) for file in self.bundled_files)
        except OSError as error:
            raise DataError(
                f"data set {self.name!r} cannot be used: {error.filename} cannot be read "
                f"({error.strerror}). It is a file of scikit-learn: install scikit-learn again."
            ) from error
        return combined_fingerprint(self.name, digests)


class DigitsSource(BundledSource):
    """Images of 8x8 pixels, with the digit as target."""

    info = DatasetInfo(
        name="digits",
        title="Optical recognition of handwritten digits, 8x8 (its test part)",
        records=1_797,
        attributes=64,
        task="multiclass",
        classes=10,
        source="https://archive.ics.uci.edu/dataset/80",
        licence="CC BY 4.0",
        citation="E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998",
        shape=(1, 8, 8),
    )
    bundled_files = ("digits.csv.gz",)

    def read(self, paths: Sequence[Path]) -> Table:
        """Returns grey levels 0 to 16, and classes 0 to 9."""
        from sklearn import datasets  # slow to import

        digits = datasets.load_digits()
        return digits.data, digits.target.astype(np.int64), tuple(digits.feature_names)


class DiabetesSource(BundledSource):
    """Ten attributes of a patient in published units; the target is progression, 25 to 346."""

    info = DatasetInfo(
        name="diabetes",
        title="Diabetes progression after one year",
        records=442,
        attributes=10,
        task="regression",
        classes=0,
        source="https://www4.stat.ncsu.edu/~boos/var.select/diabetes.html",
        licence="none stated; shipped with scikit-learn",
        citation=(
            "B. Efron, T. Hastie, I. Johnstone and R. Tibshirani, "
            "Least Angle Regression, Annals of Statistics 32(2), 2004"
        ),
    )
    bundled_files = ("diabetes_data_raw.csv.gz", "diabetes_target.csv.gz")

    def read(self, paths: Sequence[Path]) -> Table:
        """Returns attributes and progression in published units."""
        from sklearn import datasets  # slow to import

        diabetes = datasets.load_diabetes(scaled=False)
        return diabetes.data, diabetes.target, tuple(diabetes.feature_names)


@cache
def _folder() -> Path:
    """Folder of scikit-learn's data files, located without importing it."""
    return Path(str(distribution("scikit-learn").locate_file("sklearn/datasets/data")))
