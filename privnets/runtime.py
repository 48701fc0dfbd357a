"""How long work would take, from what a short piece of it took."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

_SECONDS = 0.3
# Of the time of a run, the share that its units take at least: what begins a run is not all of it.
_LEAST_SHARE = 0.25


def extrapolate_seconds(
    work: Callable[[int], object],
    *,
    least: int,
    whole: int,
    device: str = "cpu",
    seconds: float = _SECONDS,
) -> float:
    """Seconds that `whole` units of work would take, from two short runs of fewer.

    Both runs begin anew, so that what begins every run is told apart from what each unit adds. A
    run beforehand, which is not timed, pays for what only the first one pays.

    Args:
        work: Does so many units of work from their beginning.
        least: Units of the shorter run, at least 1.
        whole: Units to extrapolate to.
        device: Where the work is done, as torch names it.
        seconds: About what the longer run may take.
    """
    whole = max(whole, 1)
    few = min(least, whole)
    work(few)
    first = _timed(work, few, device)
    more = min(whole, few * max(2, int(seconds / max(first, 1e-9))))
    if more == few:
        return first
    second = _timed(work, more, device)
    if second <= first:  # one of them was disturbed, which only ever adds
        first = min(first, _timed(work, few, device))
        second = min(second, _timed(work, more, device))
    each = max((second - first) / (more - few), _LEAST_SHARE * second / more)
    return second + each * (whole - more)


def _timed(work: Callable[[int], object], units: int, device: str) -> float:
    clock = _clock(device)
    _finish(device)
    start = clock()
    work(units)
    _finish(device)
    return clock() - start


def _clock(device: str) -> Callable[[], float]:
    """One thread's time is the processor's: others who keep the machine busy do not count."""
    alone = torch.device(device).type == "cpu" and torch.get_num_threads() == 1
    return time.process_time if alone else time.perf_counter


def _finish(device: str) -> None:
    """Kernels of a GPU are launched, and waited for only when asked."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
