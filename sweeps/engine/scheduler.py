"""Scheduler: hands the packs that a sweep lacks to Ray."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from cluster.connection import Connection, Machine, connect, local_machine
from cluster.nodes import NoAnswer, on_every_node
from sweeps.engine.capacity import (
    cluster_capacity,
    describe_wait,
    resolve_study_resources,
    slots,
    wait_for_capacity,
)
from sweeps.engine.pack_sources import PackSource, SearchedPacks
from sweeps.engine.sweep_run import SweepRun
from sweeps.errors import InputError
from sweeps.planning.devices import Gpu, usable_gpus
from sweeps.planning.packing import Pack, make_packs
from sweeps.planning.pending import Replicates, pack_costs, pending_packs, pending_replicates
from sweeps.planning.plan import Plan, PlannedReplicate

_GPU_SECONDS = 60.0  # for torch to start and to compute on each GPU
_NO_GPU = "torch sees none; see `sweeps doctor`"


class LocalRayDied(BaseException):
    """Raised when a process of a local Ray has died.

    It is not an `Exception`, after which Tune would clean up with calls of Ray that hang.
    """


def run_pending_packs(run: SweepRun) -> None:
    """Trains every replicate that the ledger lacks.

    Returns early after a signal, with the packs in training kept as checkpoints, and also if a
    local Ray dies, which is recorded as a problem.

    Raises:
        ConnectError: If Ray cannot be started or joined.
        Interrupted: If a signal came while Ray was started, or a second one came.
        InputError: If no machine has room for a pack.
    """
    if not (replicates := pending_replicates(run.plan, run.ledger)) and run.plan.is_complete:
        return
    run.tracker.trained_before = run.tracker.work.planned - len(replicates)
    if run.address is None:
        _resolve_auto(run, _usable_machines(run))  # the Ray that starts has the CPUs of its packs
    with _open_ray(run) as connection:

        def should_stop() -> bool:
            if dead := connection.dead_processes():
                raise LocalRayDied(
                    f"Ray's {dead[0]} process on this machine died: training stopped, nothing that "
                    f"finished is lost; continue with `{run.resume_command}`"
                )
            return run.should_stop()

        _resolve_auto(run, _usable_machines(run, connection))
        try:
            _train(run, connection, replicates, should_stop)
        except LocalRayDied as error:
            run.tracker.warn(str(error))


def _resolve_auto(run: SweepRun, machines: Sequence[Machine]) -> None:
    """Resolves `auto` resources for this run; the manifest keeps them as the study has them."""
    study = run.plan.study
    resources = resolve_study_resources(study, run.plan.samples, machines)
    run.set_plan(replace(run.plan, study=study.model_copy(update={"resources": resources})))


def _usable_machines(run: SweepRun, connection: Connection | None = None) -> list[Machine]:
    """Machines of a Ray, or this one; without GPUs that torch cannot use, if packs take any.

    Raises:
        InputError: If packs need GPUs, and torch can use none.
    """
    machines = [local_machine()] if connection is None else connection.machines()
    asked = run.plan.study.resources.gpus
    if asked == 0 or run.gpu_memory is not None or not any(machine.gpus for machine in machines):
        return machines
    run.tracker.activity = "looking for GPUs"
    answers: Mapping[Machine, list[Gpu] | NoAnswer]
    if connection is not None:
        answers = on_every_node(usable_gpus, _GPU_SECONDS, seconds=2 * _GPU_SECONDS)
    else:
        try:
            answers = {machines[0]: usable_gpus(_GPU_SECONDS)}
        except RuntimeError as error:
            answers = {machines[0]: NoAnswer(str(error))}
    run.tracker.activity = None
    usable, found, problems = [], [], []
    for machine, gpus in answers.items():
        if machine.gpus and (isinstance(gpus, NoAnswer) or not gpus):
            reason = gpus.reason if isinstance(gpus, NoAnswer) else _NO_GPU
            where = "this machine" if connection is None else f"node {machine.name}"
            problems.append(f"GPUs of {where} were not used: {reason}")
            machine = replace(machine, gpus=0)
        elif machine.gpus and not isinstance(gpus, NoAnswer):
            found += gpus
        usable.append(machine)
    if problems and not found and asked != "auto":
        raise InputError(f"resources.gpus: {problems[0]}")
    for problem in problems:
        run.tracker.add_problem(problem)
    run.gpu_memory = min((gpu.memory for gpu in found), default=None)
    return usable


def _train(
    run: SweepRun,
    connection: Connection,
    replicates: Replicates,
    should_stop: Callable[[], bool],
) -> None:
    """Trains replicates on a Ray; returns early once `should_stop` is true."""
    # Tune takes a second to load, which a run without anything to train saves.
    from sweeps.engine.tune_backend import run_packs

    resources = run.plan.study.resources
    machines = connection.machines()
    if not (connection.started or slots(machines, resources)):
        run.tracker.activity = describe_wait(machines, resources)
        machines = wait_for_capacity(connection, resources, should_stop)
        run.tracker.activity = None
    if should_stop():
        return
    if resources.pack_gpus and run.gpu_memory is None:
        _usable_machines(run, connection)  # of nodes that came while the run waited
    source = _make_source(run, machines, replicates)
    if not should_stop():
        most = slots(machines, resources) if connection.started else None
        run_packs(source, run, should_stop, most)
        run.is_budget_spent = source.has_reached_budget


def _make_source(run: SweepRun, machines: Sequence[Machine], replicates: Replicates) -> PackSource:
    """Packs of the plan; those of an adaptive search that are asked for at once share workers."""
    plan, study, tracker = run.plan, run.plan.study, run.tracker
    capacity = cluster_capacity(machines, study.resources)
    if study.resources.pack_gpus:
        share = min(study.resources.pack_gpus, 1)
        memory = capacity.memory if run.gpu_memory is None else int(share * run.gpu_memory)
        capacity = replace(capacity, memory=memory, on_gpu=True)
    if plan.is_adaptive:
        workers = math.ceil(capacity.workers / study.search.asks_in_flight)
        capacity = replace(capacity, workers=workers)
    pending = pending_packs(plan, run.ledger, replicates, capacity)

    def expect(plan: Plan, packs: Sequence[Pack]) -> None:
        run.set_plan(plan)
        tracker.expect(packs, pack_costs(packs))
        for reason in plan.asks[-1].refusals.values() if plan.asks else ():
            tracker.add_problem(f"the experiment refused points of the search: {reason}")

    expect(plan, pending)
    if not plan.is_adaptive:
        return PackSource(pending, study.search.budget)

    def pack(members: Sequence[PlannedReplicate]) -> list[Pack]:
        size = study.resources.pack
        return make_packs(members, experiment=study.experiment, size=size, capacity=capacity)

    budget = study.search.budget
    return SearchedPacks(plan, run.ledger, pending, pack, expect, run.reused.copy, budget)


@contextmanager
def _open_ray(run: SweepRun) -> Iterator[Connection]:
    """Joins a cluster, or starts a Ray that is as large as packs need, for a block.

    Progress counts its machines.
    """
    tracker, resources = run.tracker, run.plan.study.resources
    tracker.activity = "starting Ray" if run.address is None else f"joining Ray at {run.address}"
    with run.stop.interruptible():
        if run.address is not None:
            connection = connect(run.address)
        else:
            workers = cluster_capacity([local_machine()], resources).workers
            cpus, dashboard = max(1, math.ceil(resources.pack_cpus * workers)), run.on_dashboard
            connection = connect(cpus=cpus, dashboard=dashboard is not None)
    tracker.activity = None
    if run.on_dashboard is not None:
        run.on_dashboard(connection.dashboard)

    def machines() -> Sequence[Machine]:
        return [] if connection.dead_processes() else connection.machines()  # else calls hang

    with connection, tracker.watching(machines):
        yield connection
