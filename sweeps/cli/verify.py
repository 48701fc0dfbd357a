"""`sweeps verify`: prove that ledger and MLflow hold the same points."""

from __future__ import annotations

import typer

from sweeps.analysis.formatting import format_count
from sweeps.cli.options import Storage, Sweep, say
from sweeps.cli.run_options import TrackingUri

_MOST_LINES = 50


def verify(
    sweep: Sweep,
    tracking_uri: TrackingUri = None,
    storage: Storage = None,
) -> None:
    """Compare every number in the ledger with MLflow's; exit code 1 where they differ."""
    import tracking
    from sweeps.analysis.results import open_result
    from sweeps.store.manifest import choose_tracking_uri

    result = open_result(sweep, storage)
    uri = tracking.resolve_uri(choose_tracking_uri(result.manifest, tracking_uri))
    tracking.check(uri)
    differences = tracking.compare(result.tradeoff_points, sweep, uri, result.study.name)
    for name, reason in result.unreadable.items():
        say(f"Warning: {name} was passed over: {reason}", err=True)
    points, where = format_count(len(result.tradeoff_points), "point"), tracking.redact(uri)
    if not differences:
        typer.echo(f"The ledger and {where} hold the same {points} of {sweep}.")
        return
    for line in differences[:_MOST_LINES]:
        say(line)
    typer.echo(
        f"{format_count(len(differences), 'difference')} between the ledger ({points}) "
        f"and {where}. "
        f"`sweeps sync {sweep}` publishes what is missing.",
        err=True,
    )
    raise typer.Exit(1)
