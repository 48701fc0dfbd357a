"""`sweeps data` and `sweeps doctor`: data sets, and checks, here or on a cluster's nodes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import TypeAdapter
from rich.console import Console
from rich.progress import DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn
from rich.text import Text

from cluster.jobs import JobClient
from privnets import data as datasets
from sweeps.cli.options import AnyAddress, Command, Data, Json, Storage, TrackingUri
from sweeps.cli.terminal import print_rows, say
from sweeps.planning.node_data import LIST_SECONDS
from sweeps.remote.commands import check_remote_path
from sweeps.remote.doctor import examine_remotely
from sweeps.remote.environment import is_job_server
from sweeps.remote.examination import examine
from sweeps.remote.node_data import (
    FETCH_SECONDS,
    NodeData,
    ask_nodes,
    data_variables,
    fetch_local,
    local_data,
    place_of,
)
from sweeps.study.loader import load
from sweeps.study.shipped_files import read_study_files

_STYLES: Final = {"ok": "green", "warning": "yellow", "failed": "bold red"}

_NODES = TypeAdapter(dict[str, NodeData])

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def _data() -> None:
    """List and fetch data sets, here or on every node of a cluster."""


@app.command("list", cls=Command)
def list_datasets(address: AnyAddress = None, data: Data = None, json: Json = False) -> None:
    """List the data sets: source, licence, whether each is present and intact.

    With --address, lists the data of each node.
    """
    if address is None:
        os.environ.update(data_variables(data))
        rows = []
        for name in datasets.names():
            info, state = datasets.info(name), datasets.status(name)
            about = (f"{info.records:,}", info.task, info.source, info.licence)
            rows.append((name, *about, state, place_of(name)))
        print_rows(("name", "records", "task", "source", "licence", "state", "where"), rows)
    else:
        _print_nodes(ask_nodes(address, ["list"], data, LIST_SECONDS, local_data), json)


@app.command("fetch", cls=Command)
def fetch_dataset(
    name: Annotated[str, typer.Argument(help="Name of the data set, as `sweeps data list` shows.")],
    address: AnyAddress = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="DIR_OR_URI",
            help="Copy it from here, as from s3://BUCKET/PREFIX; every node must see it.",
            show_default="the public source",
        ),
    ] = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Fetch a data set from its public source or a copy, and verify it; intact files stay.

    With --address, every node fetches it into its own data directory, or into a shared one, once.
    Exit code 1 if a node failed.
    """
    if address is None:
        os.environ.update(data_variables(data))
        paths = _download(name) if source is None else datasets.copy(name, source)
        typer.echo(
            "\n".join(map(str, paths)) or f"{name} comes with {place_of(name)}; nothing to fetch."
        )
        return
    datasets.info(name)
    if is_job_server(address):
        check_remote_path("--from", source)
    words = ["fetch", name, *([] if source is None else ["--from", source])]
    nodes = ask_nodes(address, words, data, FETCH_SECONDS, fetch_local, name, source)
    _print_nodes(nodes, json)


def _download(name: str) -> list[Path]:
    """Fetches a data set, with a progress bar on a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), DownloadColumn(), TransferSpeedColumn())
    is_hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=is_hidden) as progress:
        tasks: dict[str, TaskID] = {}

        def report(file: str, done: int, total: int) -> None:
            if file not in tasks:
                tasks[file] = progress.add_task(file, total=total)
            progress.update(tasks[file], completed=done)

        return datasets.fetch(name, report)


def _print_nodes(nodes: Mapping[str, NodeData], as_json: bool) -> None:
    """Prints the answers of nodes; exits with 1 if one failed."""
    if as_json:
        typer.echo(_NODES.dump_json(dict(nodes)).decode())
    else:
        rows = [
            (dataset, name, *node.sets[dataset])
            for dataset in dict.fromkeys(name for node in nodes.values() for name in node.sets)
            for name, node in nodes.items()
            if dataset in node.sets
        ]
        if rows:
            print_rows(("name", "node", "state", "where"), rows)
        for name, node in nodes.items():
            for file in node.files:
                say(f"{name}: {file}")
            if node.problem is not None:
                say(f"Error: node {name}: {node.problem}", err=True)
            elif not node.sets and not node.files:
                say(f"{name}: nothing to fetch")
    if any(node.problem is not None for node in nodes.values()):
        raise typer.Exit(1)


def doctor(
    address: AnyAddress = None,
    storage: Storage = None,
    tracking_uri: TrackingUri = None,
    study: Annotated[
        str | None, typer.Option(help="Study whose data and resources to check.")
    ] = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Check everything that a sweep needs, on every node, and advise on each failure.

    Versions are equal everywhere; Ray rejects requests without its token; secret files are private;
    every node can write the same storage; the tracking store answers; the study's data are on every
    node; torch can use the GPUs.

    Exit codes: 0 nothing failed, though there may be warnings; 1 a check failed; 2 bad input, such
    as an address where no Ray answers, or one that rejects the token.
    """
    loaded = None if study is None else load(study)
    if address is not None and is_job_server(address):
        files = {} if loaded is None else read_study_files(loaded)
        report = examine_remotely(JobClient(address), storage, tracking_uri, loaded, data, files)
    else:
        os.environ.update(data_variables(data))
        report = examine(address, storage, tracking_uri, loaded, data)
    if json:
        typer.echo(report.model_dump_json())
    else:
        rows = [
            (c.subject, c.node, Text(c.state, style=_STYLES[c.state]), c.found, c.remedy)
            for c in report.checks
        ]
        print_rows(("subject", "node", "state", "found", "remedy"), rows)
        failed, total = len(report.failed), len(report.checks)
        typer.echo(f"{failed} of {total} checks failed." if failed else "No check failed.")
    sys.stdout.flush()
    os._exit(1 if report.failed else 0)  # Python would wait for a check that hangs.
