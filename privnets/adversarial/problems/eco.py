"""ECO: a household's power is released, and its occupancy is secret.

Limits of the data at hand (household 2 in summer 2012, see `privnets.data.eco`): one household,
one season, and wide intervals, as 12 of the 63 days with occupancy are in test. Neighbouring
blocks are alike, and nights are known in June only. arXiv 2310.18241 counts 8,980 and 2,245
windows of six households, because they overlap; here windows overlap within one split only, and
test windows not at all. The same code uses more households where their files are present.

Windows to learn from start at every hour, test windows at midnight. So the place in a window is
not a clock. The clock is part of side information, and attackers with side information matter.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from safetensors.numpy import save

from privnets import data
from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problem import (
    Problem,
    ProblemSpec,
    RecordArrays,
    ReleaseDetails,
    Splits,
    SplitSizes,
    subsample,
)
from privnets.adversarial.problems.windows import (
    SIDE_FEATURES,
    Block,
    Windows,
    concatenate_windows,
    cut_windows,
    day_groups,
    group_days,
    select_windows,
    side_information,
    week_blocks,
)
from privnets.data import DataError, eco
from privnets.data.eco import STEPS, Recordings, Resolution
from privnets.references.problems import SequenceSettings

if TYPE_CHECKING:
    from privnets.adversarial.records import Release

PARTS = ("train", "attack", "validation", "test")
ROTATION = (0, 1, 3, 0, 1, 2, 0, 3, 1, 0)
"""Part of each of ten consecutive blocks; the seed chooses where the pattern starts.

Test blocks are five apart, so two starts have all test days in common, or none.
"""

_TEST_SETS = 5
_SIZES = (460, 336, 100, 12)  # windows of household 2, aggregated, in either resolution
_EXAMPLE_DAYS = 7


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

    def split_sizes(self, config: AdversarialConfig) -> SplitSizes:
        """Numbers of windows of the aggregated household; published files give more."""
        train, attack, validation, test = _SIZES
        train = config.train_size or train
        return SplitSizes(train, attack, validation, test, (STEPS[_settings(config).resolution], 1))

    def size_limits(self) -> dict[str, int]:
        """Size of the aggregated household; unknown before reading for published files."""
        return {"train_size": _SIZES[0]} if eco.source() == "aggregated" else {}

    def fingerprint(self, config: AdversarialConfig) -> str:
        """Fingerprint of the recordings: their source and contents."""
        return data.fingerprint("eco")

    def load_records(
        self, configs: Sequence[AdversarialConfig]
    ) -> tuple[RecordArrays, list[Splits]]:
        """Windows of each rotation in the stack, standardised by its own training blocks.

        Raises:
            DataError: If the recordings are absent, altered or too few.
            ValueError: If `train_size` exceeds the recordings.
        """
        rotations = [_rotation_of(config) for config in configs]
        distinct = list(dict.fromkeys(rotations))
        starts = np.cumsum([0, *(len(rotation.windows) for rotation in distinct)])
        start = dict(zip(distinct, starts.tolist(), strict=False))
        pairs = zip(configs, rotations, strict=True)
        splits = [_split(config, rotation, start[rotation]) for config, rotation in pairs]
        return _record_arrays(distinct), splits

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
        arrays["day"] = group_days(group[rows])
        return ReleaseDetails(artifacts={"week.safetensors": save(arrays)})


@dataclass(frozen=True, eq=False)
class Rotation:
    """Windows of one start of the pattern `ROTATION`, part after part, and their counts.

    `mean` and `std` are those of power in the training blocks, W.
    """

    windows: Windows
    counts: tuple[int, ...]
    mean: float
    std: float


def _settings(config: AdversarialConfig) -> EcoSettings:
    assert isinstance(config.settings, EcoSettings)
    return config.settings


def longest_run(group: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Rows of the first longest run of at most `most` consecutive days of one household.

    `group` is from `day_groups`; no day occurs twice.
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
        windows = [cut_windows(recordings, block, stride) for block in blocks]
        parts.append(concatenate_windows(windows))
    return parts


def _rotation_of(config: AdversarialConfig) -> Rotation:
    recordings = eco.read(_settings(config).resolution)
    return _build_rotation(recordings, config.seed % len(ROTATION), _settings(config).resolution)


@lru_cache(maxsize=2 * len(ROTATION))
def _build_rotation(recordings: Recordings, start: int, resolution: Resolution) -> Rotation:
    sizes = _smallest_sizes(recordings, resolution)
    parts = [
        select_windows(part, subsample(np.arange(len(part)), size))
        for part, size in zip(part_windows(recordings, start, resolution), sizes, strict=True)
    ]
    power = _training_power(recordings, start)
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


def _training_power(recordings: Recordings, start: int) -> NDArray[np.float64]:
    """Power of every metered step in the training blocks, each once, W."""
    days = [(h, h.dates.astype("datetime64[D]").astype(np.int64)) for h in recordings.households]
    return np.concatenate(
        [
            household.power[inside][household.present[inside]]
            for block in _part_blocks(recordings, start, 0)
            for household, day in days
            for inside in [(day >= block.first) & (day <= block.last)]
        ]
    )


def _record_arrays(rotations: Sequence[Rotation]) -> RecordArrays:
    windows = concatenate_windows([rotation.windows for rotation in rotations])
    steps = windows.power.shape[1]
    scaled = [(r.windows.power - r.mean) / r.std for r in rotations]
    x = np.where(windows.present, np.concatenate(scaled), 0.0)
    return RecordArrays(
        x=x[..., None].astype(np.float32),
        secret=windows.occupancy,
        side=side_information(windows.start, steps),
        present=windows.present,
        group=day_groups(windows, steps),
    )


def _split(config: AdversarialConfig, rotation: Rotation, start: int) -> Splits:
    ends = np.cumsum([0, *rotation.counts]) + start
    parts = [np.arange(first, last).astype(np.int64) for first, last in itertools.pairwise(ends)]
    train, *others = parts
    if (size := config.train_size) is not None and size > len(train):
        raise ValueError(f"train_size must be at most {len(train)} with eco; got {size}.")
    return Splits(subsample(train, size), *others)
