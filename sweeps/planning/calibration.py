"""Calibration: cost curves for the structures of a sweep, measured by workers before it starts.

Only sweeps that take long compared with the measurement are calibrated. Of many structures the most
expensive are measured; similar ones take over their curves, scaled by the cost model.
"""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import privnets
from privnets.config import ExperimentConfig
from privnets.contract import Experiment
from privnets.references.user_files import set_portable_folder
from sweeps.errors import InputError
from sweeps.planning.cost_curves import CostCurve, cache_curve, curve_key, read_cached_curve
from sweeps.planning.devices import DeviceNotFoundError, free_memory, select_device
from sweeps.planning.packing import ReplicateGroup, group_by_structure
from sweeps.planning.plan import PlannedReplicate
from sweeps.study.spec import Resources

if TYPE_CHECKING:
    import ray

    from cluster.connection import Machine

    ObjectRef: TypeAlias = ray.ObjectRef[Any]

# Fraction of each worker's expected time for measuring, and limits on it in seconds.
_TIME_SHARE: Final = 0.05
_MIN_SECONDS, _MAX_SECONDS = 2.0, 10.0
_MAX_STRUCTURES, _MAX_MEMBERS = 8, 256
# Minimum speed-up by stacking, according to the cost model, that is worth a measurement.
_MIN_SPEEDUP: Final = 1.1
# Minimum saving of time per member that is worth the measurement of a larger stack.
_MIN_SAVING: Final = 0.05
# Additional time for imports, for loading data, and until a worker is free.
_PATIENCE_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.2


@dataclass(frozen=True)
class Calibration:
    """Knowledge about stacks and devices before the partition into packs.

    Attributes:
        curves: Cost curve of each structure; the cost model serves for the others.
        memory: Bytes of GPU memory that a pack may take; None without GPUs, or if unknown.
        problems: Descriptions of failures, which only cost speed.
    """

    curves: Mapping[str, CostCurve] = field(default_factory=dict)
    memory: int | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class CalibrationSettings:
    """Conditions under which packs run: `workers` at once, each with `memory` bytes.

    Attributes:
        folder: The study's folder, as `portable_folder` describes it.
    """

    resources: Resources
    machines: Sequence[Machine]
    workers: int
    memory: int
    folder: str = "."


def calibrate(
    experiment: str,
    replicates: Sequence[PlannedReplicate],
    settings: CalibrationSettings,
    *,
    is_stopping: Callable[[], bool],
    on_measure: Callable[[], None],
) -> Calibration:
    """Measures the cost curves that a sweep needs, if the sweep is long enough.

    Args:
        experiment: Name of the experiment.
        is_stopping: Polled often; once it returns True, measuring ends.
        on_measure: Called before the first measurement.

    Raises:
        InputError: If packs need GPUs and torch sees none.
    """
    resources = settings.resources
    if resources.pack != "auto" or not replicates:
        return Calibration()
    implementation = privnets.experiment(experiment)
    groups = _groups(implementation, replicates)
    seconds = _time_limit(groups, settings.workers)
    curves = {}
    if [machine.host for machine in settings.machines] == [socket.gethostname()]:
        curves = _read_cached(implementation, groups, resources, settings.memory)
    chosen = _choose_groups(groups, settings) if seconds else []
    chosen = [group for group in chosen if group.structure not in curves]
    if not chosen and not resources.pack_gpus:
        return Calibration(_share_curves(curves, groups))
    on_measure()
    measured = _measure_on_workers(experiment, chosen, settings, seconds, is_stopping)
    return replace(measured, curves=_share_curves({**curves, **measured.curves}, groups))


def cached_curves(
    experiment: str, replicates: Sequence[PlannedReplicate], resources: Resources, memory: int
) -> dict[str, CostCurve]:
    """Returns the curves that were measured on this machine before, by structure."""
    implementation = privnets.experiment(experiment)
    groups = _groups(implementation, replicates)
    return _share_curves(_read_cached(implementation, groups, resources, memory), groups)


