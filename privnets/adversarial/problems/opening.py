"""Problems of configurations: packaged ones, and those of the user's own records."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.encodings import RecordEncoding
from privnets.adversarial.problem import Problem
from privnets.adversarial.problems import PROBLEMS
from privnets.adversarial.problems.own import OwnProblem, TableProblem, open_images
from privnets.adversarial.problems.own_series import SeriesProblem
from privnets.references.data import digest_of
from privnets.references.problems import (
    ImageProblemReference,
    OwnReference,
    SeriesProblemReference,
    TableFileReference,
    TableProblemReference,
)
from privnets.references.user_files import absolute_path


def problem_of(config: AdversarialConfig) -> Problem:
    """Returns the problem of a configuration.

    Raises:
        DataError: If it is the user's own, and its files cannot be read.
    """
    if isinstance(config.problem, OwnReference):
        return open_records(config.problem)
    problem: Problem = PROBLEMS.get(str(config.problem)).configured(config.settings)
    return problem


def open_records(reference: OwnReference, encoding: RecordEncoding | None = None) -> OwnProblem:
    """Reads the user's own records, once per process and content.

    Args:
        encoding: That of a trained releaser; None measures the records.

    Raises:
        DataError: If they cannot be read, or do not fit their description.
    """
    if isinstance(reference, ImageProblemReference):
        return open_images(reference)
    assert isinstance(reference, TableFileReference)
    path = absolute_path(getattr(reference, reference.file_field))
    return _open_table(reference, path, digest_of(path, reference.file_field), encoding)


@lru_cache(maxsize=8)
def _open_table(
    reference: TableFileReference, path: Path, digest: str, encoding: RecordEncoding | None
) -> OwnProblem:
    if isinstance(reference, TableProblemReference):
        return TableProblem(reference, path, digest, encoding)
    assert isinstance(reference, SeriesProblemReference)
    return SeriesProblem(reference, path, digest, encoding)
