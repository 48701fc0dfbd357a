"""One run of a sweep: what its steps share."""

from __future__ import annotations

from dataclasses import dataclass, field

from sweeps.engine.progress import ProgressTracker
from sweeps.engine.signals import StopRequest
from sweeps.planning.plan import Plan
from sweeps.store.ledger import Ledger


@dataclass
class SweepRun:
    """One run of a sweep.

    Attributes:
        plan: Plan of the sweep.
        ledger: Ledger of the sweep.
        storage: Absolute path or URI under which sweeps are stored.
        tracking_uri: Resolved URI of the MLflow store.
        address: Address of a Ray cluster; None starts a local Ray.
        command: Command that the user typed, recorded in the manifest.
        resume_command: Command that continues the sweep.
        tracker: Collects progress, failures and problems.
        stop: Signals received.
    """

    plan: Plan
    ledger: Ledger
    storage: str
    tracking_uri: str
    address: str | None
    command: str
    resume_command: str
    tracker: ProgressTracker
    stop: StopRequest = field(default_factory=StopRequest)
