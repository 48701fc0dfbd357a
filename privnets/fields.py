"""Descriptions of the fields of a model: name, values, default and meaning, for people."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from privnets.config import choice_of

_LIMITS: Final = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
_KINDS: Final = {"null": "none", "object": "mapping", "array": "list"}


class FieldDescription(NamedTuple):
    """Field of a model in words.

    Attributes:
        values: Type with its bounds, or the names that are allowed.
        default: Default value; `required` without one.
        meaning: Meaning, with the unit if there is one.
    """

    name: str
    values: str
    default: str
    meaning: str


def describe_fields(model: type[BaseModel], mark: str = "") -> Iterator[FieldDescription]:
    """Yields the fields of a model in their order, each with the settings of its named choices.

    Args:
        model: Model whose fields have descriptions, or whose docstring describes its attributes.
        mark: Text before and after each literal value, as a backtick in Markdown.
    """
    schema = model.model_json_schema(by_alias=True)
    definitions = schema.get("$defs", {})
    _, _, section = (inspect.getdoc(model) or "").partition("Attributes:\n")
    entries = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", section, flags=re.MULTILINE)
    meanings = {name: " ".join(text.split()) for name, text in entries}
    for name, field in schema["properties"].items():
        meaning = field.get("description") or meanings.get(name, "no description")
        values, described = _values(field, definitions, mark), model.model_fields[name]
        default = described.get_default(call_default_factory=True)
        if described.is_required():
            text = "required"
        elif isinstance(default, BaseModel):
            text = "see below"
        else:
            text = "none" if default in (None, {}, (), "") else f"{mark}{default}{mark}"
        yield FieldDescription(name, values, text, meaning)
        if (choice := choice_of(model, name)) and choice.settings:
            for each in choice.names():
                for setting in describe_fields(choice.settings(each), mark):
                    yield setting._replace(name=f"{name}.{each}.{setting.name}")


def _values(field: Mapping[str, Any], definitions: Mapping[str, Any], mark: str) -> str:
    if "$ref" in field:
        return _values(definitions[field["$ref"].rpartition("/")[2]], definitions, mark)
    if "enum" in field:
        return ", ".join(f"{mark}{value}{mark}" for value in field["enum"])
    if "const" in field:
        return f"{mark}{field['const']}{mark}"
    if options := field.get("anyOf") or field.get("oneOf"):
        return " or ".join(dict.fromkeys(_values(each, definitions, mark) for each in options))
    limits = [f"{sign} {field[key]:.10g}" for key, sign in _LIMITS.items() if key in field]
    kind = field.get("type", "any")
    return " ".join([_KINDS.get(kind, kind), " and ".join(limits)]).strip()
