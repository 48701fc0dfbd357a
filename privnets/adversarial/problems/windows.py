"""Daily windows of household recordings, and blocks of days that keep splits apart in time.

Consecutive days form blocks of about a week. A window lies within one block. So splits made of
whole blocks share no step, however much the windows of one block overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privnets.data import DataError
from privnets.data.eco import Household, Recordings
from privnets.data.eco_files import MISSING

_MIN_BLOCKS, _BLOCK_DAYS, _MIN_DAYS = 10, 7, 20

# Columns of side information: weekday from Monday and month, one-hot, then the clock.
_WEEKDAYS, _MONTHS, _HARMONICS = 7, 12, 2
SIDE_FEATURES: Final = _WEEKDAYS + _MONTHS + 2 * _HARMONICS

_HOUSEHOLD_STRIDE = 10**6  # between the groups of two households


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of T steps.

    Attributes:
        power: W, 0 where absent, float64, shape [n, T].
        present: bool, shape [n, T].
        occupancy: `MISSING` where absent or unknown, int64, shape [n, T].
        start: First step, counted from midnight of 1 January 1970 on the wall clock, shape [n].
        household: Household number, shape [n].
    """

    power: NDArray[np.float64]
    present: NDArray[np.bool_]
    occupancy: NDArray[np.int64]
    start: NDArray[np.int64]
    household: NDArray[np.int64]

    def __len__(self) -> int:
        """Number of windows."""
        return len(self.start)


@dataclass(frozen=True)
class Block:
    """Days from `first` to `last`, both included, as days since 1 January 1970."""

    first: int
    last: int


def week_blocks(recordings: Recordings) -> list[Block]:
    """Splits the days of which at least half is known into at least ten blocks of about a week.

    All households share the blocks, so that no day serves two splits.

    Raises:
        DataError: If there are fewer than 20 such days.
    """
    known = [_day_numbers(h)[_is_half_known(_known_occupancy(h))] for h in recordings.households]
    days = np.unique(np.concatenate(known))
    if len(days) < _MIN_DAYS:
        raise DataError(
            f"ECO needs at least {_MIN_DAYS} days of which half has power and occupancy; there "
            f"are {len(days)}. Unpack more of the data set (see privnets.data.eco)."
        )
    count = max(_MIN_BLOCKS, round(len(days) / _BLOCK_DAYS))
    return [Block(int(part[0]), int(part[-1])) for part in np.array_split(days, count)]


def cut_windows(recordings: Recordings, block: Block, stride: int) -> Windows:
    """Cuts windows of a day that start at every `stride`-th step of a block.

    A window is kept if occupancy is known at half of its steps or more.
    """
    parts = [_household_windows(h, block, stride) for h in recordings.households]
    kept = [select_windows(p, np.flatnonzero(_is_half_known(p.occupancy))) for p in parts]
    return concatenate_windows(kept)


def concatenate_windows(parts: Sequence[Windows]) -> Windows:
    """Windows of all parts, one part after the other."""
    columns = zip(*map(_columns, parts), strict=True)
    return Windows(*map(np.concatenate, columns))


def select_windows(windows: Windows, rows: NDArray[np.int64]) -> Windows:
    """The windows at some rows."""
    return Windows(*(column[rows] for column in _columns(windows)))


def side_information(start: NDArray[np.int64], steps: int) -> NDArray[np.float32]:
    """Public facts about each step: weekday, month and time of day.

    Time of day is included because windows may start at any hour; any attacker has a clock. With T
    steps per day, windows start as in `Windows`.

    Returns:
        Weekday from Monday [7] and month [12], one-hot, then sine and cosine of one and of two
        turns per day [4]; shape [n, T, 23].
    """
    step = start[:, None] + np.arange(steps)
    days = (step // steps).astype("datetime64[D]")
    weekday = (step // steps + 3) % _WEEKDAYS  # 1 January 1970 was a Thursday
    month = days.astype("datetime64[M]").astype(np.int64) % _MONTHS
    turns = [2 * np.pi * k * (step % steps) / steps for k in range(1, _HARMONICS + 1)]
    clock = np.stack([f(turn) for turn in turns for f in (np.sin, np.cos)], axis=2)
    one_hot = [np.eye(_WEEKDAYS)[weekday], np.eye(_MONTHS)[month]]
    return np.concatenate([*one_hot, clock], axis=2).astype(np.float32)


def day_groups(windows: Windows, steps: int) -> NDArray[np.int64]:
    """A number shared by the windows that start on one day of one household, shape [n]."""
    return windows.household * _HOUSEHOLD_STRIDE + windows.start // steps


def group_days(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Day of each group of `day_groups`, as days since 1 January 1970."""
    return group % _HOUSEHOLD_STRIDE


def _household_windows(household: Household, block: Block, stride: int) -> Windows:
    """All windows of a household in a block, on a calendar without gaps."""
    steps = household.power.shape[1]
    length = (block.last - block.first + 1) * steps
    days = _day_numbers(household)
    rows = np.flatnonzero((days >= block.first) & (days <= block.last))
    place = ((days[rows] - block.first)[:, None] * steps + np.arange(steps)).ravel()
    power, present = np.zeros(length), np.zeros(length, dtype=bool)
    occupancy = np.full(length, MISSING, dtype=np.int64)
    power[place], present[place] = household.power[rows].ravel(), household.present[rows].ravel()
    occupancy[place] = _known_occupancy(household)[rows].ravel()
    first = np.arange(0, length - steps + 1, stride)
    window_steps = first[:, None] + np.arange(steps)
    return Windows(
        power[window_steps],
        present[window_steps],
        occupancy[window_steps],
        block.first * steps + first,
        np.full(len(first), household.number),
    )


def _known_occupancy(household: Household) -> NDArray[np.int64]:
    """Occupancy, `MISSING` also where power is absent."""
    return np.where(household.present, household.occupancy, MISSING)


def _is_half_known(occupancy: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Rows that know occupancy at half of their steps or more."""
    enough: NDArray[np.bool_] = (occupancy != MISSING).mean(axis=1) >= 0.5
    return enough


def _day_numbers(household: Household) -> NDArray[np.int64]:
    return household.dates.astype("datetime64[D]").astype(np.int64)


def _columns(windows: Windows) -> tuple[NDArray[Any], ...]:
    return tuple(vars(windows).values())