def measure_cost_curve(
    experiment: Experiment,
    configs: Sequence[ExperimentConfig],
    *,
    device: str,
    memory: int,
    seconds: float,
) -> CostCurve | None:
    """Times stacks of increasing size, until larger ones do not save time per member.

    Args:
        configs: At least two configurations of one structure; stacks take the first ones.
        memory: Bytes of device memory that a stack may take.
        seconds: Time limit for starting another size; two sizes are measured in any case.

    Returns:
        The curve; None if the experiment cannot estimate run times, or two do not fit.
    """
    start, memory_each = time.monotonic(), experiment.cost(configs[0]).memory
    totals: list[float] = []
    complete = False
    sizes = [2**i for i in range(len(configs).bit_length())]
    for size in sizes:
        is_late = time.monotonic() - start > seconds
        if complete or (len(totals) > 1 and (is_late or size * memory_each > memory)):
            break
        timing = _time_stack(experiment, configs[:size], device)
        if timing is None:
            complete = True  # the device has no memory for larger stacks
            break
        totals.append(timing[0])
        memory_each = math.ceil(timing[1] / size) or memory_each
        complete = _has_levelled_off(totals)
    if len(totals) < 2:
        return None
    # Other work on the machine only adds time, so a stack takes at most as long as a larger one.
    lower_bounds = tuple(min(totals[i:]) for i in range(len(totals)))
    return CostCurve(tuple(sizes[: len(totals)]), lower_bounds, memory_each, complete=complete)


def _time_stack(
    experiment: Experiment, configs: Sequence[ExperimentConfig], device: str
) -> tuple[float, int] | None:
    """Returns a stack's seconds and peak device memory; None if it cannot be timed."""
    import torch  # only workers load it

    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        total = experiment.estimate_runtime(configs, device)
    except torch.OutOfMemoryError:
        return None
    if total is None or not (math.isfinite(total) and total > 0):
        return None
    return total, torch.cuda.max_memory_allocated() if device == "cuda" else 0


def _has_levelled_off(totals: Sequence[float]) -> bool:
    """Returns whether the last two doublings saved too little; a single one may be chance."""
    slow = [large / 2 > (1 - _MIN_SAVING) * small for small, large in pairwise(totals)]
    return len(slow) > 1 and slow[-1] and slow[-2]


def _groups(experiment: Experiment, replicates: Iterable[PlannedReplicate]) -> list[ReplicateGroup]:
    structures = sorted(group_by_structure(replicates).items())
    return [ReplicateGroup.from_members(experiment, *entry) for entry in structures]


def _total_seconds(group: ReplicateGroup) -> float:
    return group.curve.stack_seconds(len(group.members))


def _speedup(group: ReplicateGroup) -> float:
    """Estimates how much faster one stack is than its members alone."""
    alone = len(group.members) * group.curve.stack_seconds(1)
    return alone / max(_total_seconds(group), 1e-9)


def _similarity_key(group: ReplicateGroup) -> str:
    """Returns the fields that are not numbers; equal keys have curves of similar form."""
    values = group.members[0].point_config.canonical().resolved()
    kinds = {
        k: v for k, v in values.items() if isinstance(v, bool) or not isinstance(v, int | float)
    }
    return json.dumps(kinds, sort_keys=True)


def _time_limit(groups: Sequence[ReplicateGroup], workers: int) -> float:
    """Returns the seconds that measuring may take; 0 if the sweep is too short."""
    share = _TIME_SHARE * math.fsum(map(_total_seconds, groups)) / workers
    return min(share, _MAX_SECONDS) if share >= _MIN_SECONDS else 0.0


def _choose_groups(
    groups: Sequence[ReplicateGroup], settings: CalibrationSettings
) -> list[ReplicateGroup]:
    """Chooses the most expensive group of each kind, then others by cost, one per worker."""
    gpus = settings.resources.pack_gpus
    useful = [g for g in groups if len(g.members) > 1 and (gpus or _speedup(g) > _MIN_SPEEDUP)]
    useful.sort(key=lambda group: -_total_seconds(group))
    first = list({_similarity_key(group): group for group in reversed(useful)}.values())[::-1]
    others = [group for group in useful if group not in first]
    return [*first, *others][: min(_MAX_STRUCTURES, settings.workers)]


def _read_cached(
    experiment: Experiment, groups: Sequence[ReplicateGroup], resources: Resources, memory: int
) -> dict[str, CostCurve]:
    """Reads curves from this machine's cache; with GPUs the key is known to workers alone."""
    curves: dict[str, CostCurve] = {}
    for group in groups if not resources.pack_gpus else ():
        key = curve_key(experiment, group.structure, resources, "")
        curve = read_cached_curve(key, min(len(group.members), _MAX_MEMBERS), memory)
        if curve is not None:
            curves[group.structure] = curve
    return curves


