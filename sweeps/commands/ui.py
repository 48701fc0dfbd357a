"""`sweeps ui`: the MLflow UI on the store that sweeps record to."""

from __future__ import annotations

from typing import Annotated

import typer

from sweeps.commands.run_options import TrackingUri

_MOST_LINKS = 10


def ui(
    tracking_uri: TrackingUri = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="On 127.0.0.1.")] = 5000,
) -> None:
    """Serve the MLflow UI on this machine alone, until Ctrl-C."""
    import tracking
    from sweeps.interruption import Interrupted, interruptible
    from sweeps.serving import ServerFailed, check_port

    uri = tracking.resolve_uri(tracking_uri)
    if uri.startswith(("http://", "https://")):
        typer.echo(f"A server runs already; open {tracking.redacted(uri)}")
        return
    with interruptible() as interruption:
        try:
            with interruption.breakable():
                check_port(port)
                _serve(uri, port)
        except Interrupted as interrupted:
            raise typer.Exit(128 + interrupted.signal) from None
        except ServerFailed as error:
            typer.echo(f"Error: {error}", err=True)
            raise typer.Exit(1) from None


def _serve(uri: str, port: int) -> None:
    import sys

    import tracking
    from sweeps.serving import HOST, ServerFailed, serving
    from tracking.pages import study_pages

    links = study_pages(uri, _MOST_LINKS)
    with serving(uri, port) as server:
        here = f"http://{HOST}:{port}"
        typer.echo(f"MLflow UI on {tracking.redacted(uri)}: {here} (Ctrl-C ends it)")
        for study, page in links.items():
            typer.echo(f"  {study}: {here}/{page}")
        sys.stdout.flush()
        code = server.wait()
    raise ServerFailed(f"the MLflow server ended by itself (exit code {code})")
