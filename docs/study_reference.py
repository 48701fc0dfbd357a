"""Tables of the references, generated from the pydantic models and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel

import privnets
from privnets.fields import describe_fields
from sweeps.cli.main import app, load_command
from sweeps.study.spec import Bounds, Claim, EarlyStopping, Resources, SearchSpec, Study


def write(folder: Path) -> None:
    """Writes one Markdown file per table into `_generated` below the folder of the pages."""
    target = folder / "_generated"
    target.mkdir(exist_ok=True)
    for name in privnets.experiments():
        config = privnets.experiment(name).Config
        (target / f"{name}.md").write_text(_fields(config), encoding="utf-8")
    for model in (Study, SearchSpec, Resources, EarlyStopping, Claim, Bounds):
        (target / f"{model.__name__}.md").write_text(_fields(model), encoding="utf-8")
    text = "\n".join(_command(name) for name in typer.main.get_command(app).commands)
    (target / "commands.md").write_text(text, encoding="utf-8")


def _command(name: str) -> str:
    command = load_command(name)
    parts = getattr(command, "commands", None) or {"": command}
    return "\n".join(_usage(f"{name} {part}".strip(), own) for part, own in parts.items())


def _usage(name: str, command: Any) -> str:
    rows = []
    for parameter in command.params:
        is_option = parameter.param_type_name == "option"
        names = parameter.opts if is_option else [parameter.name.upper()]
        default = "" if parameter.default in (None, False) else f"`{parameter.default}`"
        rows.append((" ".join(f"`{word}`" for word in names), default, parameter.help or ""))
    table = _table(("argument or option", "default", "meaning"), rows) if rows else ""
    return f"## `sweeps {name}`\n\n{command.help}\n\n{table}"


def _fields(model: type[BaseModel]) -> str:
    rows = [(f"`{name}`", *others) for name, *others in describe_fields(model, mark="`")]
    return _table(("field", "values", "default", "meaning"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = ([cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in lines)
    return "\n".join(f"| {' | '.join(row)} |" for row in cells) + "\n"
