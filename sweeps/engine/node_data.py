"""Data sets on this machine, as one node of a cluster sees to its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from privnets import data
from sweeps.errors import StudyError


class OnNode(BaseModel):
    """What a node has, or got.

    Attributes:
        sets: Data set to its state (`present`, `absent`, `altered`) and where it is.
        files: Those of the data set that was asked for; none where it comes with scikit-learn.
        problem: Why it did not do what it was asked; None if it did.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sets: dict[str, tuple[str, str]] = {}
    files: tuple[str, ...] = ()
    problem: str | None = None


def states() -> OnNode:
    """What is here."""
    return OnNode(sets={name: (data.status(name), _folder(name)) for name in data.names()})


def get(name: str, source: str | None) -> OnNode:
    """Fetch a data set, once however many processes of the machine ask.

    Args:
        name: The data set.
        source: A directory or URI to copy it from; None for its public source.

    Raises:
        DataError: If it cannot be had; nothing was changed then.
    """
    paths = data.fetch(name) if source is None else data.copy(name, source)
    return OnNode(files=tuple(str(path) for path in paths))


def fingerprints(study: Mapping[str, Any]) -> dict[str, str]:
    """Which data a study finds here: data set to fingerprint.

    Args:
        study: As `Study.to_dict` gives it.

    Raises:
        DataError: If a data set is absent or altered.
        StudyError: If anything is wrong with the study itself.
    """
    from sweeps.planning import plan as planning
    from sweeps.study.loader import read_study
    from sweeps.study.validation import validate_study

    checked = validate_study(read_study(study), data=False)
    if checked.errors:
        raise StudyError(checked.errors)
    return planning.data_fingerprints(str(study["experiment"]), checked.configs)


def _folder(name: str) -> str:
    return str(data.directory() / name) if data.info(name).files else "scikit-learn"
