"""Which structures of a sweep to measure before its packs are cut, and having Ray measure them.

Measuring is for sweeps that are long against it. Where there are many structures only a few are
measured, the dearest; the others are taken to have the same form, scaled as their prices are.
"""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import privnets
from privnets.contract import Experiment
from sweeps.errors import InputError
from sweeps.planning.calibration import (
    cache_curve,
    curve_key,
    measure_cost_curve,
    read_cached_curve,
)
from sweeps.planning.cost_curves import CostCurve
from sweeps.planning.devices import DeviceNotFoundError, device_name, free_memory, select_device
from sweeps.planning.packing import group_by_structure, mean_cost
from sweeps.planning.plan import PlannedReplicate
from sweeps.study.spec import Resources

if TYPE_CHECKING:
    from typing import TypeAlias

    import ray

    from cluster.connection import Machine

    Task: TypeAlias = ray.ObjectRef[Any]

# Of the time that each worker will be busy, and seconds of it in all, that measuring may take.
_SHARE: Final = 0.05
_LEAST_SECONDS, _MOST_SECONDS = 2.0, 10.0
# Structures that are measured at most, and members that a measured stack has at most.
_STRUCTURES, _MEMBERS = 8, 256
# Stacking that speeds work up by less than this, as the cost model has it, is not measured.
_GAIN: Final = 1.1
# Beyond what measuring takes: for imports, data, and a worker to come free.
_PATIENCE_SECONDS: Final = 60.0
_ASKED_SECONDS: Final = 0.2


@dataclass(frozen=True)
class Calibration:
    """What is known before packs are cut.

    Attributes:
        curves: Structure to how long its stacks take; the others go by the cost model.
        memory: Bytes of GPU memory that a pack may take; None without GPUs, or unknown.
        problems: What went wrong, in words; it costs speed at most.
    """

    curves: Mapping[str, CostCurve] = field(default_factory=dict)
    memory: int | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class CalibrationSettings:
    """Where packs will run.

    Attributes:
        resources: Of a pack.
        machines: All that there are.
        workers: Packs at once.
        memory: Bytes that each may take, of a machine's own memory.
    """

    resources: Resources
    machines: Sequence[Machine]
    workers: int
    memory: int


def calibrate(
    experiment: str,
    replicates: Sequence[PlannedReplicate],
    setting: CalibrationSettings,
    *,
    stopping: Callable[[], bool],
    tell: Callable[[], None],
) -> Calibration:
    """Find out how long stacks take, where that pays for itself.

    Args:
        experiment: Whose replicates they are.
        replicates: That are to be trained.
        setting: Where.
        stopping: Asked often; once true, what is not known yet stays unknown.
        tell: Called before anything is measured.

    Raises:
        InputError: If packs are given GPUs and torch sees none.
    """
    resources = setting.resources
    if resources.pack != "auto" or not replicates:
        return Calibration()
    runs = privnets.experiment(experiment)
    groups = _groups(runs, replicates)
    seconds = _budget(groups, setting.workers)
    here = _is_here(setting.machines)
    held = _kept(runs, groups, resources, setting.memory) if here else {}
    asked = [g for g in _chosen(groups, setting) if g.structure not in held] if seconds else []
    if not asked and not resources.gpus:
        return Calibration(_spread(held, groups))
    tell()
    orders = [_Order.of(experiment, group, setting, seconds) for group in asked]
    found = _carried_out(orders, setting, seconds, stopping)
    return Calibration(_spread({**held, **found.curves}, groups), found.memory, found.problems)


def cached_curves(
    experiment: str, replicates: Sequence[PlannedReplicate], resources: Resources, memory: int
) -> dict[str, CostCurve]:
    """What was measured before on this machine; measures nothing.

    Args:
        experiment: Whose replicates they are.
        replicates: That are to be trained.
        resources: Of a pack.
        memory: Bytes that a pack may take, of this machine's own memory.
    """
    runs = privnets.experiment(experiment)
    groups = _groups(runs, replicates)
    return _spread(_kept(runs, groups, resources, memory), groups)


@dataclass(frozen=True)
class _Group:
    """Replicates of one structure, and their price by the cost model."""

    structure: str
    members: Sequence[PlannedReplicate]
    curve: CostCurve

    @property
    def asked(self) -> Sequence[PlannedReplicate]:
        """Those that stacks are measured of."""
        return self.members[:_MEMBERS]

    @property
    def seconds(self) -> float:
        return self.curve.stack_seconds(len(self.members))

    @property
    def gain(self) -> float:
        """How much faster stacks are than members alone."""
        count = len(self.members)
        return count * self.curve.stack_seconds(1) / max(self.curve.stack_seconds(count), 1e-9)

    @property
    def kind(self) -> str:
        """What has stacks of the same form, most likely: all but numbers is equal."""
        values = json.loads(self.structure)
        return json.dumps({k: v for k, v in values.items() if not _is_number(v)}, sort_keys=True)


@dataclass(frozen=True)
class _Order:
    """What a worker is asked to measure; plain values."""

    experiment: str
    structure: str
    members: Sequence[Mapping[str, Any]]
    resources: Mapping[str, Any]
    memory: int
    seconds: float

    @classmethod
    def of(
        cls, experiment: str, group: _Group, setting: CalibrationSettings, seconds: float
    ) -> _Order:
        members = [r.config.model_dump(mode="json") for r in group.asked]
        resources = setting.resources.model_dump()
        return cls(experiment, group.structure, members, resources, setting.memory, seconds)


def _groups(runs: Experiment, replicates: Iterable[PlannedReplicate]) -> list[_Group]:
    structures = sorted(group_by_structure(replicates).items())
    return [_Group(s, own, CostCurve.from_cost(mean_cost(runs, own))) for s, own in structures]


