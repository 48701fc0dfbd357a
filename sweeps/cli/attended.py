"""Serving from a terminal: until Ctrl-C, until told to end, or until the server ends by itself."""

from __future__ import annotations

from collections.abc import Callable

import typer


def attended(serve: Callable[[], None]) -> None:
    """Serve until interrupted; what asked for the end, or failed, decides the exit code.

    Args:
        serve: Returns only by an exception.
    """
    from cluster.guests import ServerFailed
    from sweeps.engine.signals import Interrupted, catch_stop_signals

    with catch_stop_signals() as interruption:
        try:
            with interruption.interruptible():
                serve()
        except Interrupted as interrupted:
            raise typer.Exit(128 + interrupted.signal) from None
        except ServerFailed as error:
            typer.echo(f"Error: {error}", err=True)
            raise typer.Exit(1) from None
