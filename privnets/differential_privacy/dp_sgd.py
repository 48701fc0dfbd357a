"""DP-SGD for stacks of models: Poisson batches, clipped gradients, Gaussian noise.

Abadi et al., arXiv 1607.00133. In each step, every record is in the batch independently with the
same probability. The noise is added to the sum of clipped gradients, which is then divided by the
expected size of a batch: the actual size is secret. Any optimiser may follow; this one is Adam.
Shuffled batches are not offered, since the accountants do not hold for them.

Noise comes from a statistical generator in single precision, not from a cryptographic one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privnets.differential_privacy.per_example import ClippedGradients
from privnets.networks.capture import StepRunner
from privnets.networks.streams import RandomStreams, standard_normal
from privnets.networks.training import FusedAdam, StackedAdam, StackedMomentum, rate_scales
from privnets.randomness import stream_key

_STEPS_AHEAD, _NUMBERS_AHEAD = 8, 2**26  # the latter of noise, for memory


@dataclass(frozen=True)
class PrivateSchedule:
    """Settings of DP-SGD for a stack of S models.

    Attributes:
        steps: Number of batches, at least 1.
        sample_rate: Probability of a record to be in a batch, in (0, 1].
        clip: Largest norm of an example's gradient, above 0, shape [S].
        noise_multiplier: Standard deviation of the noise in units of `clip`, at least 0, shape [S].
        weight_decay: Weight lambda of the squared norm of the parameters, shape [S].
        learning_rate_factor: Factor on the learning rate in each step, from its number.
    """

    steps: int
    sample_rate: float
    clip: Tensor
    noise_multiplier: Tensor
    weight_decay: Tensor
    learning_rate_factor: Callable[[int], float] = lambda step: 1.0

    def __post_init__(self) -> None:
        """Raises ValueError for a setting out of range."""
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1; got {self.steps}.")
        if not 0 < self.sample_rate <= 1:
            raise ValueError(f"sample_rate must be above 0 and at most 1; got {self.sample_rate}.")
        if not bool((self.clip > 0).all()):
            raise ValueError(f"clip must be above 0; got {self.clip.tolist()}.")
        if not bool((self.noise_multiplier >= 0).all()):
            given = self.noise_multiplier.tolist()
            raise ValueError(f"noise_multiplier must be at least 0; got {given}.")


def train_privately(
    optimiser: StackedAdam | FusedAdam | StackedMomentum,
    gradients: ClippedGradients,
    x: Tensor,
    y: Tensor,
    schedule: PrivateSchedule,
    randoms: Sequence[np.random.Generator],
    members: Tensor | None = None,
    after_step: Callable[[int], None] = lambda steps: None,
) -> None:
    """Trains the optimiser's parameters in place; each model draws from its own generator.

    Args:
        x: Records of each model's training set, shape [S, n, ...]; all records [N, ...] with
            `members`.
        y: Targets, shape [S, n]; [N] with `members`.
        randoms: Generators of batches and noise, S of them.
        members: Indices of each model's training set, int64, shape [S, n].
        after_step: Called with the number of steps taken.
    """
    device = x.device
    if members is None:
        members = torch.arange(x.shape[0] * x.shape[1], device=device).view(x.shape[:2])
        x, y = x.flatten(0, 1), y.flatten(0, 1)
    mean = 1 / (schedule.sample_rate * members.shape[1])
    clip, decay = schedule.clip.to(x), 2 * schedule.weight_decay.to(x)
    has_decay = bool(decay.any())
    shapes = [p.shape for p in optimiser.parameters]
    counts = [shape[1:].numel() for shape in shapes]
    own = members

    def take_step(inputs: Sequence[Tensor]) -> dict[str, Tensor]:
        index, counted, noise, scale = inputs
        records = own.gather(1, index)
        batch = _take(x, records), _take(y, records)
        sums = gradients(optimiser.parameters, *batch, clip, counted * mean)
        parts = torch.split(noise, counts, 1)
        torch._foreach_add_(sums, [p.view(s) for p, s in zip(parts, shapes, strict=True)])
        if has_decay:
            for total, parameter in zip(sums, optimiser.parameters, strict=True):
                total.addcmul_(decay.view(-1, *[1] * (parameter.ndim - 1)), parameter)
        optimiser.step(sums, scale)
        return {}

    seeds = [int(random.integers(2**63)) for random in randoms]
    deviations = mean * schedule.noise_multiplier * schedule.clip
    noises = _noises(seeds, deviations.to(device), sum(counts), schedule.steps)
    batches = _batches(randoms, members.shape[1], schedule, device)
    factors = [schedule.learning_rate_factor(step) for step in range(schedule.steps)]
    runner = StepRunner(device)
    inputs = zip(batches, noises, rate_scales(factors, device), strict=True)
    for step, (batch, noise, scale) in enumerate(inputs):
        runner.run(take_step, [*(part.to(device) for part in batch), noise.to(x), scale])
        after_step(step + 1)


def _batches(
    randoms: Sequence[np.random.Generator],
    size: int,
    schedule: PrivateSchedule,
    device: torch.device,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields the batches of all steps; drawn a few steps ahead, which takes less time.

    On other devices than a CPU nearly all have the same length, so that a graph computes them.
    """
    mean = size * schedule.sample_rate
    least = 1 if device.type == "cpu" else min(size, math.ceil(mean + 5 * math.sqrt(mean) + 4))
    for first in range(0, schedule.steps, _STEPS_AHEAD):
        steps = range(first, min(first + _STEPS_AHEAD, schedule.steps))
        yield from [poisson_batches(randoms, size, schedule.sample_rate, least) for _ in steps]