def _share_curves(
    curves: Mapping[str, CostCurve], groups: Sequence[ReplicateGroup]
) -> dict[str, CostCurve]:
    """Adds scaled curves for the groups that resemble a measured one."""
    shared = dict(curves)
    for group in groups:
        seconds = group.curve.stack_seconds(8)
        ratios = {
            other.structure: seconds / other.curve.stack_seconds(8)
            for other in groups
            if other.structure in curves and _similarity_key(other) == _similarity_key(group)
        }
        if group.structure not in curves and ratios:
            nearest = min(ratios, key=lambda structure: abs(math.log(ratios[structure])))
            scaled = curves[nearest].scale(ratios[nearest], group.curve.memory)
            shared[group.structure] = scaled
    return shared


def _measure_on_workers(
    experiment: str,
    groups: Sequence[ReplicateGroup],
    settings: CalibrationSettings,
    seconds: float,
    is_stopping: Callable[[], bool],
) -> Calibration:
    """Runs all measurements at once, each with the resources of a pack.

    Free GPU memory is read first, on one machine of each kind, while the GPUs are empty.
    """
    import ray  # `sweeps show` reads cached curves without it
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    resources = settings.resources
    others = {k: n for k, n in resources.bundle().items() if k not in ("CPU", "GPU", "memory")}
    remote = ray.remote(
        num_cpus=resources.pack_cpus,
        num_gpus=resources.pack_gpus,
        memory=resources.bundle().get("memory", 0),
        resources=others,
        max_retries=0,
    )
    deadline = time.monotonic() + _PATIENCE_SECONDS + 4 * seconds
    kinds = {(m.cpus, m.gpus, m.accelerator): m for m in settings.machines if m.gpus}
    probes = [
        remote(_free_memory_in_worker)
        .options(scheduling_strategy=NodeAffinitySchedulingStrategy(machine.node, soft=True))
        .remote(resources.pack_gpus, resources.pack_cpus)
        for machine in kinds.values()
        if resources.pack_gpus
    ]
    sizes, problems = _results(probes, deadline, is_stopping)
    measurements = {}
    for group in groups:
        configs = [member.config for member in group.members[:_MAX_MEMBERS]]
        ref = remote(_measure_in_worker).remote(experiment, configs, settings, seconds)
        measurements[ref] = group.structure
    results, more = _results([*measurements], deadline, is_stopping)
    curves = {s: results[ref] for ref, s in measurements.items() if results.get(ref) is not None}
    return Calibration(curves, min(sizes.values(), default=None), (*problems, *more))


def _results(
    refs: list[ObjectRef], deadline: float, is_stopping: Callable[[], bool]
) -> tuple[dict[ObjectRef, Any], list[str]]:
    """Returns the results of tasks, and descriptions of failures; cancels tasks that are late."""
    import ray

    late = refs
    while late and time.monotonic() < deadline and not is_stopping():
        _, late = ray.wait(late, num_returns=len(late), timeout=_POLL_SECONDS)
    for ref in late:
        ray.cancel(ref, force=True)
    reasons = {"no worker was free"} if late and not is_stopping() else set()
    results = {}
    for ref in refs:
        try:
            if ref not in late:
                results[ref] = ray.get(ref)
        except DeviceNotFoundError as error:
            raise InputError(f"resources.gpus: {error.args[-1]}") from error
        except ray.exceptions.RayError as error:
            reasons.add(str(error).strip().splitlines()[-1])
    return results, [f"pack sizes were not measured: {reason}" for reason in sorted(reasons)]


def _measure_in_worker(
    experiment: str,
    configs: Sequence[ExperimentConfig],
    settings: CalibrationSettings,
    seconds: float,
) -> CostCurve | None:
    """Returns the curve from the worker's cache, or measures it and writes it there."""
    import torch

    resources, memory = settings.resources, settings.memory
    set_portable_folder(settings.folder)
    device, name = select_device(resources.pack_gpus, resources.pack_cpus), ""
    if device == "cuda":
        memory, name = free_memory(resources.pack_gpus), torch.cuda.get_device_name()
    implementation = privnets.experiment(experiment)
    key = curve_key(implementation, configs[0].structure(), resources, name)
    curve = read_cached_curve(key, len(configs), memory)
    if curve is None:
        curve = measure_cost_curve(
            implementation, configs, device=device, memory=memory, seconds=seconds
        )
        if curve is not None:
            cache_curve(key, curve)
    return curve


def _free_memory_in_worker(gpus: float, cpus: float) -> int:
    select_device(gpus, cpus)
    return free_memory(gpus)
