"""Runs a sweep: what is not in the ledger yet is trained, and published beside.

SIGINT (Ctrl-C), SIGTERM and SIGHUP end a run in order: packs in hand are kept as checkpoints, a
summary that was begun is written, Ray and the publisher are shut down. A second one ends it at
once; nothing in the ledger is lost then either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from cluster.auth import bypass_proxies_for_loopback
from sweeps.analysis.results import DEFAULT_STORAGE, Result, read_result
from sweeps.engine.capacity import cluster_capacity, pending_replicates
from sweeps.engine.progress import SweepProgress, display_progress
from sweeps.engine.scheduler import ProgressTracker, run_pending_packs
from sweeps.engine.signals import Interrupted, StopRequest, catch_stop_signals
from sweeps.errors import InputError
from sweeps.planning.plan import Plan, make_plan
from sweeps.planning.provenance import create_manifest, plan_differences
from sweeps.publishing.process import PublishOutcome
from sweeps.publishing.publication import PublisherProcess, start_publisher
from sweeps.report.summary import preload_plotting, write_summary
from sweeps.store.filesystem import absolute_storage, check_writable, open_directory
from sweeps.store.lease import acquire_lease
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import Manifest, read_manifest, write_manifest
from sweeps.study.spec import Resources, Study
from tracking.redaction import redact


@dataclass(frozen=True)
class RunOutcome:
    """How a run of a sweep ended.

    Attributes:
        result: What the sweep has found, this run and those before.
        published: What became of it in MLflow.
        failures: Packs that came to nothing, with the reason.
        interrupted_by: The signal that ended the run early; None if none did.
        problems: What else went wrong, in words.
    """

    result: Result
    published: PublishOutcome
    failures: Mapping[str, str]
    interrupted_by: int | None
    problems: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0 if every point finished, 1 if some failed, 128 + signal after an interruption."""
        if self.interrupted_by is not None:
            return 128 + self.interrupted_by
        return 1 if self.result.counts["failed"] or self.result.pending else 0


def run_study(
    study: Study,
    *,
    name: str | None = None,
    storage: str | None = None,
    tracking_uri: str | None = None,
    address: str | None = None,
    num_points: int | None = None,
) -> Result:
    """Plan a study and run it to its end; see `sweeps.run`.

    Raises:
        StudyError: With everything that is wrong with the study; nothing was started.
        InputError: If another argument cannot be used; nothing was started.
        Interrupted: A KeyboardInterrupt, if it was; what was finished is kept.
    """
    planned = make_plan(study, num_points)
    where = absolute_storage(storage or DEFAULT_STORAGE)
    with display_progress() as show:
        outcome = execute(
            planned,
            sweep=name or new_sweep_name(where, study.name),
            storage=where,
            tracking_uri=tracking_uri,
            address=address,
            on_progress=show,
        )
    if outcome.interrupted_by is not None:
        raise Interrupted(outcome.interrupted_by)
    return outcome.result


def execute(
    plan: Plan,
    *,
    sweep: str,
    storage: str,
    tracking_uri: str | None = None,
    address: str | None = None,
    on_progress: Callable[[SweepProgress], None] = lambda progress: None,
    command: str | None = None,
    again: str | None = None,
) -> RunOutcome:
    """Run what the sweep still lacks: all of it, or after an interruption the rest.

    Args:
        plan: What the sweep trains.
        sweep: Its name.
        storage: Path or URI under which sweeps live.
        tracking_uri: Of the MLflow store; its own default if None.
        address: Of the Ray cluster; None starts a local one.
        on_progress: Called about twice a second while packs are trained.
        command: What the user typed, for the record.
        again: The command line that continues the sweep; `sweeps resume` with its name if None.

    Raises:
        InputError: If the name belongs to another sweep, it is being run already, no Ray is at the
            address, this machine is too small for a pack, the storage cannot be written, or a node
            of the cluster lacks the data; nothing was started.
        TrackingError: If the tracking store cannot be used; nothing was started.
        ConnectError: If there is no Ray.
        Interrupted: If two signals asked for an end; what was finished is kept.
    """
    import tracking

    bypass_proxies_for_loopback()
    where, ledger = absolute_storage(storage), Ledger(absolute_storage(storage), sweep)
    uri = tracking.resolve_uri(tracking_uri)
    typed = command or f"sweeps run {plan.study.name}"
    # Refuses another sweep's name.
    manifest = prepare_manifest(ledger, plan, command=typed, tracking_uri=uri)
    tracking.check(uri)
    _check_place(plan, ledger, address)
    with catch_stop_signals() as interruption, acquire_lease(ledger.directory) as heartbeat:
        ledger.run_id = heartbeat.run_id
        if ledger.has_spec():  # perhaps since, by another process
            manifest = prepare_manifest(ledger, plan, command=typed, tracking_uri=uri)
        write_manifest(ledger, manifest)
        with start_publisher(where, sweep, uri) as publication:
            watch = ProgressTracker(ledger, plan, heartbeat.update, on_progress)
            preload_plotting()  # while Ray starts, which is mostly waiting
            heartbeat.phase = "training"
            _train(plan, ledger, where, address, _remedy(sweep, again), watch, interruption)
            heartbeat.phase = "publishing"
            result = None
            if not interruption.is_requested():
                publication.hurry()
                result = _summarised(ledger, where, watch)
            published = _publish(publication, interruption)
            if interruption.is_requested():
                heartbeat.phase = "stopped"
        result = result or read_result(ledger, where)
    if heartbeat.problem is not None:
        watch.troubled(heartbeat.problem)
    failures = {**result.failures, **watch.failures}  # a full disk keeps some out of the former
    return RunOutcome(result, published, failures, interruption.signal, tuple(watch.problems))


