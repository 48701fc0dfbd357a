"""Errors of pydantic models, in the words of study files."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from typing import Final, get_args

from pydantic import BaseModel, ValidationError

from privnets.config import OneOf, choice_of, without_form_tags
from sweeps.errors import FieldError, FieldPath, format_value

UNKNOWN_KEY: Final = "an unknown key"

_EXPECTED: Final = {
    "greater_than_equal": "at least {ge}",
    "greater_than": "above {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "below {lt}",
    "too_short": "a length of at least {min_length}",
    "too_long": "a length of at most {max_length}",
    "literal_error": "{expected}",
    "finite_number": "a finite number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "tuple_type": "a list",
    "missing": "a value, which is required",
    "string_pattern_mismatch": (
        "up to 100 letters, digits, dots, dashes and underscores, a letter or digit first"
    ),
}
"""Type of a pydantic error to the words for the expected values."""

_MAX_LISTED_VALUES: Final = 5


def field_errors(error: ValidationError, model: type[BaseModel]) -> list[FieldError]:
    """Translates every error that `model.model_validate` raised."""
    errors = []
    for details in error.errors(include_url=False):
        location = tuple(part for part in details["loc"] if part != "[key]")
        path, kind = without_form_tags(location), details["type"]
        if kind == "extra_forbidden":
            names = _field_names(model, details["loc"][:-1])
            errors.append(FieldError.of_name(path, UNKNOWN_KEY, names))
            continue
        if kind in _EXPECTED:
            limits = {}
            for name, limit in details.get("ctx", {}).items():
                is_whole = isinstance(limit, float) and limit.is_integer()
                limits[name] = str(int(limit) if is_whole else limit).replace("'", "")
            expected = _EXPECTED[kind].format(**limits)
        else:
            text = details["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
            expected = re.sub("^must be ", "a value that is ", text)
        given = "nothing" if kind == "missing" else format_value(details["input"])
        errors.append(FieldError(path, given, expected))
    return errors


def without_meant(
    errors: Iterable[FieldError], places: Container[FieldPath]
) -> Iterator[FieldError]:
    """Leaves out mistakes in absent entries that a misspelt name beside them was meant for.

    Args:
        places: Paths of the keys that a study has.
    """

    def within(path: FieldPath) -> FieldPath:  # fields may be fixed or swept
        return path[1:] if path[:1] in (("fixed",), ("space",)) else path

    every = list(errors)
    meant = {(*within(error.path)[:-1], error.meant) for error in every if error.meant}
    for error in every:
        if error.path in places or within(error.path) not in meant:
            yield error


def merge_values(errors: Iterable[FieldError]) -> Iterator[FieldError]:
    """Merges errors that differ only in the given value."""
    groups: dict[tuple[FieldPath, str], dict[str, FieldError]] = {}
    for error in errors:
        groups.setdefault((error.path, error.expected), {})[error.given] = error
    for group in groups.values():
        values = list(group)
        more = len(values) - _MAX_LISTED_VALUES
        given = ", ".join(values[:_MAX_LISTED_VALUES]) + (f" and {more} more" if more > 0 else "")
        yield replace(next(iter(group.values())), given=given)


def _field_names(model: type[BaseModel], location: FieldPath) -> list[str]:
    """Returns the field names of the nested model at a location of a pydantic error."""
    choice: OneOf | None = None
    for part in location:
        if part in model.model_fields:  # others are positions, keys of mappings, or tags of forms
            field = model.model_fields[str(part)]
            choice = choice_of(model, str(part))
            candidates = (field.annotation, *get_args(field.annotation))
            nested = (t for t in candidates if isinstance(t, type) and issubclass(t, BaseModel))
            model = next(nested, model)
        elif choice is not None:
            model = choice.model_at(part) or model
    return list(model.model_fields)