def _budget(groups: Sequence[_Group], workers: int) -> float:
    """Seconds that measuring may take; 0 where the sweep is too short for any."""
    share = _SHARE * math.fsum(group.seconds for group in groups) / workers
    return min(share, _MOST_SECONDS) if share >= _LEAST_SECONDS else 0.0


def _chosen(groups: Sequence[_Group], setting: CalibrationSettings) -> list[_Group]:
    """The dearest of each kind, and then the dearest that are left, as many as workers measure."""
    gpus = setting.resources.gpus
    worth = [g for g in groups if len(g.members) > 1 and (gpus or g.gain > _GAIN)]
    worth.sort(key=lambda group: -group.seconds)
    first = list({group.kind: group for group in reversed(worth)}.values())[::-1]
    others = [group for group in worth if group not in first]
    return [*first, *others][: min(_STRUCTURES, setting.workers)]


def _kept(
    runs: Experiment, groups: Sequence[_Group], resources: Resources, memory: int
) -> dict[str, CostCurve]:
    """What the cache of this machine holds; of GPUs only a process that has one can tell."""
    if resources.gpus:
        return {}
    identities = {g.structure: curve_key(runs, g.structure, resources, "") for g in groups}
    found = {
        g.structure: read_cached_curve(identities[g.structure], len(g.asked), memory)
        for g in groups
    }
    return {structure: curve for structure, curve in found.items() if curve is not None}


def _spread(held: Mapping[str, CostCurve], groups: Sequence[_Group]) -> dict[str, CostCurve]:
    """Curves of all groups that resemble a measured one: of its kind, and as dear as can be."""
    measured = [group for group in groups if group.structure in held]
    found = dict(held)
    for group in groups:
        alike = [other for other in measured if other.kind == group.kind]
        if group.structure in held or not alike:
            continue
        ratios = {
            o.structure: group.curve.stack_seconds(8) / o.curve.stack_seconds(8) for o in alike
        }
        nearest = min(ratios, key=lambda structure: abs(math.log(ratios[structure])))
        found[group.structure] = held[nearest].scale(ratios[nearest], group.curve.memory)
    return found


def _is_here(machines: Sequence[Machine]) -> bool:
    """Whether packs run on this machine alone."""
    return len(machines) == 1 and machines[0].host == socket.gethostname()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _carried_out(
    orders: Sequence[_Order],
    setting: CalibrationSettings,
    seconds: float,
    stopping: Callable[[], bool],
) -> Calibration:
    """Have workers measure, each with what a pack is given, all at once.

    Before them GPUs are asked for their free memory, while nothing is in it.
    """
    import ray

    resources = setting.resources
    work = ray.remote(num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=0)
    limit = time.monotonic() + _PATIENCE_SECONDS + 4 * seconds
    probing = _probes(setting, work) if resources.gpus else []
    waiting = _unanswered(probing, limit, stopping)
    measuring = {work(_measured).remote(order): order for order in orders}
    waiting += _unanswered([*measuring], limit, stopping)
    done = [task for task in (*probing, *measuring) if task not in waiting]
    answers, problems = _answers(done)
    curves = {o.structure: answers[t] for t, o in measuring.items() if answers.get(t) is not None}
    free = [answers[task] for task in probing if task in answers]
    if waiting and not stopping():
        problems.append("pack sizes were not measured: no worker was free to")
    return Calibration(curves, min(free, default=None), tuple(problems))


def _unanswered(tasks: list[Task], limit: float, stopping: Callable[[], bool]) -> list[Task]:
    """Wait for tasks, at most until the limit; those that are not done by then are cancelled."""
    import ray

    waiting = tasks
    while waiting and time.monotonic() < limit and not stopping():
        _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=_ASKED_SECONDS)
    for task in waiting:
        ray.cancel(task, force=True)
    return waiting


def _answers(
    tasks: Iterable[ray.ObjectRef[Any]],
) -> tuple[dict[ray.ObjectRef[Any], Any], list[str]]:
    import ray

    answers, problems = {}, []
    for task in tasks:
        try:
            answers[task] = ray.get(task)
        except DeviceNotFoundError as error:
            raise InputError(f"resources.gpus: {error.args[-1]}") from error
        except ray.exceptions.RayError as error:
            words = str(error).strip().splitlines()[-1]
            problems.append(f"pack sizes were not measured: {words}")
    return answers, problems


def _probes(setting: CalibrationSettings, work: Callable[..., Any]) -> list[Task]:
    """One task on each kind of machine, told the memory of its GPU."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    resources = setting.resources
    kinds = {(m.cpus, m.gpus, m.accelerator): m for m in setting.machines if m.gpus}
    remote = work(_free)
    return [
        remote.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(machine.node, soft=True)
        ).remote(resources.gpus, resources.cpus)
        for machine in kinds.values()
    ]


def _measured(order: _Order) -> CostCurve | None:
    """In a worker: the curve from its machine's cache, or measured and kept there."""
    resources = Resources.model_validate(order.resources)
    device = select_device(resources.gpus, resources.cpus)
    memory = free_memory(resources.gpus) if device == "cuda" else order.memory
    runs = privnets.experiment(order.experiment)
    identity = curve_key(runs, order.structure, resources, device_name(device))
    found = read_cached_curve(identity, len(order.members), memory)
    if found is None:
        configs = [runs.Config.model_validate(values) for values in order.members]
        found = measure_cost_curve(
            runs, configs, device=device, memory=memory, seconds=order.seconds
        )
        if found is not None:
            cache_curve(identity, found)
    return found


def _free(gpus: float, cpus: float) -> int:
    """In a worker: bytes of GPU memory for it."""
    select_device(gpus, cpus)
    return free_memory(gpus)
