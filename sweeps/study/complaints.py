"""Pydantic's errors in the words of a study's author: where, what was found, what is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sweeps.errors import describe_choices, format_value
from sweeps.study.search_space import KINDS
from sweeps.study.spec import Path


class Complaint(NamedTuple):
    """What a validation disliked.

    Attributes:
        path: Keys and positions that lead to the value.
        found: The value.
        allowed: What it may be.
    """

    path: Path
    found: str
    allowed: str


_ALLOWED: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "greater_than_equal": lambda limits: f"at least {_number(limits['ge'])}",
    "greater_than": lambda limits: f"above {_number(limits['gt'])}",
    "less_than_equal": lambda limits: f"at most {_number(limits['le'])}",
    "less_than": lambda limits: f"below {_number(limits['lt'])}",
    "too_short": lambda limits: f"at least {limits['min_length']} of them",
    "too_long": lambda limits: f"at most {limits['max_length']} of them",
    "literal_error": lambda limits: limits["expected"].replace("'", ""),
    "finite_number": lambda _: "a finite number",
    "int_type": lambda _: "a whole number",
    "int_from_float": lambda _: "a whole number",
    "float_type": lambda _: "a number",
    "bool_type": lambda _: "true or false",
    "string_type": lambda _: "a text",
    "dict_type": lambda _: "a mapping",
    "model_type": lambda _: "a mapping",
    "tuple_type": lambda _: "a list",
    "missing": lambda _: "a value, which is required",
    "string_pattern_mismatch": lambda _: (
        "up to 100 letters, digits, dots, dashes and underscores, a letter or digit first"
    ),
}


def complaints(error: ValidationError, model: type[BaseModel]) -> list[Complaint]:
    """Every error of a validation.

    Args:
        error: What `model.model_validate` raised.
        model: The model, whose field names help against misspelling.
    """
    return [_complaint(details, model) for details in error.errors(include_url=False)]


def _complaint(details: ErrorDetails, model: type[BaseModel]) -> Complaint:
    path, kind, value = _untagged(details["loc"]), details["type"], details["input"]
    if kind == "extra_forbidden":
        return Complaint(
            path, "an unknown key", describe_choices(_fields(model, path[:-1]), path[-1])
        )
    if kind == "axis":
        return _axis_complaint(path, value, details["msg"])
    return Complaint(
        path, "nothing" if kind == "missing" else format_value(value), _allowed(details)
    )


def _axis_complaint(path: Path, value: object, allowed: str) -> Complaint:
    """An axis that is no mapping of one known kind."""
    if not isinstance(value, dict) or not value:
        return Complaint(path, format_value(value), allowed)
    kinds = list(map(str, value))
    hint = describe_choices(KINDS, kinds[0]) if len(kinds) == 1 else allowed
    return Complaint(path, f"the keys {', '.join(kinds[:5])}", hint)


def _allowed(details: ErrorDetails) -> str:
    if details["type"] in _ALLOWED:
        return _ALLOWED[details["type"]](details.get("ctx", {}))
    message = details["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return re.sub("^must be ", "only what is ", message)


def _number(limit: float) -> str:
    return str(int(limit)) if limit == int(limit) else str(limit)


def _untagged(path: Path) -> Path:
    """The path without the tag that pydantic puts between an axis and its kind."""
    tagged = len(path) > 2 and path[0] == "space" and path[2] in KINDS
    return path[:2] + path[3:] if tagged else path


def _fields(model: type[BaseModel], path: Path) -> list[str]:
    """Names of the fields of the model that stands at a path."""
    for part in path:
        if isinstance(part, str):
            annotation = model.model_fields[part].annotation
            inner = (annotation, *get_args(annotation))
            model = next(t for t in inner if isinstance(t, type) and issubclass(t, BaseModel))
    return list(model.model_fields)
