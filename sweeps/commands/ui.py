"""`sweeps ui`: the MLflow UI on the store that sweeps record to."""

from __future__ import annotations

from typing import Annotated

import typer

from sweeps.commands.run_options import TrackingUri

_ENVIRONMENT = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def ui(
    tracking_uri: TrackingUri = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="On 127.0.0.1.")] = 5000,
) -> None:
    """Serve the MLflow UI on this machine alone, until Ctrl-C."""
    import os
    import sys

    import tracking
    from tracking.store import connect

    uri = tracking.resolve_uri(tracking_uri)
    if uri.startswith(("http://", "https://")):
        typer.echo(f"A server runs already; open {tracking.redacted(uri)}")
        return
    connect(uri)
    _check_free(port)
    typer.echo(f"MLflow UI on {tracking.redacted(uri)}: http://127.0.0.1:{port} (Ctrl-C ends it)")
    sys.stdout.flush()
    # One worker answers ten times as fast as several, and jobs would take seven processes more.
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    # The URI may hold credentials, so it travels in the environment.
    environment = {"MLFLOW_BACKEND_STORE_URI": uri, **_ENVIRONMENT}
    os.execve(sys.executable, command, os.environ | environment)


def _check_free(port: int) -> None:
    """Refuse a port that another server has: its pages would be taken for ours.

    Raises:
        InputError: If it cannot be listened on.
    """
    import socket

    from sweeps.errors import InputError

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(f"port {port}: {reason}; give another with --port") from error
