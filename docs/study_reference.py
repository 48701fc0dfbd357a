"""Tables of the study reference, generated from the pydantic models and the packaged studies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel

import privnets
from privnets.fields import describe_fields
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


def _fields(model: type[BaseModel]) -> str:
    rows = [(f"`{name}`", *others) for name, *others in describe_fields(model, mark="`")]
    return _table(("field", "values", "default", "meaning"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = ([cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in lines)
    return "\n".join(f"| {' | '.join(row)} |" for row in cells) + "\n"
