"""Data sets: a catalog, the published files, and arrays ready for training.

Readers verify the published files and never change them. Importing this package loads neither
torch nor scikit-learn nor pandas.
"""

from privnets.data import eco, mnist
from privnets.data.catalog import (
    DATASETS,
    DataReference,
    Dataset,
    DataSource,
    fingerprint,
    group_names,
    groups,
    info,
    load,
    names,
    status,
)
from privnets.data.files import (
    DataError,
    DataFile,
    DatasetInfo,
    UserFormError,
    directory,
    raise_together,
)
from privnets.data.preparation import PreparedData, prepare
from privnets.data.transfer import copy, fetch

__all__ = [
    "DATASETS",
    "DataError",
    "DataFile",
    "DataReference",
    "DataSource",
    "Dataset",
    "DatasetInfo",
    "PreparedData",
    "UserFormError",
    "copy",
    "directory",
    "eco",
    "fetch",
    "fingerprint",
    "group_names",
    "groups",
    "info",
    "load",
    "mnist",
    "names",
    "prepare",
    "raise_together",
    "status",
]
