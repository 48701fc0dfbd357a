"""Cost curves: the training time of a stack as a function of its size, and a cache of them.

Measured curves are kept in the cache directory of the machine. Machines with equal hardware and
versions share them, so the host's name is not part of a curve's key.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from privnets import cache
from privnets.contract import Cost, Experiment
from privnets.registry import package_version
from sweeps.study.spec import Resources

PACK_SECONDS: Final = 0.05
"""Overhead of a pack: a trial, a file in the ledger, the removal of a checkpoint."""

# A size is good, or acceptable, if its time per member is within this factor of the best.
_GOOD, _ACCEPTABLE = 1.05, 1.4
# Limit on a pack's length where smaller packs are as good: results are saved when a pack ends.
_MAX_SECONDS: Final = 20.0
# Without measurements stacks have at most this size, or take at most this many seconds.
_MAX_UNMEASURED, _CHEAP_SECONDS = 16, 1.0


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Training time of a stack, piecewise linear in its size.

    Attributes:
        sizes: Stack sizes, ascending; at least two.
        totals: Seconds of a whole stack of each size.
        memory: Bytes of device memory per member.
        complete: Whether larger stacks would not be faster per member, as measurements showed.
    """

    sizes: tuple[int, ...]
    totals: tuple[float, ...]
    memory: int
    complete: bool = True

    @classmethod
    def from_cost(cls, cost: Cost) -> CostCurve:
        """Makes a curve from an experiment's cost model."""
        totals = (cost.shared + cost.seconds, cost.shared + 2 * cost.seconds)
        return cls((1, 2), totals, cost.memory, complete=False)

    def pack_seconds(self, size: int) -> float:
        """Estimates the seconds of a pack, its overhead included."""
        return PACK_SECONDS + self.stack_seconds(size)

    def stack_seconds(self, size: int) -> float:
        """Interpolates the seconds of a stack; extrapolates beyond the largest known size."""
        right = min(max(bisect_right(self.sizes, size), 1), len(self.sizes) - 1)
        small, large = self.sizes[right - 1 : right + 1]
        low, high = self.totals[right - 1 : right + 1]
        return max(low + (high - low) * (size - small) / (large - small), 0.0)

    def seconds_per_member(self, size: int) -> float:
        """Estimates the seconds of a pack, divided by its size."""
        return self.pack_seconds(size) / size

    def scale(self, factor: float, memory: int) -> CostCurve:
        """Returns a curve of the same form for more or less expensive work."""
        totals = tuple(total * factor for total in self.totals)
        return replace(self, totals=totals, memory=memory)


@dataclass(frozen=True, slots=True)
class Workload:
    """Replicates of one structure, with efficient stack sizes.

    Attributes:
        members: Number of replicates.
        curve: Cost curve of their stacks.
        smallest: Smallest acceptable size of a stack.
        preferred: Smallest good size.
        largest: Largest good size.
    """

    members: int
    curve: CostCurve
    smallest: int
    preferred: int
    largest: int

    @classmethod
    def from_curve(cls, curve: CostCurve, members: int, memory: int) -> Workload:
        """Finds the efficient sizes of a number of replicates, in `memory` bytes."""
        fitting = max(1, memory // max(curve.memory, 1))
        limit = min(members, fitting, _largest_supported(curve))
        sizes = sorted({*_candidates(limit), *(size for size in curve.sizes if size <= limit)})
        seconds = {size: curve.seconds_per_member(size) for size in sizes}
        best = min(seconds.values())
        good = [size for size in sizes if seconds[size] <= _GOOD * best]
        acceptable = next(size for size in sizes if seconds[size] <= _ACCEPTABLE * best)
        return cls(members, curve, acceptable, good[0], good[-1])

    @property
    def seconds(self) -> float:
        """Estimated seconds of one worker for all members."""
        return self.members * self.curve.seconds_per_member(self.preferred)

    def size_for(self, seconds: float) -> int:
        """Returns an efficient pack size that takes about `seconds`."""
        wanted = seconds / self.curve.seconds_per_member(self.preferred)
        fitting = _MAX_SECONDS / self.curve.seconds_per_member(self.largest)
        largest = min(max(self.preferred, math.floor(fitting)), self.largest)
        return max(self.smallest, min(round(wanted), largest))


def _largest_supported(curve: CostCurve) -> int:
    """Returns the largest stack that measurements, or its low cost, justify."""
    last = curve.sizes[-1]
    known = last if curve.complete else max(last, _MAX_UNMEASURED)
    cheap = _CHEAP_SECONDS / max(curve.stack_seconds(known) / known, 1e-9)
    return max(known, math.floor(cheap))


def _candidates(limit: int) -> Iterator[int]:
    """Yields sizes up to `limit`, each about half as large again as the one before."""
    size = 1
    while size < limit:
        yield size
        size += max(1, size // 2)
    yield limit


def read_cached_curve(key: str, max_size: int, memory: int) -> CostCurve | None:
    """Reads a curve that was measured on a machine like this one.

    Returns:
        The curve. None if there is none, if it is damaged, or if it ends below the size that
        `max_size` and the bytes in `memory` allow.
    """
    arrays = cache.read(_cache_path(key))
    if arrays is None:
        return None
    sizes, totals = tuple(arrays["sizes"].tolist()), tuple(arrays["totals"].tolist())
    curve = CostCurve(sizes, totals, int(arrays["memory"]), complete=bool(arrays["complete"]))
    largest = min(max_size, memory // curve.memory)
    return curve if curve.complete or 2 * curve.sizes[-1] > largest else None


def cache_curve(key: str, curve: CostCurve) -> None:
    """Writes a curve to the cache; does nothing where the cache cannot be written."""
    arrays = {
        "sizes": np.array(curve.sizes, dtype=np.int64),
        "totals": np.array(curve.totals, dtype=np.float64),
        "memory": np.array(curve.memory, dtype=np.int64),
        "complete": np.array(curve.complete),
    }
    cache.write(_cache_path(key), arrays)


def curve_key(experiment: Experiment, structure: str, resources: Resources, device: str) -> str:
    """Identifies a curve by hardware, versions, and the work and resources of a pack."""
    parts: Mapping[str, object] = {
        "experiment": [experiment.name, experiment.version],
        "structure": structure,
        "processor": cache.processor(),
        "device": device,
        "resources": [resources.pack_cpus, resources.pack_gpus],
        "versions": _versions(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def _cache_path(key: str) -> Path:
    return cache.directory() / f"stacks-{key}"


@lru_cache
def _versions() -> tuple[str, ...]:
    return tuple(package_version(name) for name in ("privnets-sweeps", "torch", "numpy"))
