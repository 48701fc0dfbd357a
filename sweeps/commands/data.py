"""`sweeps data`: which data sets there are, and how to get them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.progress import TaskID

app = typer.Typer(help="Which data sets there are, and how to get them.", no_args_is_help=True)

_PIPED_WIDTH = 240  # wide enough that no cell is broken over lines where nobody looks at a screen


@app.command("list")
def list_datasets() -> None:
    """List the data sets: source, licence, and whether each is present and intact."""
    from rich.table import Table

    from privnets import data

    table = Table("name", "records", "task", "source", "licence", "state", "where")
    for name in data.names():
        info = data.info(name)
        where = str(data.directory() / name) if info.files else "scikit-learn"
        table.add_row(
            name,
            f"{info.records:,}",
            info.task,
            info.source,
            info.licence,
            data.status(name),
            where,
        )
    for column in table.columns:
        column.overflow = "fold"
    _console().print(table)


@app.command("fetch")
def fetch_dataset(
    name: Annotated[str, typer.Argument(help="The data set's name, as `sweeps data list` gives.")],
) -> None:
    """Download a data set from its public source and check it; what is intact stays."""
    from privnets import data

    try:
        paths = _fetch(name)
    except data.DataError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from error
    for path in paths:
        typer.echo(path)
    if not paths:
        typer.echo(f"{name} comes with scikit-learn: nothing to fetch.")


def _fetch(name: str) -> list[Path]:
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from privnets import data

    columns = (TextColumn("{task.description}"), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        tasks: dict[str, TaskID] = {}

        def report(file: str, done: int, total: int) -> None:
            if file not in tasks:
                tasks[file] = progress.add_task(file, total=total)
            progress.update(tasks[file], completed=done)

        return data.fetch(name, report)


def _console() -> Console:
    from rich.console import Console

    console = Console(markup=False)  # a path may hold square brackets
    return console if console.is_terminal else Console(markup=False, width=_PIPED_WIDTH)
