"""Tables of the study reference, generated from the pydantic models and the packaged studies."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import privnets
from sweeps.study.spec import Bounds, Claim, EarlyStopping, Resources, SearchSpec, Study

_LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def write(folder: Path) -> None:
    """Writes one Markdown file per table into `_generated` below the folder of the pages."""
    target = folder / "_generated"
    target.mkdir(exist_ok=True)
    for name in privnets.experiments():
        config = privnets.experiment(name).Config
        (target / f"{name}.md").write_text(_fields(config), encoding="utf-8")
    for model in (Study, SearchSpec, Resources, EarlyStopping, Claim, Bounds):
        (target / f"{model.__name__}.md").write_text(_fields(model), encoding="utf-8")


def _fields(model: type[BaseModel]) -> str:
    schema = model.model_json_schema(by_alias=True)
    definitions = schema.get("$defs", {})
    meanings = _attributes(model)
    rows = [
        (
            f"`{name}`",
            _values(field, definitions),
            _default(model, name),
            field.get("description") or meanings[name],
        )
        for name, field in schema["properties"].items()
    ]
    return _table(("field", "values", "default", "meaning"), rows)


def _attributes(model: type[BaseModel]) -> dict[str, str]:
    """Returns the attributes that a docstring describes, by name."""
    _, _, section = (inspect.getdoc(model) or "").partition("Attributes:\n")
    entries = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", section, flags=re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _values(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "$ref" in field:
        return _values(definitions[field["$ref"].rpartition("/")[2]], definitions)
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    options = field.get("anyOf") or field.get("oneOf")
    if options:
        return " or ".join(dict.fromkeys(_values(option, definitions) for option in options))
    limits = [f"{sign} {field[key]:g}" for key, sign in _LIMITS.items() if key in field]
    kind = {"null": "none", "object": "mapping", "array": "list"}.get(
        field.get("type", "any"), field.get("type", "any")
    )
    return " ".join([kind, " and ".join(limits)]).strip()


def _default(model: type[BaseModel], name: str) -> str:
    field = model.model_fields[name]
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if isinstance(default, BaseModel):
        return "see below"
    return "none" if default in (None, {}, (), "") else f"`{default}`"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = ([cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in lines)
    return "\n".join(f"| {' | '.join(row)} |" for row in cells) + "\n"
