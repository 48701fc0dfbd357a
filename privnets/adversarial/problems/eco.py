"""ECO: a household's power is released, and its occupancy is secret.

Limits of the data at hand (household 2 in summer 2012, see `privnets.data.eco`): one household,
one season, and wide intervals, as 12 of the 63 days with occupancy are in test. Neighbouring
blocks are alike, and nights are known in June only. arXiv 2310.18241 counts 8,980 and 2,245
windows of six households, because they overlap; here windows overlap within one split only, and
test windows not at all. The same code uses more households where their files are present.

Consecutive days form blocks of about a week, and a window of a day lies within one block. So splits
made of whole blocks share no step. Windows to learn from start at every hour, test windows at
midnight. So the place in a window is not a clock. The clock is part of side information, and
attackers with side information matter.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from safetensors.numpy import save

from privnets import data
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.evidence import Release
from privnets.adversarial.problem import (
    Problem,
    ProblemSpec,
    RecordArrays,
    ReleaseDetails,
    Splits,
    SplitSizes,
    subsample,
)
from privnets.data import DataError, eco
from privnets.data.eco import STEPS, Recordings, Resolution
from privnets.data.eco_files import MISSING
from privnets.references.problems import SequenceSettings

PARTS = ("train", "attack", "validation", "test")
ROTATION = (0, 1, 3, 0, 1, 2, 0, 3, 1, 0)
"""Part of each of ten consecutive blocks; the seed chooses where the pattern starts.

