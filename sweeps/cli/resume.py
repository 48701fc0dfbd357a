"""`sweeps resume`: continue a sweep after any interruption."""

from __future__ import annotations

from sweeps.cli.options import Storage, Sweep
from sweeps.cli.run_options import Address, TrackingUri


def resume(
    sweep: Sweep,
    address: Address = None,
    tracking_uri: TrackingUri = None,
    storage: Storage = None,
) -> None:
    """Continue a sweep after any interruption; a finished point is never trained again.

    Exit codes are those of `sweeps run`.
    """
    from sweeps.analysis.results import DEFAULT_STORAGE
    from sweeps.cli.running import run_plan
    from sweeps.store.filesystem import absolute_storage
    from sweeps.store.ledger import Ledger
    from sweeps.store.manifest import choose_tracking_uri, read_manifest, replan

    where = absolute_storage(storage or DEFAULT_STORAGE)
    manifest = read_manifest(Ledger(where, sweep))
    run_plan(
        replan(manifest),
        sweep=sweep,
        storage=where,
        tracking_uri=choose_tracking_uri(manifest, tracking_uri),
        address=address,
    )
