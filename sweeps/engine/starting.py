"""Before a sweep starts: its name, and that it is the sweep it says it is."""

from __future__ import annotations

from datetime import datetime

from sweeps.errors import InputError
from sweeps.planning.plan import Plan
from sweeps.store.filesystem import directory
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import Manifest, describe, differences, read_manifest
from tracking.redaction import redact


def new_name(storage: str, study: str) -> str:
    """A name for a new sweep of a study: the study's, with the local time, not taken yet.

    Raises:
        InputError: If the storage cannot be looked into.
    """
    try:
        taken = set(directory(storage).directories())
    except OSError as error:
        raise InputError(redact(f"storage {storage} cannot be read: {error}")) from error
    base = f"{study}-{datetime.now():%Y%m%d-%H%M%S}"
    names = (base if i == 1 else f"{base}-{i}" for i in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)


def manifest_of(ledger: Ledger, plan: Plan, *, command: str, tracking_uri: str) -> Manifest:
    """The manifest of a sweep: as written when it was started, or a new one.

    Raises:
        InputError: If a sweep of that name was started with another plan.
    """
    if not ledger.has_spec():
        return describe(plan, ledger.sweep, command=command, tracking_uri=tracking_uri)
    manifest = read_manifest(ledger)
    if reasons := differences(manifest, plan):
        raise InputError(
            f"the name {ledger.sweep!r} is taken by another sweep in {ledger.directory.path}: "
            f"{'; '.join(reasons)}. Choose another name, or leave --name out"
        )
    return manifest