Test blocks are five apart, so two starts have all test days in common, or none.
"""

# Columns of side information: weekday from Monday and month, one-hot, then the clock.
_WEEKDAYS, _MONTHS, _HARMONICS = 7, 12, 2
SIDE_FEATURES: Final = _WEEKDAYS + _MONTHS + 2 * _HARMONICS

_TEST_SETS = 5
_SIZES = (460, 336, 100, 12)  # windows of household 2, aggregated, in either resolution
_EXAMPLE_DAYS = 7
_MIN_BLOCKS, _BLOCK_DAYS, _MIN_DAYS = 10, 7, 20
_HOUSEHOLD_STRIDE = 10**6  # between the groups of two households


class EcoSettings(SequenceSettings):
    """Settings of ECO."""

    resolution: Resolution = Field("hour", description="time step")
    side_information: bool = Field(
        True, description="whether releaser and adversary see weekday, month and time"
    )

    @property
    def shows_side_information(self) -> bool:
        """The setting `side_information`."""
        return self.side_information


class EcoProblem(Problem):
    """Daily windows of household power, by hours or quarter-hours.

    Blocks of about a week serve the four parts in the pattern `ROTATION`, which starts at a place
    given by the seed. So replicates differ in weather and habits. Seeds
    that differ by a multiple of five share their test days, and count as one cluster. Windows of
    train, attack and validation start at every full hour, those of test at midnight. All rotations
    have as many windows as the smallest. Power is standardised by mean and standard deviation of
    the training blocks, which count as public.

    Side information is weekday, month and time of day. The paper has weekday and month only, but a
    window may start at any hour, and attackers that know the hour are far stronger.
    """

    spec = ProblemSpec(
        name="eco",
        secret_classes=2,
        network="recurrent",
        side_features=SIDE_FEATURES,
        attacker_width=32,
        releasers=("recurrent",),
        defaults={
            "releaser": "recurrent",
            "adversary_width": 32,
            "batch_size": 64,
        },
    )

    Settings = EcoSettings

    def whole_sizes(self, config: AdversarialConfig) -> SplitSizes:
        """Numbers of windows of the aggregated household; published files give more."""
        return SplitSizes(*_SIZES, (STEPS[_settings(config).resolution], 1))

    def largest_train_size(self, config: AdversarialConfig) -> int | None:
        """Size of the aggregated household; unknown before reading for published files."""
        return _SIZES[0] if eco.source() == "aggregated" else None

    def fingerprint(self, config: AdversarialConfig) -> str:
        """Fingerprint of the recordings: their source and contents."""
        return data.fingerprint("eco")

    def load_records(
        self, configs: Sequence[AdversarialConfig]
    ) -> tuple[RecordArrays, list[Splits]]:
        """Windows of each rotation in the stack, standardised by its own training blocks.

        Raises:
            DataError: If the recordings are absent, altered or too few.
        """
        rotations = [_rotation_of(config) for config in configs]
        distinct = list(dict.fromkeys(rotations))
        windows = concatenate_windows([rotation.windows for rotation in distinct])
        steps = windows.power.shape[1]
        scaled = [(r.windows.power - r.mean) / r.std for r in distinct]
        x = np.where(windows.present, np.concatenate(scaled), 0.0)
        records = RecordArrays(
            x=x[..., None].astype(np.float32),
            secret=windows.occupancy,
            side=side_information(windows.start, steps),
            present=windows.present,
            group=windows.days,
        )
        starts = np.cumsum([0, *(len(rotation.windows) for rotation in distinct)])
        splits = []
        for rotation in rotations:
            ends = np.cumsum([0, *rotation.counts]) + starts[distinct.index(rotation)]
            parts = (np.arange(a, b, dtype=np.int64) for a, b in itertools.pairwise(ends))
            splits.append(Splits(*parts))
        return records, splits

    def original_units(self, config: AdversarialConfig) -> tuple[float, float]:
        """Mean and standard deviation of power in the training blocks, W."""
        rotation = _rotation_of(config)
        return rotation.mean, rotation.std

    def test_set(self, config: AdversarialConfig) -> tuple[str, float]:
        """The test days, which seeds share if they differ by a multiple of five."""
        return f"{self.name} days {config.seed % _TEST_SETS}", 1.0

    def release_details(self, release: Release) -> ReleaseDetails:
        """Shows up to a week of consecutive test days, before and after release, in W."""
        original, released = release.original.test, release.released.test
        assert original.group is not None
        assert original.present is not None
        group = original.group.cpu().numpy()
        rows = longest_run(group, _EXAMPLE_DAYS)
        mean, std = self.original_units(release.config)
        present = original.present.cpu().numpy()[rows]
        arrays = {
            name: np.where(present, mean + std * exposure.z.cpu().numpy()[rows, :, 0], 0)
            for name, exposure in (("original", original), ("released", released))
        }
        arrays = {name: watts.astype(np.float32) for name, watts in arrays.items()}
        arrays["secret"] = original.secret.cpu().numpy()[rows]
        arrays["present"] = present.astype(np.uint8)
        arrays["day"] = group[rows] % _HOUSEHOLD_STRIDE  # since 1 January 1970
        return ReleaseDetails(artifacts={"week.safetensors": save(arrays)})


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

    @property
    def days(self) -> NDArray[np.int64]:
        """A number shared by the windows that start on one day of one household, shape [n]."""
        days: NDArray[np.int64] = self.start // self.power.shape[1]
        return self.household * _HOUSEHOLD_STRIDE + days

    def select(self, rows: NDArray[np.int64]) -> Windows:
        """The windows at some rows."""
        return Windows(*(column[rows] for column in vars(self).values()))


class Block(NamedTuple):
    """Days from `first` to `last`, both included, as days since 1 January 1970."""

    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Rotation:
    """Windows of one start of the pattern `ROTATION`, part after part, and their counts.

    `mean` and `std` are those of power in the training blocks, W.
    """

    windows: Windows
    counts: tuple[int, ...]
    mean: float
    std: float


def concatenate_windows(parts: Sequence[Windows]) -> Windows:
    """Windows of all parts, one part after the other."""
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return Windows(*map(np.concatenate, columns))


def week_blocks(recordings: Recordings) -> list[Block]:
    """Splits the days of which at least half is known into at least ten blocks of about a week.

    All households share the blocks, so that no day serves two splits.

    Raises:
        DataError: If there are fewer than 20 such days.
    """
    known = [h.days[_is_half_known(h.known_occupancy)] for h in recordings.households]
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

    The calendar of a household has no gaps. A window is kept if occupancy is known at half of its
    steps or more.
    """
    kept = []
    for household in recordings.households:
        steps = household.power.shape[1]
        length = (block.last - block.first + 1) * steps
        rows = np.flatnonzero((household.days >= block.first) & (household.days <= block.last))
        place = ((household.days[rows] - block.first)[:, None] * steps + np.arange(steps)).ravel()
        power, present = np.zeros(length), np.zeros(length, dtype=bool)
        occupancy = np.full(length, MISSING, dtype=np.int64)
        power[place] = household.power[rows].ravel()
        present[place] = household.present[rows].ravel()
        occupancy[place] = household.known_occupancy[rows].ravel()
        first = np.arange(0, length - steps + 1, stride)
        of_window = first[:, None] + np.arange(steps)
        start, number = block.first * steps + first, np.full(len(first), household.number)
        columns = (power[of_window], present[of_window], occupancy[of_window])
        windows = Windows(*columns, start, number)
        kept.append(windows.select(np.flatnonzero(_is_half_known(windows.occupancy))))
    return concatenate_windows(kept)


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


