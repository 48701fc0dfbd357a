"""Runs a sweep: trains what its ledger lacks, publishes it to MLflow, and writes its summary.

`execute` shows the steps: check, take the lease, train, summarise, publish.

The first SIGINT (Ctrl-C), SIGTERM or SIGHUP ends a run in order: packs in training are kept as
checkpoints, a summary that was started is finished, Ray and the publisher are shut down. The second
one ends it at once. Neither loses anything that is in the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import tracking
from cluster.auth import bypass_proxies_for_loopback
from cluster.connection import check_address, connect, local_machine
from cluster.errors import ConnectError
from privnets.credentials import redact
from sweeps.analysis.pareto import states_problem
from sweeps.engine.capacity import cluster_capacity
from sweeps.engine.display import Display, display_progress, line_display
from sweeps.engine.progress import ProgressTracker, SweepCounter
from sweeps.engine.scheduler import run_pending_packs
from sweeps.engine.signals import Interrupted, catch_stop_signals
from sweeps.engine.sweep_run import SweepRun
from sweeps.errors import InputError
from sweeps.planning.continuation import plan_extension, prepare_manifest
from sweeps.planning.node_data import check_data_on_nodes
from sweeps.planning.pending import pending_replicates
from sweeps.planning.plan import Plan, make_plan, set_budget
from sweeps.publishing.background import BackgroundPublisher, start_publisher
from sweeps.publishing.publisher import PublishOutcome
from sweeps.report.display import DisplayedResult
from sweeps.report.summary import write_summary
from sweeps.store.filesystem import (
    DEFAULT_STORAGE,
    absolute_storage,
    check_writable,
    open_directory,
)
from sweeps.store.lease import acquire_lease
from sweeps.store.ledger import Ledger
from sweeps.store.manifest import choose_tracking_uri, read_manifest
from sweeps.store.reuse import find_sources
from sweeps.study.loader import load
from sweeps.study.spec import Study


@dataclass(frozen=True)
class RunOutcome:
    """Outcome of a run of a sweep.

    Attributes:
        result: Result of the sweep, of this run and earlier ones.
        failures: Packs that failed permanently, with the reason.
        interrupted_by: Signal that ended the run early; None without one.
        problems: Other problems, in words.
        is_budget_spent: Whether the run ended early because its budget was spent.
        has_trained: Whether there was anything to train.
        reused: Numbers of trainings that were copied from other sweeps and that these have; None
            where there was nothing to copy.
        has_report: Whether this run wrote the report.
    """

    result: DisplayedResult
    published: PublishOutcome
    failures: Mapping[str, str]
    interrupted_by: int | None
    problems: tuple[str, ...]
    is_budget_spent: bool = False
    has_trained: bool = True
    reused: tuple[int, int] | None = None
    has_report: bool = False

    @property
    def exit_code(self) -> int:
        """0 if every point finished, 1 if some failed, 128 + signal after an interruption.

        Points that a spent budget left out have not failed.
        """
        if self.interrupted_by is not None:
            return 128 + self.interrupted_by
        has_failed = self.result.counts["failed"] or self.failures
        return 1 if has_failed or (self.result.pending and not self.is_budget_spent) else 0


def run(
    study: Study | str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    tracking_uri: str | None = None,
    address: str | None = None,
    storage: str | None = None,
    name: str | None = None,
    num_points: int | None = None,
    reuse: Sequence[str] = (),
    budget: int | str | None = None,
    progress: bool = True,
) -> DisplayedResult:
    """Runs a sweep of a study to its end.

    Args:
        study: A study, a packaged study's name, a path to a YAML file, or a mapping.
        overrides: Changes of the study, as `space.weight_decay.grid=[0, 1, 2]`.
        tracking_uri: URI of the MLflow store; MLflow's default if None.
        address: Address of the Ray cluster; None starts a local one.
        storage: Directory or URI for the sweep's files; `./sweep-results` if None.
        name: Name of the sweep; derived from the study's if None.
        num_points: Number of points, in place of the study's own.
        reuse: Sweeps whose finished trainings are copied: `SWEEP`, `STORAGE/SWEEP` or `auto`.
        budget: Trainings that this run may begin, or its time as `2h`, in place of the study's own.
        progress: Whether progress is shown, on the terminal or in the notebook.

    Raises:
        StudyError: With every mistake of the study, before anything starts.
        InputError: If another argument is invalid, before anything starts.
        KeyboardInterrupt: If it was interrupted; finished points are kept.
    """
    study = load(study, overrides)
    plan = make_plan(study if budget is None else set_budget(study, budget), num_points)
    directory = absolute_storage(storage or DEFAULT_STORAGE)
    return _run_to_end(
        plan,
        sweep=name or new_sweep_name(directory, study.name),
        storage=directory,
        tracking_uri=tracking_uri,
        address=address,
        reuse=reuse,
        progress=progress,
    )


def extend(
    sweep: str,
    num_points: int | None = None,
    replicates: int | None = None,
    overrides: Sequence[str] = (),
    study: Study | str | Path | None = None,
    tracking_uri: str | None = None,
    address: str | None = None,
    storage: str | None = None,
    budget: int | str | None = None,
    progress: bool = True,
) -> DisplayedResult:
    """Extends a sweep and runs it to its end: only what is missing is trained.

    Args:
        sweep: Name of the sweep.
        num_points: Number of points, at least the present one; unchanged if None.
        replicates: Seeds per point, at least the present number; unchanged if None.
        overrides: Other changes of the study, as `space.weight_decay.grid=[0, 1, 2]`.
        study: Study that takes the place of the recorded one; needed if it names files or code.
        tracking_uri: URI of the MLflow store; the sweep's own if None.
        address: Address of the Ray cluster; None starts a local one.
        storage: Directory or URI of the sweep; `./sweep-results` if None.
        budget: Trainings that this run may begin, or its time as `2h`; no limit if None.
        progress: Whether progress is shown, on the terminal or in the notebook.

    Raises:
        InputError: If the sweep does not exist, or would lose points; nothing starts.
        StudyError: With every mistake of the changed study; nothing starts.
        KeyboardInterrupt: If it was interrupted; finished points are kept.
    """
    directory = absolute_storage(storage or DEFAULT_STORAGE)
    manifest = read_manifest(Ledger(directory, sweep))
    base = None if study is None else load(study)
    plan = plan_extension(manifest, num_points, replicates, overrides, base, budget)
    return _run_to_end(
        plan,
        sweep=sweep,
        storage=directory,
        tracking_uri=choose_tracking_uri(manifest, tracking_uri),
        address=address,
        command=f"sweeps extend {sweep}",
        extends=True,
        progress=progress,
    )


def _run_to_end(plan: Plan, *, progress: bool, **arguments: Any) -> DisplayedResult:
    """Executes a plan with a display.

    Raises:
        KeyboardInterrupt: If it was interrupted; finished points are kept.
    """
    with display_progress(quiet=not progress) as show:
        outcome = execute(plan, on_progress=show, **arguments)
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
    on_progress: Display = lambda status: None,
    command: str | None = None,
    resume_command: str | None = None,
    extends: bool = False,
    reuse: Sequence[str] = (),
    on_dashboard: Callable[[str], None] | None = None,
) -> RunOutcome:
    """Runs what a sweep lacks: all of it, or the rest after an interruption.

    Args:
        plan: Plan of the sweep.
        sweep: Name of the sweep.
        storage: Path or URI under which sweeps are stored.
        tracking_uri: URI of the MLflow store; MLflow's default if None.
        address: Address of a Ray cluster; None starts a local Ray.
        on_progress: Called about twice a second while packs are trained.
        command: Command that the user typed, recorded in the manifest.
        resume_command: Command that continues the sweep; `sweeps resume SWEEP` if None.
        extends: Whether the plan may extend the recorded sweep of this name.
        reuse: Sweeps whose finished trainings are copied; see `sweeps.store.reuse.find_sources`.
        on_dashboard: Called with the address of Ray's dashboard, which a local Ray then starts.

    Raises:
        InputError: If the name belongs to another sweep, another driver runs it, no Ray is at the
            address, this machine is too small for a pack, the storage cannot be written, or a node
            of the cluster lacks the data; nothing was started.
        TrackingError: If the tracking store cannot be used; nothing was started.
        ConnectError: If Ray cannot be started or joined.
        Interrupted: After a second signal; what finished is kept.
    """
    ledger, uri = Ledger(storage, sweep), tracking.resolve_uri(tracking_uri)
    command = command or f"sweeps run {plan.study.name}"
    manifest_of = partial(prepare_manifest, command=command, tracking_uri=uri, extends=extends)
    bypass_proxies_for_loopback()
    manifest_of(ledger, plan)
    _check(plan, ledger, uri, address, reuse)
    objectives = {} if any(map(states_problem, plan.study.space)) else plan.objectives
    counter = SweepCounter(ledger, plan.seed_rule, objectives, plan.study.constraints)
    tracker = ProgressTracker(counter, [on_progress])
    with (
        catch_stop_signals(tracker.announce_stop) as stop,
        acquire_lease(ledger.directory) as lease,
    ):
        ledger = Ledger(storage, sweep, lease.directory.run_id)
        run = SweepRun(
            plan=plan,
            ledger=ledger,
            lease=lease,
            stop=stop,
            tracker=tracker,
            address=address,
            resume_command=resume_command or f"sweeps resume {sweep}",
            on_dashboard=on_dashboard,
        )
        # Again, as another driver may have written since.
        run.begin(manifest_of(ledger, plan), find_sources(reuse, ledger))
        ledger.log(command)
        with _logging_errors(ledger), start_publisher(ledger, uri) as publisher:
            show = (lease.update, line_display(ledger.log))
            with tracker.displaying(*show, outage=publisher.outage):
                _train(run)
                result, has_report = _summarise(run)
                published = _publish(run, publisher)
            result = result or DisplayedResult.read(ledger)
            # Readers that follow the log stop at the last heartbeat, which comes after this.
            state = "stopped" if lease.phase == "stopped" else "ended"
            counts = ", ".join(f"{count} {name}" for name, count in result.counts.items())
            ledger.log("\n".join([f"{state}: {counts}", *_problems(run)]))
    return RunOutcome(
        result,
        published,
        {**result.failures, **run.failures},  # a full disk keeps some out of the storage
        stop.signal,
        _problems(run),
        run.is_budget_spent,
        tracker.has_packs,
        (run.reused.copied, run.reused.available) if reuse or run.reused.copied else None,
        has_report,
    )


def _check(
    plan: Plan, ledger: Ledger, tracking_uri: str, address: str | None, reuse: Sequence[str]
) -> None:
    """Checks everything that can be checked before anything is started or written."""
    find_sources(reuse, ledger)
    tracking.check(tracking_uri)
    try:
        check_address(address)
    except ConnectError as error:
        raise InputError(str(error)) from error
    resources = plan.study.resources
    if address is None and resources.bundle() != {"CPU": 1}:  # each machine has a CPU
        cluster_capacity([local_machine()], resources)
    check_writable(open_directory(ledger.storage))
    if address is not None and (plan.is_adaptive or pending_replicates(plan, ledger)):
        # Ray ends a driver whose cluster goes away, so this connection is closed at once.
        with connect(address):
            check_data_on_nodes(plan)


@contextmanager
def _logging_errors(ledger: Ledger) -> Iterator[None]:
    """Logs an exception that ends a run, for those who do not see its terminal."""
    try:
        yield
    except Exception as error:
        ledger.log(redact(f"failed: {type(error).__name__}: {error}"))
        raise


def _train(run: SweepRun) -> None:
    """Trains what the ledger lacks; returns early once the run must end."""
    run.lease.phase = "training"
    try:
        run_pending_packs(run)
    except Interrupted:
        if run.stop.is_urgent:
            raise


def _summarise(run: SweepRun) -> tuple[DisplayedResult | None, bool]:
    """Writes the sweep's tables, figures and report; no result if the run must end.

    Returns:
        The result, and whether there is a report of it.
    """
    run.lease.phase = "publishing"
    if run.should_stop():
        return None, False
    run.tracker.activity = "writing the report"
    result = DisplayedResult.read(run.ledger)
    try:
        return result, bool(write_summary(run.ledger, result))
    except OSError as error:
        run.tracker.add_problem(f"the report could not be written: {error}")
        return result, False


def _publish(run: SweepRun, publisher: BackgroundPublisher) -> PublishOutcome:
    """Waits until MLflow holds everything; if the run must end, only for the points being sent."""

    def show(sent: int) -> None:
        run.tracker.activity = f"publishing to MLflow: {sent:,} of {run.plan.size:,} points"

    run.tracker.activity = "publishing to MLflow"
    if run.should_stop():
        outcome = publisher.stop()
    else:
        outcome = publisher.finish(run.should_stop, show, is_final=not run.is_budget_spent)
    if run.should_stop() or run.is_budget_spent:
        run.lease.phase = "stopped"
    return outcome


def _problems(run: SweepRun) -> tuple[str, ...]:
    """Problems that did not end the run, in words."""
    return (*run.tracker.problems, *([run.lease.problem] if run.lease.problem else []))


def new_sweep_name(storage: str, study: str) -> str:
    """Unused name for a new sweep: the study's name with the local time.

    Raises:
        InputError: If the storage cannot be read.
    """
    try:
        taken = set(open_directory(storage).directories())
    except OSError as error:
        raise InputError(redact(f"storage {storage} cannot be read: {error}")) from error
    base = f"{study}-{datetime.now():%Y%m%d-%H%M%S}"
    names = (base if i == 1 else f"{base}-{i}" for i in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)
