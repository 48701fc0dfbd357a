"""Windows of a day cut from recordings, and the blocks of days that keep splits apart in time.

Days are put in blocks of about a week, in their order. No window leaves its block, so that splits
made of whole blocks share no step, however much the windows of one block overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privnets.data import DataError
from privnets.data.eco import MISSING, Household, Recordings

LEAST_BLOCKS, BLOCK_DAYS, LEAST_DAYS = 10, 7, 20

# Columns of side information: weekday from Monday and month, one-hot, then the clock.
_WEEKDAYS, _MONTHS, _HARMONICS = 7, 12, 2
SIDE_FEATURES: Final = _WEEKDAYS + _MONTHS + 2 * _HARMONICS

_HOUSEHOLD = 10**6


@dataclass(frozen=True, eq=False)
class Windows:
    """Some windows of T steps.

    Attributes:
        power: W, 0 where absent, float64, shape [n, T].
        present: bool, shape [n, T].
        occupancy: `MISSING` where absent or unknown, int64, shape [n, T].
        start: First step, counted from midnight of 1 January 1970 on the wall clock, shape [n].
        household: Its number, shape [n].
    """

    power: NDArray[np.float64]
    present: NDArray[np.bool_]
    occupancy: NDArray[np.int64]
    start: NDArray[np.int64]
    household: NDArray[np.int64]

    def __len__(self) -> int:
        """How many windows there are."""
        return len(self.start)


@dataclass(frozen=True)
class Block:
    """Days from `first` to `last`, both included, as numbers from 1 January 1970."""

    first: int
    last: int


def blocks(recordings: Recordings) -> list[Block]:
    """Blocks of about a week of days at least half known, at least ten of them.

    Every household has the same blocks, so that no day serves two splits.

    Raises:
        DataError: If there are fewer than 20 such days.
    """
    found = [_days(h)[_half_known(_known(h))] for h in recordings.households]
    days = np.unique(np.concatenate(found))
    if len(days) < LEAST_DAYS:
        raise DataError(
            f"ECO needs at least {LEAST_DAYS} days of which half has power and occupancy; there "
            f"are {len(days)}. Unpack more of the data set (see privnets.data.eco)."
        )
    count = max(LEAST_BLOCKS, round(len(days) / BLOCK_DAYS))
    return [Block(int(part[0]), int(part[-1])) for part in np.array_split(days, count)]


def cut(recordings: Recordings, block: Block, stride: int) -> Windows:
    """The windows of a day that lie in a block and start at every `stride`-th step of it.

    A window is kept if at least half of its steps are present with known occupancy.
    """
    parts = [_of_household(h, block, stride) for h in recordings.households]
    return joined([_informative(part) for part in parts])


def joined(parts: list[Windows]) -> Windows:
    """Windows one after the other."""
    return Windows(
        *(np.concatenate(columns) for columns in zip(*map(_columns, parts), strict=True))
    )


def taken(windows: Windows, rows: NDArray[np.int64]) -> Windows:
    """Some of the windows."""
    return Windows(*(column[rows] for column in _columns(windows)))


def side_information(start: NDArray[np.int64], steps: int) -> NDArray[np.float32]:
    """What everybody knows of each step: weekday, month and the time of day.

    The time of day is there because windows may start at any hour: without it an attacker would
    not know what every attacker with a clock does.

    Args:
        start: As in `Windows`, shape [n].
        steps: T.

    Returns:
        Weekday from Monday [7] and month [12], one-hot, and sine and cosine of one and of two
        turns a day [4]; shape [n, T, 23].
    """
    step = start[:, None] + np.arange(steps)
    days = (step // steps).astype("datetime64[D]")
    weekday = (step // steps + 3) % _WEEKDAYS  # 1 January 1970 was a Thursday
    month = days.astype("datetime64[M]").astype(np.int64) % _MONTHS
    turns = [2 * np.pi * k * (step % steps) / steps for k in range(1, _HARMONICS + 1)]
    clock = np.stack([f(turn) for turn in turns for f in (np.sin, np.cos)], axis=2)
    hot = [np.eye(_WEEKDAYS)[weekday], np.eye(_MONTHS)[month]]
    return np.concatenate([*hot, clock], axis=2).astype(np.float32)


def origin(windows: Windows, steps: int) -> NDArray[np.int64]:
    """What windows share that start on one day of one household, shape [n]."""
    return windows.household * _HOUSEHOLD + windows.start // steps


def day_of(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """The day in what `origin` gives, counted from 1 January 1970."""
    return group % _HOUSEHOLD


def _of_household(household: Household, block: Block, stride: int) -> Windows:
    """All of a household's windows, on a calendar without gaps."""
    steps = household.power.shape[1]
    length = (block.last - block.first + 1) * steps
    days = _days(household)
    rows = np.flatnonzero((days >= block.first) & (days <= block.last))
    at = ((days[rows] - block.first)[:, None] * steps + np.arange(steps)).ravel()
    power, present = np.zeros(length), np.zeros(length, dtype=bool)
    occupancy = np.full(length, MISSING, dtype=np.int64)
    power[at], present[at] = household.power[rows].ravel(), household.present[rows].ravel()
    occupancy[at] = _known(household)[rows].ravel()
    first = np.arange(0, length - steps + 1, stride)
    windowed = first[:, None] + np.arange(steps)
    return Windows(
        power[windowed],
        present[windowed],
        occupancy[windowed],
        block.first * steps + first,
        np.full(len(first), household.number),
    )


def _informative(windows: Windows) -> Windows:
    return taken(windows, np.flatnonzero(_half_known(windows.occupancy)))


def _known(household: Household) -> NDArray[np.int64]:
    """Occupancy, missing also where power is."""
    return np.where(household.present, household.occupancy, MISSING)


def _half_known(occupancy: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows know at least half of their steps."""
    enough: NDArray[np.bool_] = (occupancy != MISSING).mean(axis=1) >= 0.5
    return enough


def _days(household: Household) -> NDArray[np.int64]:
    return household.dates.astype("datetime64[D]").astype(np.int64)


def _columns(windows: Windows) -> tuple[NDArray[Any], ...]:
    return tuple(vars(windows).values())
