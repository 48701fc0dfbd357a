"""`sweeps sync`, `verify`, `ui` and `serve`: a sweep in MLflow, and servers of MLflow."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

import cluster
import tracking
from cluster.guests import ServerFailed
from cluster.mlflow_process import Certificate, Place, serving
from cluster.ports import check_port, is_loopback
from cluster.serving import ADMIN, PASSWORD, Permission, TeamServer
from cluster.uris import holds_secret
from sweeps.analysis.formatting import format_count
from sweeps.analysis.results import DEFAULT_STORAGE, open_result, read_result
from sweeps.cli.options import Storage, Sweep, TrackingUri
from sweeps.cli.terminal import say
from sweeps.engine.signals import Interrupted, catch_stop_signals
from sweeps.errors import InputError
from sweeps.publishing.publisher import publish_all
from sweeps.report.summary import write_summary
from sweeps.store.filesystem import absolute_storage
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import choose_tracking_uri, read_manifest
from tracking.errors import redact, strip_credentials
from tracking.pages import study_pages

_HOST = "127.0.0.1"
_LISTED_STUDIES = 10
_LISTED_DIFFERENCES = 50
_TLS_PANEL = "TLS"


def sync(sweep: Sweep, tracking_uri: TrackingUri = None, storage: Storage = None) -> None:
    """Publish to MLflow the points that it lacks; a second run adds nothing."""
    directory = absolute_storage(storage or DEFAULT_STORAGE)
    ledger = Ledger(directory, sweep)
    manifest = read_manifest(ledger)
    uri = tracking.resolve_uri(choose_tracking_uri(manifest, tracking_uri))
    tracking.check(uri)
    write_summary(ledger, read_result(ledger, directory))
    published = publish_all(ledger, manifest, uri)
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
    _serve_until_stopped(lambda: _serve_ui(uri, port))


def serve(
    database: Annotated[
        str | None,
        typer.Option(
            metavar="postgresql://USER@HOST/NAME",
            help="A PostgreSQL that runs, its password in ~/.pgpass; one of its own by default.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = _HOST,
    port: Annotated[int, typer.Option(min=1, max=65535)] = 5000,
    artifacts: Annotated[
        str | None, typer.Option(metavar="DIR_OR_URI", help="DIR/artifacts of --data by default.")
    ] = None,
    allowed_hosts: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME...]", help="The names by which clients call it."),
    ] = None,
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="Its secrets, and its own PostgreSQL.")
    ] = Path("sweeps-server"),
    workers: Annotated[int, typer.Option(min=1, max=64, help="One is the fastest.")] = 1,
    permission: Annotated[
        Permission, typer.Option(help="What an account may do with what others recorded.")
    ] = "EDIT",
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", rich_help_panel=_TLS_PANEL)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", rich_help_panel=_TLS_PANEL)
    ] = None,
) -> None:
    """Serve MLflow on PostgreSQL to a team, with accounts, until Ctrl-C."""
    if database is not None:
        _check_no_password(database)
    names = tuple(name.strip() for name in (allowed_hosts or "").split(",") if name.strip())

    def serve_team() -> None:
        with cluster.serve(
            database, host=host, port=port, artifacts=artifacts, allowed_hosts=names, data=data,
            workers=workers, permission=permission, certificate=_certificate(tls_cert, tls_key),
        ) as server:  # fmt: skip
            _print_server(server, names, host)
            server.wait()

    _serve_until_stopped(serve_team)


def _serve_until_stopped(serve: Callable[[], None]) -> None:
    """Runs a server until a signal; exits with the signal's code, or with 1 if it failed."""
    with catch_stop_signals() as signals:
        try:
            with signals.interruptible():
                serve()
        except Interrupted as interrupted:
            raise typer.Exit(128 + interrupted.signal) from None
        except ServerFailed as error:
            typer.echo(f"Error: {error}", err=True)
            raise typer.Exit(1) from None


def _serve_ui(uri: str, port: int) -> None:
    check_port(_HOST, port)
    pages = study_pages(uri, _LISTED_STUDIES)
    place = Place(_HOST, port)
    with serving(uri, place) as server:
        typer.echo(f"MLflow UI on {redact(uri)}: {place.uri} (Ctrl-C stops it)")
        _print_pages(place.uri, pages)
        sys.stdout.flush()
        code = server.wait()
    raise ServerFailed(f"the MLflow server stopped with exit code {code}")


def _print_pages(server: str, pages: Mapping[str, str]) -> None:
    for study, page in pages.items():
        say(f"  {study}: {server}/{page}")


def _check_no_password(database: str) -> None:
    if holds_secret(database):
        raise InputError(
            "--database holds a password, which every user of this machine could read there: "
            "leave it out of the URI and put it into ~/.pgpass (chmod 600) or PGPASSWORD"
        )


def _certificate(certificate: Path | None, key: Path | None) -> Certificate | None:
    if (certificate is None) != (key is None):
        raise InputError("TLS needs both --tls-cert and --tls-key")
    if certificate is None or key is None:
        return None
    return Certificate(certificate.absolute(), key.absolute())


def _print_server(server: TeamServer, names: tuple[str, ...], host: str) -> None:
    scheme, port = server.uri.partition("://")[0], server.uri.rpartition(":")[2]
    address = server.uri if is_loopback(host) else f"{scheme}://{_client_name(names)}:{port}"
    typer.echo(f"MLflow for a team on {server.database}: {address} (Ctrl-C stops it)")
    typer.echo(f"  artifacts: {server.artifacts}")
    typer.echo(f"  password of {ADMIN}: {server.password_file or f'as in {PASSWORD}'}")
    typer.echo(f"  accounts for others: {address}/signup, as {ADMIN}")
    typer.echo("Clients set:")
    typer.echo(f"  export MLFLOW_TRACKING_URI={address}")
    typer.echo("and keep their account in ~/.mlflow/credentials (chmod 600):")
    typer.echo("  [mlflow]\n  mlflow_tracking_username = NAME\n  mlflow_tracking_password = ...")
    sys.stdout.flush()
    if not server.password_fits:
        typer.echo(
            f"Warning: {server.password_file or PASSWORD} is not the password of {ADMIN}; the "
            "database keeps the password of its first start",
            err=True,
        )
    if scheme == "http" and not is_loopback(host):
        typer.echo(
            "Warning: passwords travel unencrypted; give --tls-cert and --tls-key, or use a "
            "proxy with TLS",
            err=True,
        )


def _client_name(names: tuple[str, ...]) -> str:
    plain = [name.partition(":")[0] for name in names if "*" not in name]
    return plain[0] if plain else "HOST"
