"""Names of the parameters that a user's model accepts."""

from __future__ import annotations

import inspect
from typing import Any, Final

from privnets.config import did_you_mean
from privnets.contract import InvalidField
from privnets.data.user_files import import_object
from privnets.membership.user_models.forms import ModelReference

_LISTED: Final = 40


def unknown_parameters(reference: ModelReference, skipped: int = 0) -> list[InvalidField]:
    """Returns the given parameters that a model does not have.

    Args:
        skipped: Number of leading arguments that are not parameters.
    """
    known = parameter_names(reference, skipped)
    if known is None:
        return []
    listed = ", ".join(known[:_LISTED]) or "none"
    invalid = []
    for name in sorted(reference.params.keys() - set(known)):
        hint = did_you_mean(name, known)
        expected = f"a parameter of {reference.location}: {listed}{hint}"
        given = f"{name}, which is unknown"
        invalid.append(InvalidField(f"model.params.{name}", given, expected))
    return invalid


def parameter_names(reference: ModelReference, skipped: int = 0) -> tuple[str, ...] | None:
    """Returns the names of all parameters; None if a function accepts any."""
    source: Any = import_object(reference.location, reference.entry)
    if not callable(source):
        return tuple(source.get_params()) if hasattr(source, "get_params") else ()
    parameters = [*inspect.signature(source).parameters.values()][skipped:]
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    return tuple(each.name for each in parameters)
