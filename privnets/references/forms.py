"""Table of everything that a user may give in place of a packaged name, by the entry that tells it.

Each form has one loader: `DataReference.source`, `ModelReference.load`, `open_records` of
`privnets.adversarial.problems.opening`, and `import_object` for networks. `scorers` reads the
user's utilities, `experiments` the user's experiments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from privnets.data.catalog import DataReference
from privnets.references.arrays import ArraysReference, TorchDatasetReference
from privnets.references.models import (
    EstimatorReference,
    ModelReference,
    ModuleReference,
    NetworkReference,
)
from privnets.references.problems import (
    ImageProblemReference,
    OwnReference,
    SeriesProblemReference,
    TableProblemReference,
)
from privnets.references.tables import TableReference

DATA_FORMS: Final[Mapping[str, type[DataReference]]] = {
    "table": TableReference,
    "arrays": ArraysReference,
    "torch": TorchDatasetReference,
}
MODEL_FORMS: Final[Mapping[str, type[ModelReference]]] = {
    "sklearn": EstimatorReference,
    "torch": ModuleReference,
}
PROBLEM_FORMS: Final[Mapping[str, type[OwnReference]]] = {
    "table": TableProblemReference,
    "images": ImageProblemReference,
    "series": SeriesProblemReference,
}
NETWORK_FORMS: Final[Mapping[str, type[NetworkReference]]] = {"torch": NetworkReference}