def longest_run(group: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Rows of the first longest run of at most `most` consecutive days of one household.

    `group` is that of `Windows.days`; no day occurs twice.
    """
    order = np.argsort(group)
    breaks = np.flatnonzero(np.diff(group[order]) != 1) + 1
    runs = np.split(order, breaks)
    return max(runs, key=lambda run: min(len(run), most))[:most]


def part_windows(recordings: Recordings, start: int, resolution: Resolution) -> list[Windows]:
    """Windows of the four parts for one start of `ROTATION`; test windows do not overlap."""
    steps = STEPS[resolution]
    parts = []
    for part, name in enumerate(PARTS):
        stride = steps if name == "test" else steps // 24
        blocks = _part_blocks(recordings, start, part)
        parts.append(concatenate_windows([cut_windows(recordings, b, stride) for b in blocks]))
    return parts


def _settings(config: AdversarialConfig) -> EcoSettings:
    assert isinstance(config.settings, EcoSettings)
    return config.settings


def _rotation_of(config: AdversarialConfig) -> Rotation:
    resolution = _settings(config).resolution
    return _build_rotation(eco.read(resolution), config.seed % len(ROTATION), resolution)


@lru_cache(maxsize=2 * len(ROTATION))
def _build_rotation(recordings: Recordings, start: int, resolution: Resolution) -> Rotation:
    sizes = _smallest_sizes(recordings, resolution)
    parts = [
        part.select(subsample(np.arange(len(part)), size))
        for part, size in zip(part_windows(recordings, start, resolution), sizes, strict=True)
    ]
    power = np.concatenate(  # of every metered step in the training blocks, each once
        [
            household.power[inside][household.present[inside]]
            for block in _part_blocks(recordings, start, 0)
            for household in recordings.households
            for inside in [(household.days >= block.first) & (household.days <= block.last)]
        ]
    )
    counts = tuple(len(part) for part in parts)
    return Rotation(concatenate_windows(parts), counts, float(power.mean()), float(power.std()))


@lru_cache(maxsize=4)
def _smallest_sizes(recordings: Recordings, resolution: Resolution) -> tuple[int, ...]:
    """Smallest size of each part over all rotations; every rotation is reduced to it."""
    counts = [
        [len(part) for part in part_windows(recordings, start, resolution)]
        for start in range(len(ROTATION))
    ]
    smallest = tuple(np.min(counts, axis=0).tolist())
    if 0 in smallest:
        raise DataError(
            "ECO's days are too scattered to be split: some blocks of about a week hold no window "
            "of a day. Unpack more of the data set (see privnets.data.eco)."
        )
    return smallest


def _part_blocks(recordings: Recordings, start: int, part: int) -> list[Block]:
    return [
        block
        for place, block in enumerate(week_blocks(recordings))
        if ROTATION[(place + start) % len(ROTATION)] == part
    ]


def _is_half_known(occupancy: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Rows that know occupancy at half of their steps or more."""
    enough: NDArray[np.bool_] = (occupancy != MISSING).mean(axis=1) >= 0.5
    return enough
