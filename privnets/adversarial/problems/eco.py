"""ECO: a household's power is released, and whether somebody is at home is the secret.

What the data at hand (household 2 in the summer of 2012, see `privnets.data.eco`) cannot show:
other households, other seasons, and small differences. There are 63 days with occupancy, of which
test has 12, so that intervals are wide; neighbouring blocks are alike; nights are known in June
only. arXiv 2310.18241 has 8,980 and 2,245 windows of six households, which are so many because
they overlap; here windows overlap within a split alone, and test windows not at all. With more
households as published the same code shows more.

Windows to learn from start at any hour, as midnights are few, and test windows at midnight. So
place in a window is no clock to whoever learns; the clock is part of side information, and the
attackers that are told it are the ones to look at.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problem import Examined, Problem, Releaser
from privnets.adversarial.problems import windows
from privnets.adversarial.problems.eco_statement import EcoStatement, above
from privnets.adversarial.problems.windows import SIDE_FEATURES, Windows
from privnets.adversarial.records import Exposure, Pool, Splits
from privnets.adversarial.statement import Statement
from privnets.adversarial.training.releasers import RecurrentReleaser
from privnets.data import DataError, eco
from privnets.data.eco import STEPS, Recordings, Resolution
from privnets.networks.architecture import Architecture
from privnets.networks.recurrent import Recurrent

PARTS = ("train", "attack", "validation", "test")
# Which part each of ten blocks in a row serves; the seed says where to start.
ROTATION = (0, 1, 3, 0, 1, 2, 3, 0, 1, 0)

_LAYERS = 3
_SHOWN_DAYS = 7


class Eco(Problem):
    """Daily windows of household power, hourly or by quarter-hours.

    Blocks of about a week serve the four parts in the pattern `ROTATION`, from a place in it that
    moves with the seed, so that the spread over replicates has the weather and habits of other
    weeks in it. Windows of train, attack and validation start at every full hour, those of test at
    midnight. All rotations have as many windows as the poorest of them. Power is standardised by
    the mean and standard deviation of the training blocks, which count as public.

    Weekday, month and the time of day are side information. The paper has the first two alone;
    but a window does not say at which hour it starts, and attackers that know are far stronger.
    """

    statement: ClassVar[Statement] = EcoStatement()

    def materials(
        self, configs: Sequence[AdversarialConfig], device: str
    ) -> tuple[Pool, list[Splits]]:
        """Windows for every rotation in the stack, each standardised by its own training blocks.

        Raises:
            DataError: If the recordings are absent or altered, or too few.
            ValueError: If `train_size` or `attack_size` is beyond the recordings.
        """
        cuttings = [_cutting(eco.read(c.resolution), _rotation(c), c.resolution) for c in configs]
        distinct = list(dict.fromkeys(cuttings))
        places = np.cumsum([0, *(len(cutting.windows) for cutting in distinct)])
        place = dict(zip(distinct, places.tolist(), strict=False))
        splits = [
            _splits(config, cutting, place[cutting])
            for config, cutting in zip(configs, cuttings, strict=True)
        ]
        return _pool(distinct, device), splits

    def releaser(self, config: AdversarialConfig) -> Releaser:
        """Four LSTM layers on power, occupancy, noise and, if asked for, side information."""
        side = SIDE_FEATURES if config.side_information else 0
        return RecurrentReleaser(self.statement.secret_classes, side, config.releaser_width)

    def adversary(self, config: AdversarialConfig) -> Architecture:
        """Three LSTM layers, causal."""
        return self._network(config.adversary_width, config.side_information)

    def utility(self, config: AdversarialConfig) -> Architecture | None:
        """None: what the release keeps is closeness."""
        return None

    def attacking_networks(self, config: AdversarialConfig) -> Mapping[str, Architecture]:
        """One like the adversary, and one of twice its width that also looks back from the end."""
        width = config.adversary_width
        return {
            f"{name}{suffix}": self._network(units, bool(suffix), both)
            for suffix in ("", "_side")
            for name, units, both in (("network", width, False), ("large_network", 2 * width, True))
        }

    def distance_scale(self, config: AdversarialConfig) -> tuple[float, float]:
        """Mean and standard deviation of power in the training blocks, W."""
        recordings = eco.read(config.resolution)
        cutting = _cutting(recordings, _rotation(config), config.resolution)
        return cutting.mean, cutting.std

    def examine(
        self,
        config: AdversarialConfig,
        parameters: Sequence[Tensor],
        original: Exposure,
        released: Exposure,
    ) -> Examined:
        """Up to a week of consecutive test days in W, before and after."""
        from safetensors.torch import save

        assert original.group is not None
        assert original.present is not None
        rows = torch.from_numpy(longest_run(original.group.cpu().numpy(), _SHOWN_DAYS))
        mean, std = self.distance_scale(config)
        present = original.present.cpu()[rows]
        days = windows.day_of(original.group.cpu()[rows].numpy())
        tensors = {
            name: torch.where(present, mean + std * exposure.z.cpu()[rows, :, 0], 0).float()
            for name, exposure in (("original", original), ("released", released))
        }
        tensors["secret"] = original.secret.cpu()[rows].long()
        tensors["present"] = present.to(torch.uint8)
        tensors["day"] = torch.from_numpy(days)
        content = save({name: tensor.contiguous() for name, tensor in tensors.items()})
        return Examined(artifacts={"week.safetensors": content})

    def _network(self, width: int, side: bool, bidirectional: bool = False) -> Architecture:
        inputs = 1 + (SIDE_FEATURES if side else 0)
        return Recurrent(inputs, width, _LAYERS, self.statement.secret_classes, bidirectional)


@dataclass(frozen=True, eq=False)
class Cutting:
    """Windows of one rotation, part after part.

    Attributes:
        windows: Of all parts.
        counts: How many windows each part has.
        mean: Of power in the training blocks, W.
        std: Its standard deviation.
    """

    windows: Windows
    counts: tuple[int, ...]
    mean: float
    std: float


def longest_run(group: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Rows of the first longest run of consecutive days of one household, at most `most`.

    Args:
        group: As `windows.origin` gives it; no day twice.
        most: Of the run's days.
    """
    order = np.argsort(group)
    breaks = np.flatnonzero(np.diff(group[order]) != 1) + 1
    runs = np.split(order, breaks)
    return max(runs, key=lambda run: min(len(run), most))[:most]


