"""Data sets: a catalog, the published files, and arrays ready for training.

Loaders read the original files, check that they are the published ones and never change them.
Importing this package loads neither torch nor scikit-learn nor pandas.
"""

from privnets.data import eco, mnist
from privnets.data.catalog import DataError, DataFile, DatasetInfo, info, names
from privnets.data.datasets import Dataset, fingerprint, load, status
from privnets.data.fetching import copy, fetch
from privnets.data.files import directory
from privnets.data.preparation import Prepared, prepare

__all__ = [
    "DataError",
    "DataFile",
    "Dataset",
    "DatasetInfo",
    "Prepared",
    "copy",
    "directory",
    "eco",
    "fetch",
    "fingerprint",
    "info",
    "load",
    "mnist",
    "names",
    "prepare",
    "status",
]
