"""Names of the parameters that a user's model accepts."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Final

from privnets.config import did_you_mean
from privnets.contract import InvalidField
from privnets.references.models import ModelReference
from privnets.references.user_files import import_object

_LISTED: Final = 10


def unknown_parameters(reference: ModelReference, skipped: int = 0) -> list[InvalidField]:
    """Returns the given parameters that a model does not have.

    Args:
        skipped: Number of leading arguments that are not parameters.
    """
    known = parameter_names(reference, skipped)
    if known is None:
        return []
    invalid = []
    for name in sorted(reference.params.keys() - set(known)):
        hint = did_you_mean(name, known)
        listed = _list_parameters(name, known)
        expected = f"a parameter of {reference.location}{hint}: {listed}"
        given = f"{name}, which is unknown"
        invalid.append(InvalidField(f"model.params.{name}", given, expected))
    return invalid


def _list_parameters(name: str, known: Sequence[str]) -> str:
    """Lists at most ten parameters: those most similar to a name, if there are more."""
    if len(known) <= _LISTED:
        return ", ".join(known) or "none"
    similar = get_close_matches(name, known, n=_LISTED, cutoff=0.0)
    return f"{', '.join(similar)} and {len(known) - _LISTED} others"


def parameter_names(reference: ModelReference, skipped: int = 0) -> tuple[str, ...] | None:
    """Returns the names of all parameters; None if a function accepts any."""
    source: Any = import_object(reference.location, reference.entry)
    if not callable(source):
        return tuple(source.get_params()) if hasattr(source, "get_params") else ()
    parameters = [*inspect.signature(source).parameters.values()][skipped:]
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    return tuple(each.name for each in parameters)