def _rotation(config: AdversarialConfig) -> int:
    return config.seed % len(ROTATION)


@lru_cache(maxsize=2 * len(ROTATION))
def _cutting(recordings: Recordings, rotation: int, resolution: Resolution) -> Cutting:
    parts = [
        _evenly(part, size)
        for part, size in zip(
            _parts(recordings, rotation, resolution), _least(recordings, resolution), strict=True
        )
    ]
    power = _training_power(recordings, rotation)
    counts = tuple(len(part) for part in parts)
    return Cutting(windows.joined(parts), counts, float(power.mean()), float(power.std()))


@lru_cache(maxsize=4)
def _least(recordings: Recordings, resolution: Resolution) -> tuple[int, ...]:
    """The smallest size of each part over all rotations, which every rotation is cut to."""
    counts = [
        [len(part) for part in _parts(recordings, rotation, resolution)]
        for rotation in range(len(ROTATION))
    ]
    least = tuple(np.min(counts, axis=0).tolist())
    if 0 in least:
        raise DataError(
            "ECO's days are too scattered to be split: some blocks of about a week hold no window "
            "of a day. Unpack more of the data set (see privnets.data.eco)."
        )
    return least


def _parts(recordings: Recordings, rotation: int, resolution: Resolution) -> list[Windows]:
    """Windows of the four parts: sliding by an hour, or for test from midnight to midnight."""
    steps = STEPS[resolution]
    found = []
    for part in range(len(PARTS)):
        stride = steps if PARTS[part] == "test" else steps // 24
        own = _own_blocks(recordings, rotation, part)
        found.append(windows.joined([windows.cut(recordings, block, stride) for block in own]))
    return found


def _own_blocks(recordings: Recordings, rotation: int, part: int) -> list[windows.Block]:
    return [
        block
        for place, block in enumerate(windows.blocks(recordings))
        if ROTATION[(place + rotation) % len(ROTATION)] == part
    ]


def _training_power(recordings: Recordings, rotation: int) -> NDArray[np.float64]:
    """Every step that was metered in the training blocks, once."""
    days = [
        (household, household.dates.astype("datetime64[D]").astype(np.int64))
        for household in recordings.households
    ]
    return np.concatenate(
        [
            household.power[chosen][household.present[chosen]]
            for block in _own_blocks(recordings, rotation, 0)
            for household, day in days
            for chosen in [(day >= block.first) & (day <= block.last)]
        ]
    )


def _evenly(part: Windows, size: int) -> Windows:
    return windows.taken(part, np.arange(size) * len(part) // max(size, 1))


def _pool(cuttings: Sequence[Cutting], device: str) -> Pool:
    together = windows.joined([cutting.windows for cutting in cuttings])
    steps = together.power.shape[1]
    scaled = [(c.windows.power - c.mean) / c.std for c in cuttings]
    x = np.where(together.present, np.concatenate(scaled), 0.0)
    return Pool(
        x=torch.tensor(x[..., None], dtype=torch.float32, device=device),
        secret=torch.tensor(together.occupancy, device=device),
        side=torch.tensor(windows.side_information(together.start, steps), device=device),
        present=torch.tensor(together.present, device=device),
        group=torch.tensor(windows.origin(together, steps), device=device),
    )


def _splits(config: AdversarialConfig, cutting: Cutting, place: int) -> Splits:
    ends = np.cumsum([0, *cutting.counts]) + place
    parts = [np.arange(first, last) for first, last in itertools.pairwise(ends)]
    for i, name in enumerate(("train_size", "attack_size")):
        if complaints := above(config, name, len(parts[i])):
            raise ValueError(f"{name} must be {complaints[0].expected}; got {complaints[0].value}.")
        size = getattr(config, name) or len(parts[i])
        parts[i] = parts[i][np.arange(size) * len(parts[i]) // size]
    return Splits(*(part.astype(np.int64) for part in parts))
