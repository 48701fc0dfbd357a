"""One run of a sweep: its plan and state, and the conditions under which it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sweeps.engine.progress import PlannedWork, ProgressTracker
from sweeps.engine.signals import StopRequest
from sweeps.planning.packing import Pack
from sweeps.planning.plan import Plan
from sweeps.store.checkpoints import Checkpoint
from sweeps.store.lease import RunLease
from sweeps.store.ledger import Ledger
from sweeps.store.reuse import ReusedSweeps


@dataclass
class SweepRun:
    """One run of a sweep.

    Attributes:
        plan: Plan of the sweep as it is now; that of an adaptive search grows.
        ledger: Ledger of the sweep, for the processes of this run.
        lease: Lease on the sweep, with the heartbeat of this run.
        stop: Signals that this process has received.
        tracker: Progress of the run.
        reused: Other sweeps, whose trainings are copied.
        address: Address of a Ray cluster; None starts a local Ray.
        resume_command: Command that continues the sweep.
        on_dashboard: Called with the address of Ray's dashboard; None leaves a local Ray without.
        gpu_memory: Bytes of the smallest GPU that packs may take; None before it is known.
        failures: Packs that failed permanently, with the reason.
        is_budget_spent: Whether packs were left untrained because the budget was spent.
    """

    plan: Plan
    ledger: Ledger
    lease: RunLease
    stop: StopRequest
    tracker: ProgressTracker
    reused: ReusedSweeps
    address: str | None
    resume_command: str
    on_dashboard: Callable[[str], None] | None = None
    gpu_memory: int | None = None
    failures: dict[str, str] = field(default_factory=dict)
    is_budget_spent: bool = False

    def __post_init__(self) -> None:
        """Tells the tracker of the plan."""
        self.set_plan(self.plan)

    def should_stop(self) -> bool:
        """Returns whether the run must end early."""
        return self.stop.is_requested() or self.lease.is_superseded

    def set_plan(self, plan: Plan) -> None:
        """Replaces the plan, by one that has grown or whose resources are resolved."""
        self.plan = plan
        self.tracker.work = PlannedWork.from_plan(plan)

    def fail_pack(self, pack: Pack, reason: str, details: str) -> None:
        """Records that a pack failed permanently, here and in the sweep's storage."""
        self.failures[pack.pack_id] = reason
        self.tracker.fail_pack(pack)
        with self.tracker.recording(f"the failure of pack {pack.pack_id} could not be stored"):
            members = [[r.point_id, r.seed] for r in pack.replicates]
            record = {"reason": reason, "members": members, "details": details}
            self.ledger.write_failure(pack.pack_id, record)

    def divide_pack(self, pack: Pack, halves: Sequence[Pack], reason: str) -> None:
        """Records that the halves of a pack that failed are trained in its place."""
        self.tracker.divide_pack(pack, halves, reason)
        what = f"the checkpoint of pack {pack.pack_id} could not be removed"
        with self.tracker.recording(what):
            Checkpoint(self.ledger, pack.pack_id, "").remove()
