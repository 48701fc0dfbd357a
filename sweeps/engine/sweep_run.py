"""One run of a sweep: its plan and state, and the conditions under which it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sweeps.engine.progress import PlannedWork, ProgressTracker
from sweeps.engine.signals import StopRequest
from sweeps.planning.packing import Pack
from sweeps.planning.pending import pending_replicates
from sweeps.planning.plan import Plan, add_recorded_asks
from sweeps.store.asks import write_ask
from sweeps.store.checkpoints import Checkpoint
from sweeps.store.lease import RunLease
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import Manifest, write_manifest
from sweeps.store.reuse import ReusedSweeps, finished_points, record_sources, recorded_sources


@dataclass
class SweepRun:
    """One run of a sweep.

    Attributes:
        plan: Plan of the sweep as it is now; that of an adaptive search grows.
        ledger: Ledger of the sweep, for the processes of this run.
        lease: Lease on the sweep, with the heartbeat of this run.
        stop: Signals that this process has received.
        tracker: Progress of the run.
        address: Address of a Ray cluster; None starts a local Ray.
        resume_command: Command that continues the sweep.
        on_dashboard: Called with the address of Ray's dashboard; None leaves a local Ray without.
        reused: Other sweeps, whose trainings are copied.
        gpu_memory: Bytes of the smallest GPU that packs may take; None before it is known.
        failures: Packs that failed permanently, with the reason.
        is_budget_spent: Whether packs were left untrained because the budget was spent.
    """

    plan: Plan
    ledger: Ledger
    lease: RunLease
    stop: StopRequest
    tracker: ProgressTracker
    address: str | None
    resume_command: str
    on_dashboard: Callable[[str], None] | None = None
    reused: ReusedSweeps = field(init=False)
    gpu_memory: int | None = None
    failures: dict[str, str] = field(default_factory=dict)
    is_budget_spent: bool = False

    def __post_init__(self) -> None:
        """Tells the tracker of the plan."""
        self.reused = ReusedSweeps(self.ledger)
        self.set_plan(self.plan)

    def begin(self, manifest: Manifest, sources: Sequence[Ledger]) -> None:
        """Adds the recorded asks to the plan, writes the manifest, and copies from other sweeps.

        Args:
            manifest: Manifest of the sweep, which lists the sources of earlier runs.
            sources: Ledgers of the sweeps to copy trainings from.

        Raises:
            InputError: If a recorded ask does not fit the plan; nothing was written.
            OSError: If the storage cannot be written.
            RunSupersededError: If the run has ended or was taken over.
        """
        self.set_plan(add_recorded_asks(self.plan, self.ledger))
        manifest = record_sources(manifest, sources)
        write_manifest(self.ledger, manifest)
        sources = [*sources, *recorded_sources(manifest, self.ledger)]
        plan, self.reused = copy_reused(self.plan, self.ledger, sources)
        self.set_plan(plan)

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
            self.ledger.write_failure(pack.pack_id, pack.keys, reason, details)

    def divide_pack(self, pack: Pack, halves: Sequence[Pack], reason: str) -> None:
        """Records that the halves of a pack that failed are trained in its place."""
        self.tracker.divide_pack(pack, halves, reason)
        what = f"the checkpoint of pack {pack.pack_id} could not be removed"
        with self.tracker.recording(what):
            Checkpoint(self.ledger, pack.pack_id, "").remove()


def copy_reused(plan: Plan, ledger: Ledger, sources: Sequence[Ledger]) -> tuple[Plan, ReusedSweeps]:
    """Copies what a sweep lacks from others; a search that has not begun starts from them.

    Args:
        plan: Plan with all recorded asks.
        ledger: Ledger of the sweep, whose manifest lists the sources.
        sources: Ledgers of the other sweeps; one may come twice.

    Returns:
        The plan, which may have grown by an ask, and the other sweeps.

    Raises:
        InputError: If the sweep's manifest cannot be read.
        OSError: If its ledger cannot be written.
        RunSupersededError: If the run has ended or was taken over.
    """
    reused = ReusedSweeps(ledger, [*{(s.storage, s.sweep): s for s in sources}.values()])
    if plan.is_adaptive and not plan.asks:
        ask = plan.reuse(point for source in reused.sources for point in finished_points(source))
        if ask.proposals:
            write_ask(ledger, 0, ask)  # first, so that each copy belongs to an ask
            plan = plan.grow(ask)
    if reused.sources:
        reused.copy(pending_replicates(plan, ledger))
    return plan, reused
