"""Run-time estimates, extrapolated from two short runs."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

# Smallest share of a run's time that its units take; the rest is its start.
_MIN_UNIT_SHARE = 0.25


def extrapolate_seconds(
    work: Callable[[int], object],
    *,
    least: int,
    whole: int,
    device: str = "cpu",
    seconds: float = 0.3,
) -> float:
    """Estimates the seconds of `whole` units of work from two runs with fewer units.

    Two runs separate the time of the start from the time of each unit. An untimed run before them
    absorbs the costs of first use.

    Args:
        least: Units of the shorter run, at least 1.
        seconds: Approximate time of the longer run.
    """
    whole = max(whole, 1)
    few = min(least, whole)
    work(few)
    first = measure_seconds(work, few, device)
    more = min(whole, few * max(2, int(seconds / max(first, 1e-9))))
    if more == few:
        return first
    second = measure_seconds(work, more, device)
    if second <= first:  # other processes disturbed a run, which only ever adds time
        first = min(first, measure_seconds(work, few, device))
        second = min(second, measure_seconds(work, more, device))
    per_unit = max((second - first) / (more - few), _MIN_UNIT_SHARE * second / more)
    return second + per_unit * (whole - more)


def measure_seconds(work: Callable[[int], object], units: int, device: str | torch.device) -> float:
    """Measures the seconds of units of work on a device."""
    # Other processes do not affect the processor time of one CPU thread.
    is_single = torch.device(device).type == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if is_single else time.perf_counter
    _synchronise(device)
    start = clock()
    work(units)
    _synchronise(device)
    return clock() - start


def _synchronise(device: str | torch.device) -> None:
    """Waits for the kernels of a GPU, which run asynchronously."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
