"""`sweeps sync`: publish what MLflow lacks."""

from __future__ import annotations

import typer

from sweeps.analysis.formatting import format_count
from sweeps.cli.options import Storage, Sweep, say
from sweeps.cli.run_options import TrackingUri


def sync(
    sweep: Sweep,
    tracking_uri: TrackingUri = None,
    storage: Storage = None,
) -> None:
    """Publish to MLflow what it lacks of a sweep; doing it again adds nothing."""
    import tracking
    from sweeps.analysis.results import DEFAULT_STORAGE, read_result
    from sweeps.publishing.publisher import publish_all
    from sweeps.report.summary import write_summary
    from sweeps.store.filesystem import absolute_storage
    from sweeps.store.ledger import Ledger
    from sweeps.store.manifest import choose_tracking_uri, read_manifest

    where = absolute_storage(storage or DEFAULT_STORAGE)
    ledger = Ledger(where, sweep)
    manifest = read_manifest(ledger)
    uri = tracking.resolve_uri(choose_tracking_uri(manifest, tracking_uri))
    tracking.check(uri)
    write_summary(ledger, read_result(ledger, where))
    published = publish_all(ledger, manifest, uri)
    typer.echo(
        f"{format_count(published.points, 'point')} of {sweep} are in {tracking.redact(uri)}"
    )
    if not published.whole:
        say(f"Error: {published.error}", err=True)
        raise typer.Exit(1)