def _remedy(sweep: str, again: str | None) -> str:
    """What a user can do whose cluster goes while it trains."""
    command = again or f"sweeps resume {sweep}"
    return f"What is finished is kept; continue on any cluster with `{command}`."


def _check_place(plan: Plan, ledger: Ledger, address: str | None) -> None:
    """Whether the sweep can be trained there, and its ledger written."""
    _check_address(address)
    if address is None:
        _check_resources(plan.study.resources)
    check_writable(ledger.directory.parent)
    if address is not None:
        _check_nodes(plan, ledger, address)


def _check_address(address: str | None) -> None:
    from cluster.connection import check_address
    from cluster.errors import ConnectError

    try:
        check_address(address)
    except ConnectError as error:
        raise InputError(str(error)) from error


def _check_nodes(plan: Plan, ledger: Ledger, address: str) -> None:
    """Whether every node has the data of a sweep that is to be trained there.

    Its own connection ends with it, as Ray ends a driver whose cluster goes while it publishes.
    """
    from cluster.connection import connect
    from sweeps.engine.node_data import check_data_on_nodes

    if pending_replicates(plan, ledger):
        with connect(address, advice="Nothing was begun: give the command again."):
            check_data_on_nodes(plan)


def _check_resources(resources: Resources) -> None:
    """Whether a pack fits on this machine; what any machine has is not looked up."""
    from cluster.connection import local_machine

    if resources.cpus > 1 or resources.gpus:
        cluster_capacity([local_machine()], resources)


def _train(
    plan: Plan,
    ledger: Ledger,
    storage: str,
    address: str | None,
    remedy: str,
    watch: ProgressTracker,
    interruption: StopRequest,
) -> None:
    try:
        run_pending_packs(
            plan,
            ledger,
            storage=storage,
            address=address,
            remedy=remedy,
            watch=watch,
            interruption=interruption,
        )
    except Interrupted:
        if interruption.urgent:
            raise


def _summarised(ledger: Ledger, storage: str, watch: ProgressTracker) -> Result:
    """What the sweep has found, of which a summary was written if it could be."""
    result = read_result(ledger, storage)
    try:
        write_summary(ledger, result)
    except OSError as error:
        watch.problems.append(f"the report could not be written: {error}")
    return result


def _publish(publication: PublisherProcess, interruption: StopRequest) -> PublishOutcome:
    asked = interruption.is_requested
    return publication.stop() if asked() else publication.finish(asked)


def new_sweep_name(storage: str, study: str) -> str:
    """A name for a new sweep of a study: the study's, with the local time, not taken yet.

    Raises:
        InputError: If the storage cannot be looked into.
    """
    try:
        taken = set(open_directory(storage).directories())
    except OSError as error:
        raise InputError(redact(f"storage {storage} cannot be read: {error}")) from error
    base = f"{study}-{datetime.now():%Y%m%d-%H%M%S}"
    names = (base if i == 1 else f"{base}-{i}" for i in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)


def prepare_manifest(ledger: Ledger, plan: Plan, *, command: str, tracking_uri: str) -> Manifest:
    """The manifest of a sweep: as written when it was started, or a new one.

    Raises:
        InputError: If a sweep of that name was started with another plan.
    """
    if not ledger.has_spec():
        return create_manifest(plan, ledger.sweep, command=command, tracking_uri=tracking_uri)
    manifest = read_manifest(ledger)
    if reasons := plan_differences(manifest, plan):
        raise InputError(
            f"the name {ledger.sweep!r} is taken by another sweep in {ledger.directory.path}: "
            f"{'; '.join(reasons)}. Choose another name, or leave --name out"
        )
    return manifest
