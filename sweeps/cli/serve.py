"""`sweeps serve`: a tracking server for a team."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from cluster.mlflow_process import Certificate
    from cluster.serving import TeamServer

Permission = Literal["READ", "EDIT", "MANAGE", "NO_PERMISSIONS"]
_TLS_PANEL = "TLS"


def serve(
    database: Annotated[
        str | None,
        typer.Option(
            metavar="postgresql://USER@HOST/NAME",
            help="A PostgreSQL that runs, its password in ~/.pgpass; one of its own by default.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
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
    import cluster
    from sweeps.cli.attended import attended

    if database is not None:
        _check_no_password(database)
    names = tuple(name.strip() for name in (allowed_hosts or "").split(",") if name.strip())

    def serving() -> None:
        with cluster.serve(
            database, host=host, port=port, artifacts=artifacts, allowed_hosts=names, data=data,
            workers=workers, permission=permission, certificate=_certificate(tls_cert, tls_key),
        ) as server:  # fmt: skip
            _tell(server, names, host)
            server.wait()

    attended(serving)


def _check_no_password(database: str) -> None:
    from cluster.uris import holds_secret
    from sweeps.errors import InputError

    if holds_secret(database):
        raise InputError(
            "--database holds a password, which every user of this machine could read there: "
            "leave it out of the URI and put it into ~/.pgpass (chmod 600) or PGPASSWORD"
        )


def _certificate(certificate: Path | None, key: Path | None) -> Certificate | None:
    from cluster.mlflow_process import Certificate
    from sweeps.errors import InputError

    if (certificate is None) != (key is None):
        raise InputError("TLS takes both --tls-cert and --tls-key")
    if certificate is None or key is None:
        return None
    return Certificate(certificate.absolute(), key.absolute())


def _tell(server: TeamServer, names: tuple[str, ...], host: str) -> None:
    import sys

    from cluster.ports import is_loopback
    from cluster.serving import ADMIN, PASSWORD

    scheme, port = server.uri.partition("://")[0], server.uri.rpartition(":")[2]
    reached = server.uri if is_loopback(host) else f"{scheme}://{_name(names)}:{port}"
    typer.echo(f"MLflow for a team on {server.database}: {reached} (Ctrl-C ends it)")
    typer.echo(f"  artifacts: {server.artifacts}")
    typer.echo(f"  password of {ADMIN}: {server.password_file or f'as in {PASSWORD}'}")
    typer.echo(f"  accounts for others: {reached}/signup, as {ADMIN}")
    typer.echo("Clients set:")
    typer.echo(f"  export MLFLOW_TRACKING_URI={reached}")
    typer.echo("and keep their account in ~/.mlflow/credentials (chmod 600):")
    typer.echo("  [mlflow]\n  mlflow_tracking_username = NAME\n  mlflow_tracking_password = ...")
    sys.stdout.flush()
    if not server.password_fits:
        typer.echo(
            f"Warning: {server.password_file or PASSWORD} is not the password of {ADMIN}: the "
            "database was in use before and keeps the one that it had",
            err=True,
        )
    if scheme == "http" and not is_loopback(host):
        typer.echo(
            "Warning: passwords travel unencrypted: give --tls-cert and --tls-key, or put a "
            "proxy with TLS before it",
            err=True,
        )


def _name(names: tuple[str, ...]) -> str:
    plain = [name.partition(":")[0] for name in names if "*" not in name]
    return plain[0] if plain else "HOST"
