"""Data sets that scikit-learn ships, so that they need no download."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privnets.data.catalog import DataError
from privnets.data.files import digest

_FILES = {
    "digits": ("digits.csv.gz",),
    "diabetes": ("diabetes_data_raw.csv.gz", "diabetes_target.csv.gz"),
}


def folder() -> Path:
    """Where scikit-learn keeps its data files; does not import it, which is slow.

    Raises:
        DataError: If scikit-learn is not installed.
    """
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise DataError("scikit-learn is not installed; it ships the data sets digits, diabetes.")
    return Path(spec.origin).parent / "datasets" / "data"


def digests(name: str) -> list[str]:
    """The sha256 of each file that the installed scikit-learn ships for a data set.

    Raises:
        DataError: If one is absent or unreadable.
    """
    try:
        return [digest(folder() / file) for file in _FILES[name]]
    except OSError as error:
        raise DataError(
            f"data set {name!r} cannot be used: {error.filename} cannot be read "
            f"({error.strerror}). It comes with scikit-learn: install that again."
        ) from error


def read(
    name: str,
) -> tuple[NDArray[np.float64], NDArray[np.float64] | NDArray[np.int64], tuple[str, ...]]:
    """Attributes as published, targets and attribute names.

    `diabetes` keeps the published units; its target is the progression score, 25 to 346.
    """
    from sklearn import datasets

    if name == "digits":
        digits = datasets.load_digits()
        return digits.data, digits.target.astype(np.int64), tuple(digits.feature_names)
    diabetes = datasets.load_diabetes(scaled=False)
    return diabetes.data, diabetes.target, tuple(diabetes.feature_names)
