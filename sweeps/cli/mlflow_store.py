"""`sweeps sync`, `verify`, `ui` and `serve`: a sweep in MLflow, and servers of MLflow."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

import tracking
from privnets.credentials import holds_secret, redact, strip_credentials
from sweeps.analysis.results import Result, open_result
from sweeps.analysis.text import format_count
from sweeps.cli.options import Storage, Sweep, TrackingUri
from sweeps.cli.terminal import say
from sweeps.engine.signals import Interrupted, catch_stop_signals
from sweeps.errors import InputError
from sweeps.publishing.publisher import publish_all
from sweeps.report.summary import write_summary
from sweeps.store.filesystem import DEFAULT_STORAGE
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import choose_tracking_uri, read_manifest
from tracking.server import (
    ADMIN,
    PASSWORD_VARIABLE,
    ServerStoppedError,
    mlflow_server,
    team_server,
)
from tracking.sweep_run import study_pages

_HOST = "127.0.0.1"
_LISTED_STUDIES = 10
_LISTED_DIFFERENCES = 50
_PROGRESS_SECONDS = 5.0

Permission = Literal["READ", "EDIT", "MANAGE", "NO_PERMISSIONS"]


def sync(sweep: Sweep, tracking_uri: TrackingUri = None, storage: Storage = None) -> None:
    """Publish to MLflow the points that it lacks; a second run adds nothing."""
    ledger = Ledger(storage or DEFAULT_STORAGE, sweep)
    manifest = read_manifest(ledger)
    uri = tracking.resolve_uri(choose_tracking_uri(manifest, tracking_uri))
    tracking.check(uri)
    printed = time.monotonic()

    def show(sent: int) -> None:
        nonlocal printed
        if time.monotonic() - printed >= _PROGRESS_SECONDS:
            printed = time.monotonic()
            typer.echo(f"{sent:,} of {manifest.plan.points:,} points", err=True)

    published = publish_all(
        ledger,
        manifest,
        uri,
        lambda: write_summary(ledger, Result.read(ledger)),
        show,
    )
    typer.echo(f"{format_count(published.points, 'point')} of {sweep} are in {redact(uri)}")
    if not published.whole:
        say(f"Error: {published.error}", err=True)
        raise typer.Exit(1)


def verify(sweep: Sweep, tracking_uri: TrackingUri = None, storage: Storage = None) -> None:
    """Compare every number in the ledger with MLflow's; exit code 1 if any differs."""
    result = open_result(sweep, storage)
    uri = tracking.resolve_uri(choose_tracking_uri(result.manifest, tracking_uri))
    tracking.check(uri)
    differences = tracking.compare(result.tradeoff_points, sweep, uri, result.study.name)
    for name, reason in result.unreadable.items():
        say(f"Warning: ignored {name}: {reason}", err=True)
    points = format_count(len(result.tradeoff_points), "point")
    if not differences:
        typer.echo(f"The ledger and {redact(uri)} hold the same {points} of {sweep}.")
        return
    for line in differences[:_LISTED_DIFFERENCES]:
        say(line)
    typer.echo(
        f"{format_count(len(differences), 'difference')} between the ledger ({points}) and "
        f"{redact(uri)}. `sweeps sync {sweep}` publishes missing points.",
        err=True,
    )
    raise typer.Exit(1)


def ui(
    tracking_uri: TrackingUri = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help=f"Port on {_HOST}.")] = 5000,
) -> None:
    """Open the MLflow UI on this machine alone, until Ctrl-C."""
    uri = tracking.resolve_uri(tracking_uri)
    if uri.startswith(("http://", "https://")):
        server = strip_credentials(uri).rstrip("/")
        typer.echo(f"A server is already running; open {server}")
        _print_pages(server, study_pages(uri, _LISTED_STUDIES))
        return
    pages = study_pages(uri, _LISTED_STUDIES)
    with _exit_on_signals(), mlflow_server(uri, _HOST, port) as running:
        typer.echo(f"MLflow UI on {redact(uri)}: {running.uri} (Ctrl-C stops it)")
        _print_pages(running.uri, pages)
        sys.stdout.flush()
        running.wait()


def serve(
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Its database, as postgresql://USER@HOST/NAME with the password in ~/.pgpass; "
            "SQLite in --data by default.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = _HOST,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 5000,
    artifacts: Annotated[
        str | None, typer.Option(metavar="DIR_OR_URI", help="DIR/artifacts of --data by default.")
    ] = None,
    allowed_hosts: Annotated[
        str | None, typer.Option(metavar="NAME[,NAME...]", help="Names by which clients call it.")
    ] = None,
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory of its secrets and its database.")
    ] = Path("sweeps-server"),
    permission: Annotated[
        Permission, typer.Option(help="Permission of an account for the experiments of others.")
    ] = "EDIT",
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key.")] = None,
) -> None:
    """Serve MLflow to a team, with accounts, until Ctrl-C."""
    for option, value in (("--database", database), ("--artifacts", artifacts)):
        if value is not None and holds_secret(value):
            raise InputError(
                f"{option} holds a password, which every user of this machine could read: put it "
                "into ~/.pgpass (chmod 600), PGPASSWORD, or the variables of the object store"
            )
    if (tls_cert is None) != (tls_key is None):
        given = "--tls-key" if tls_cert is None else "--tls-cert"
        raise InputError(f"give both --tls-cert and --tls-key, or neither; got {given} alone")
    tls = (tls_cert.absolute(), tls_key.absolute()) if tls_cert and tls_key else None
    names = [name.strip() for name in (allowed_hosts or "").split(",") if name.strip()]
    team = team_server(data, database, artifacts, host, port, tls, names, permission)
    with _exit_on_signals(), team as server:
        _print_server(server.uri, names, data)
        server.wait()


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Exits with a signal's code if one ends the block, and with 1 if its server fails."""
    with catch_stop_signals() as signals:
        try:
            with signals.interruptible():
                yield
        except Interrupted as interrupted:
            raise typer.Exit(128 + interrupted.signal) from None
        except ServerStoppedError as error:
            typer.echo(f"Error: {error}", err=True)
            raise typer.Exit(1) from None


def _print_pages(server: str, pages: Mapping[str, str]) -> None:
    for study, page in pages.items():
        say(f"  {study}: {server}/{page}")


def _print_server(uri: str, names: list[str], data: Path) -> None:
    scheme, _, rest = uri.partition("://")
    if names:
        uri = f"{scheme}://{names[0].partition(':')[0]}:{rest.rpartition(':')[2]}"
    typer.echo(
        f"MLflow for a team: {uri} (Ctrl-C stops it)\n"
        f"  password of {ADMIN}: {PASSWORD_VARIABLE} or {data.absolute()}/admin-password\n"
        f"  accounts for others: {uri}/signup, as {ADMIN}\n"
        f"Clients set:\n  export MLFLOW_TRACKING_URI={uri}\n"
        "and keep their account in ~/.mlflow/credentials (chmod 600):\n"
        "  [mlflow]\n  mlflow_tracking_username = NAME\n  mlflow_tracking_password = ..."
    )
    sys.stdout.flush()
    if names and scheme == "http":
        typer.echo(
            "Warning: passwords travel unencrypted; give --tls-cert and --tls-key, or use a "
            "proxy with TLS",
            err=True,
        )
