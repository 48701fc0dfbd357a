"""DP-SGD for stacks of models: Poisson batches, clipped gradients, Gaussian noise.

Abadi et al., arXiv 1607.00133. In each step, every record is in the batch independently with the
same probability. The noise is added to the sum of clipped gradients, which is then divided by the
expected size of a batch: the actual size is secret. Any optimiser may follow; this one is Adam.
Shuffled batches are not offered, since the accountants do not hold for them.

Noise comes from a statistical generator in single precision, not from a cryptographic one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privnets.differential_privacy.per_example import ClippedGradients
from privnets.networks.training import FusedAdam, StackedAdam, StackedMomentum

_STEPS_AHEAD = 8


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
    size = x.shape[1] if members is None else members.shape[1]
    mean = 1 / (schedule.sample_rate * size)
    scales = (mean * schedule.noise_multiplier * schedule.clip).tolist()
    clip, decay = schedule.clip.to(x), 2 * schedule.weight_decay.to(x)
    has_decay = bool(decay.any())
    sources = [torch.Generator().manual_seed(int(r.integers(2**63))) for r in randoms]
    counts = [p[0].numel() for p in optimiser.parameters]
    noise = torch.empty(len(randoms), sum(counts))
    added = noise.to(x)  # shares its memory with `noise` on a CPU
    parts = [
        part.view_as(parameter)
        for part, parameter in zip(torch.split(added, counts, 1), optimiser.parameters, strict=True)
    ]
    for step, (index, counted) in enumerate(_batches(randoms, size, schedule)):
        index, counted = index.to(x.device), counted.to(x)
        if members is None:
            batch = _select(x, index), _select(y, index)
        else:
            records = members.gather(1, index)
            batch = _take(x, records), _take(y, records)
        sums = gradients(optimiser.parameters, *batch, clip, counted * mean)
        _draw_noise(noise, sources, scales)
        added.copy_(noise)
        torch._foreach_add_(sums, parts)
        if has_decay:
            for total, parameter in zip(sums, optimiser.parameters, strict=True):
                total.addcmul_(decay.view(-1, *[1] * (parameter.ndim - 1)), parameter)
        optimiser.step(sums, schedule.learning_rate_factor(step))
        after_step(step + 1)


def _batches(
    randoms: Sequence[np.random.Generator], size: int, schedule: PrivateSchedule
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields the batches of all steps; drawn a few steps ahead, which takes less time."""
    for first in range(0, schedule.steps, _STEPS_AHEAD):
        steps = range(first, min(first + _STEPS_AHEAD, schedule.steps))
        yield from [poisson_batches(randoms, size, schedule.sample_rate) for _ in steps]


def poisson_batches(
    randoms: Sequence[np.random.Generator], size: int, rate: float
) -> tuple[Tensor, Tensor]:
    """Draws a Poisson sample of `size` records for each model, padded to equal lengths.

    A uniform subset of binomial size is a Poisson sample.

    Returns:
        Indices, int64, shape [S, B], and 1 where they count, else 0, shape [S, B].
    """
    batches = [
        random.choice(size, random.binomial(size, rate), replace=False, shuffle=False)
        for random in randoms
    ]
    index = np.zeros((len(batches), max(1, *map(len, batches))), dtype=np.int64)
    counted = np.zeros(index.shape, dtype=np.float32)
    for row, mask, batch in zip(index, counted, batches, strict=True):
        row[: len(batch)], mask[: len(batch)] = batch, 1
    return torch.from_numpy(index), torch.from_numpy(counted)


def _select(values: Tensor, index: Tensor) -> Tensor:
    """Values [S, n, ...] at indices [S, B] of each model; faster than indexing on a CPU."""
    selected = values.new_empty(*index.shape, *values.shape[2:])
    for own, rows, target in zip(values, index, selected, strict=True):
        torch.index_select(own, 0, rows, out=target)
    return selected


def _take(values: Tensor, records: Tensor) -> Tensor:
    """Values [N, ...] of records [S, B]; on a CPU several times as fast as indexing."""
    return values.index_select(0, records.flatten()).view(*records.shape, *values.shape[1:])


def _draw_noise(noise: Tensor, sources: Sequence[torch.Generator], scales: Sequence[float]) -> None:
    """Fills noise [S, d] with normal numbers of each model's standard deviation."""
    for source, scale, row in zip(sources, scales, noise, strict=True):
        row.normal_(0, scale, generator=source)
