"""A household's electric power and whether somebody was at home, day by day in equal steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Resolution = Literal["hour", "quarter-hour"]

STEPS: Final = {"hour": 24, "quarter-hour": 96}
"""Of a day."""

MISSING: Final = -1
"""Occupancy that nobody recorded. It is not absence."""

MOST_WATTS: Final = 1e7
"""No household takes more; a file that says so is damaged."""

QUARTERS, QUARTER_SECONDS = 96, 900
DAY_SECONDS = QUARTERS * QUARTER_SECONDS


@dataclass(frozen=True, eq=False)
class Quarters:
    """One household by quarter-hours, so that hours can be made of it.

    Attributes:
        number: The household's, from 1.
        dates: Days in order, datetime64[D], shape [d].
        watt_seconds: Power summed over the seconds that were metered, float64, shape [d, 96].
        seconds: How many those are, int64, shape [d, 96].
        occupancy: 1 somebody at home, 0 nobody, `MISSING`, int64, shape [d, 96].
    """

    number: int
    dates: NDArray[np.datetime64]
    watt_seconds: NDArray[np.float64]
    seconds: NDArray[np.int64]
    occupancy: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Household:
    """One household in steps of an hour or a quarter-hour, on its local wall clock.

    Attributes:
        number: The household's, from 1.
        dates: Days in order, not all in a row, datetime64[D], shape [d].
        power: Mean power of each step in W, 0 where it is not present, float64, shape [d, T].
        present: Whether at least half of the step was metered, bool, shape [d, T].
        occupancy: 1 somebody at home, 0 nobody, `MISSING`, int64, shape [d, T].
    """

    number: int
    dates: NDArray[np.datetime64]
    power: NDArray[np.float64]
    present: NDArray[np.bool_]
    occupancy: NDArray[np.int64]


def at(quarters: Quarters, resolution: Resolution) -> Household:
    """A household in steps of some length.

    A step's power is the mean over its metered seconds, and present if those are at least half of
    it. An hour is occupied as most of its known quarter-hours are; if two are and two are not, it
    is occupied, for somebody was at home in it. It is missing if fewer than half are known.
    """
    steps = STEPS[resolution]
    shape = (len(quarters.dates), steps, QUARTERS // steps)
    seconds = quarters.seconds.reshape(shape).sum(axis=2)
    watt_seconds = quarters.watt_seconds.reshape(shape).sum(axis=2)
    present = 2 * seconds >= DAY_SECONDS // steps
    power = np.where(present, watt_seconds / np.maximum(seconds, 1), 0.0)
    labels = quarters.occupancy.reshape(shape)
    occupancy = majority((labels == 1).sum(axis=2), (labels != MISSING).sum(axis=2), shape[2])
    return Household(quarters.number, quarters.dates, power, present, occupancy)


def majority(
    occupied: NDArray[np.int64], known: NDArray[np.int64], whole: int
) -> NDArray[np.int64]:
    """One label of many.

    Args:
        occupied: How many parts are occupied.
        known: Of how many parts it is known whether they are.
        whole: How many parts there are.

    Returns:
        1 if at least half of the known parts are occupied, else 0; `MISSING` if fewer than half
        of all parts are known.
    """
    label = np.where(2 * occupied >= known, 1, 0)
    return np.where((known > 0) & (2 * known >= whole), label, MISSING).astype(np.int64)
