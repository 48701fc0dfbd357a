"""Measuring, on the machine that trains them, how long stacks take by their size.

What was measured is kept in the cache directory of that machine. Machines of equal hardware and
versions measure alike, so hosts are not told apart by name.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privnets.config import ExperimentConfig
from privnets.contract import Experiment
from privnets.data import cache
from sweeps.planning.cost_curves import CostCurve, by_doubling
from sweeps.planning.devices import is_out_of_memory, peak_memory
from sweeps.study.spec import Resources

# A larger stack must save this share of each member's time to be worth another measurement.
_WORTH = 0.05


def measure_cost_curve(
    experiment: Experiment,
    configs: Sequence[ExperimentConfig],
    *,
    device: str,
    memory: int,
    seconds: float,
) -> CostCurve | None:
    """Rehearse larger and larger stacks while they are faster per member, or time is up.

    Args:
        experiment: Whose stacks they are.
        configs: Of one structure, two or more; stacks are made of the first ones.
        device: Where tensors live, as torch names it.
        memory: Bytes of the device that a stack may take.
        seconds: After so many no further size is begun; two sizes are measured in any case.

    Returns:
        The curve; None from an experiment that cannot estimate_runtime, or where not even two fit.
    """
    began, memory_each = time.monotonic(), experiment.cost(configs[0]).memory
    totals: list[float] = []
    complete = False
    sizes = by_doubling(len(configs))
    for size in sizes:
        late = time.monotonic() - began > seconds
        if complete or (len(totals) > 1 and (late or size * memory_each > memory)):
            break
        found = _rehearsed(experiment, configs[:size], device)
        if found is None:
            complete = True  # whatever the device has room for was measured
            break
        totals.append(found[0])
        memory_each = math.ceil(found[1] / size) or memory_each
        complete = _no_faster(totals)
    if len(totals) < 2:
        return None
    # Whatever else the machine does only adds: a stack takes no longer than a larger one.
    lasting = tuple(min(totals[i:]) for i in range(len(totals)))
    return CostCurve(tuple(sizes[: len(totals)]), lasting, memory_each, complete=complete)


def read_cached_curve(identity: str, most: int, memory: int) -> CostCurve | None:
    """What was measured of a structure on a machine like this one.

    Args:
        identity: From `identify`.
        most: The largest stack that is of interest.
        memory: Bytes of the device that a stack may take.

    Returns:
        The curve; None where there is none, it is damaged, or it ends, for want of time, members
        or memory, before what `most` and `memory` allow.
    """
    held = cache.read(_path(identity))
    curve = None if held is None else _decoded(held)
    if curve is None:
        return None
    largest = min(most, memory // curve.memory)
    return curve if curve.complete or 2 * curve.sizes[-1] > largest else None


def cache_curve(identity: str, curve: CostCurve) -> None:
    """Keep a curve for `recall`; silent where the cache cannot be written."""
    arrays = {
        "sizes": np.array(curve.sizes, dtype=np.int64),
        "totals": np.array(curve.totals, dtype=np.float64),
        "memory": np.array(curve.memory, dtype=np.int64),
        "complete": np.array(curve.complete),
    }
    cache.write(_path(identity), arrays)


def curve_key(experiment: Experiment, structure: str, resources: Resources, device: str) -> str:
    """What a curve holds for: hardware, versions, and what is trained with how much of it.

    Args:
        experiment: Whose stacks they are.
        structure: As `ExperimentConfig.structure` gives it.
        resources: Of a pack.
        device: The accelerator's name; empty without one.
    """
    about: Mapping[str, object] = {
        "experiment": [experiment.name, experiment.version],
        "structure": structure,
        "processor": _processor(),
        "device": device,
        "resources": [resources.cpus, resources.gpus],
        "versions": _versions(),
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]


def _rehearsed(
    experiment: Experiment, configs: Sequence[ExperimentConfig], device: str
) -> tuple[float, int] | None:
    """Seconds of a stack, and bytes of the device at the most; None where it cannot be told."""
    try:
        with peak_memory(device) as peak:
            total = experiment.estimate_runtime(configs, device)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return None
    if total is None or not (math.isfinite(total) and total > 0):
        return None
    return total, peak.bytes


def _no_faster(totals: Sequence[float]) -> bool:
    """Whether twice in a row a size, twice the one before, saved too little: once may be chance."""
    slow = [large / 2 > (1 - _WORTH) * small for small, large in pairwise(totals)]
    return len(slow) > 1 and slow[-1] and slow[-2]


def _path(identity: str) -> Path:
    return cache.directory() / f"stacks-{identity}"


def _decoded(held: Mapping[str, NDArray[Any]]) -> CostCurve | None:
    """A curve, if that is what the arrays are."""
    with suppress(KeyError, ValueError, TypeError):
        sizes, totals = held["sizes"].tolist(), held["totals"].tolist()
        memory, complete = int(held["memory"]), bool(held["complete"])
        doubling = len(sizes) > 1 and sizes == [2**i for i in range(len(sizes))]
        sound = len(totals) == len(sizes) and all(0 < t < math.inf for t in totals)
        if doubling and sound and memory > 0:
            return CostCurve(tuple(sizes), tuple(totals), memory, complete=complete)
    return None


@lru_cache
def _versions() -> tuple[str, ...]:
    return tuple(version(name) for name in ("privnets-sweeps", "torch", "numpy"))


@lru_cache
def _processor() -> str:
    """The processor's name, as far as the system tells it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
