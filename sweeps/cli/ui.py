"""`sweeps ui`: the MLflow UI on the store that sweeps record to."""

from __future__ import annotations

from typing import Annotated

import typer

from sweeps.cli.options import say
from sweeps.cli.run_options import TrackingUri

_HOST = "127.0.0.1"
_MOST_LINKS = 10


def ui(
    tracking_uri: TrackingUri = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="On 127.0.0.1.")] = 5000,
) -> None:
    """Serve the MLflow UI on this machine alone, until Ctrl-C."""
    import tracking
    from sweeps.cli.attended import attended

    uri = tracking.resolve_uri(tracking_uri)
    if uri.startswith(("http://", "https://")):
        _point_to(uri)
        return
    attended(lambda: _serve(uri, port))


def _point_to(uri: str) -> None:
    """The pages of a server that others run."""
    from tracking.errors import strip_credentials
    from tracking.pages import study_pages

    links = study_pages(uri, _MOST_LINKS)
    server = strip_credentials(uri).rstrip("/")
    typer.echo(f"A server runs already; open {server}")
    for study, page in links.items():
        say(f"  {study}: {server}/{page}")


def _serve(uri: str, port: int) -> None:
    import sys

    import tracking
    from cluster.guests import ServerFailed
    from cluster.mlflow_process import Place, serving
    from cluster.ports import check_port
    from tracking.pages import study_pages

    check_port(_HOST, port)
    links = study_pages(uri, _MOST_LINKS)
    place = Place(_HOST, port)
    with serving(uri, place) as server:
        typer.echo(f"MLflow UI on {tracking.redact(uri)}: {place.uri} (Ctrl-C ends it)")
        for study, page in links.items():
            say(f"  {study}: {place.uri}/{page}")
        sys.stdout.flush()
        code = server.wait()
    raise ServerFailed(f"the MLflow server ended by itself (exit code {code})")