def _noises(seeds: Sequence[int], deviations: Tensor, count: int, steps: int) -> Iterator[Tensor]:
    """Yields normal numbers [S, count] of each model's standard deviation, for each step.

    A CPU and other devices draw different numbers: those of a CPU are slow to draw and to copy.
    """
    if deviations.device.type == "cpu":
        sources = [torch.Generator().manual_seed(seed) for seed in seeds]
        noise = torch.empty(len(seeds), count)
        for _ in range(steps):
            for source, scale, row in zip(sources, deviations.tolist(), noise, strict=True):
                row.normal_(0, scale, generator=source)
            yield noise
        return
    keys = [stream_key(seed, "noise") for seed in seeds]
    streams = RandomStreams(keys, count + count % 2, deviations.device)
    together = min(_STEPS_AHEAD, max(1, _NUMBERS_AHEAD // (len(seeds) * count)))
    for first in range(0, steps, together):
        words = streams.rows(first, min(first + together, steps))[..., : count + count % 2]
        yield from standard_normal(words).mul_(deviations[:, None])[..., :count]


def poisson_batches(
    randoms: Sequence[np.random.Generator], size: int, rate: float, least: int = 1
) -> tuple[Tensor, Tensor]:
    """Draws a Poisson sample of `size` records for each model, padded to an equal length.

    That is the longest sample's, and at least `least`.

    A uniform subset of binomial size is a Poisson sample.

    Returns:
        Indices, int64, shape [S, B], and 1 where they count, else 0, shape [S, B].
    """
    batches = [
        random.choice(size, random.binomial(size, rate), replace=False, shuffle=False)
        for random in randoms
    ]
    index = np.zeros((len(batches), max(least, *map(len, batches))), dtype=np.int64)
    counted = np.zeros(index.shape, dtype=np.float32)
    for row, mask, batch in zip(index, counted, batches, strict=True):
        row[: len(batch)], mask[: len(batch)] = batch, 1
    return torch.from_numpy(index), torch.from_numpy(counted)


def _take(values: Tensor, records: Tensor) -> Tensor:
    """Values [N, ...] of records [S, B]; on a CPU several times as fast as indexing."""
    return values.index_select(0, records.flatten()).view(*records.shape, *values.shape[1:])
