"""`sweeps data`: which data sets there are, and how to get them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.progress import TaskID

    from sweeps.engine.data_on_nodes import Nodes

app = typer.Typer(help="Which data sets there are, and how to get them.", no_args_is_help=True)

_PIPED_WIDTH = 240  # wide enough that no cell is broken over lines where nobody looks at a screen


Address = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Do it on every node of a Ray: HOST:PORT, auto, or its job server's http://HEAD:8265; "
        "by default on this machine.",
    ),
]
Directory = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="The data directory; by default PRIVNETS_DATA's."),
]
Json = Annotated[bool, typer.Option("--json", help="With --address: print the nodes as JSON.")]


@app.command("list")
def list_datasets(address: Address = None, data: Directory = None, json: Json = False) -> None:
    """List the data sets: source, licence, and whether each is present and intact.

    With --address, what is on each node.
    """
    if address is not None:
        from sweeps.engine import data_on_nodes

        _tell(data_on_nodes.states(address, data), json)
        return
    _choose(data)
    _list_here()


@app.command("fetch")
def fetch_dataset(
    name: Annotated[str, typer.Argument(help="The data set's name, as `sweeps data list` gives.")],
    address: Address = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="DIR",
            help="Copy it from a directory, or a URI such as s3://BUCKET/PREFIX, instead of the "
            "internet; every node must see it.",
        ),
    ] = None,
    data: Directory = None,
    json: Json = False,
) -> None:
    """Get a data set from its public source, or a copy, and check it; what is intact stays.

    With --address every node gets it into its own data directory, once, or into one that all of
    them share. Exit code 1 if a node could not.
    """
    if address is not None:
        from sweeps.engine import data_on_nodes

        _tell(data_on_nodes.get(name, source, address, data), json)
        return
    _choose(data)
    _fetch_here(name, source)


def _choose(directory: str | None) -> None:
    """Use a data directory other than the environment's."""
    import os

    from sweeps.engine.data_on_nodes import environment

    os.environ.update(environment(directory))


def _list_here() -> None:
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


def _fetch_here(name: str, source: str | None) -> None:
    from privnets import data

    try:
        paths = _fetch(name) if source is None else data.copy(name, source)
    except data.DataError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from error
    for path in paths:
        typer.echo(path)
    if not paths:
        typer.echo(f"{name} comes with scikit-learn: nothing to fetch.")


def _tell(nodes: Nodes, json: bool) -> None:
    """Print what nodes have or got; exit code 1 if one could not tell."""
    from sweeps.cli.terminal import say

    if json:
        from sweeps.engine.data_on_nodes import as_json

        typer.echo(as_json(nodes))
    else:
        if any(found.sets for found in nodes.values()):
            _print_states(nodes)
        for node, found in nodes.items():
            for line in found.files:
                say(f"{node}: {line}")
            if found.problem is not None:
                say(f"Error: node {node}: {found.problem}", err=True)
            elif not found.sets and not found.files:
                say(f"{node}: it comes with scikit-learn: nothing to fetch.")
    if any(found.problem is not None for found in nodes.values()):
        raise typer.Exit(1)


def _print_states(nodes: Nodes) -> None:
    from rich.table import Table

    from sweeps.errors import make_printable

    table = Table("name", "node", "state", "where")
    names = dict.fromkeys(name for found in nodes.values() for name in found.sets)
    for name in names:
        for node, found in nodes.items():
            if name in found.sets:
                table.add_row(*map(make_printable, (name, node, *found.sets[name])))
    for column in table.columns:
        column.overflow = "fold"
    _console().print(table)


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
