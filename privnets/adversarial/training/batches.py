"""Minibatches and release noise of a stack, drawn from each configuration's own seed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problem import Splits
from privnets.adversarial.records import Minibatch, Pool
from privnets.adversarial.training.releasers import Releaser
from privnets.randomness import generator

# Draws are made for a block of steps at a time, limited by the noise per member and by steps. Both
# limits follow from the structure, so the size of a stack changes no draw.
_MAX_BLOCK_NUMBERS = 2**21
_MAX_BLOCK_STEPS = 64
# Record values, over all members, that are read together; it changes no batch.
_MAX_READ_NUMBERS = 2**22


class BatchSource:
    """Minibatches of a stack's training splits, and releases of any records."""

    def __init__(
        self,
        configs: Sequence[AdversarialConfig],
        releaser: Releaser,
        pool: Pool,
        splits: Sequence[Splits],
    ) -> None:
        """Prepares to draw from the training split of every member.

        Without `side_information` the batches have no side information.
        """
        self._configs, self._train = list(configs), [split.train for split in splits]
        self._releaser = releaser
        self._pool = pool if configs[0].side_information else replace(pool, side=None)
        self._size = configs[0].batch_size
        self._per_step = configs[0].adversary_steps + 1
        self._noise_shape = releaser.noise_shape(pool.x.shape[1:])
        numbers = self._per_step * self._size * math.prod(self._noise_shape)
        self._block = max(1, min(_MAX_BLOCK_STEPS, _MAX_BLOCK_NUMBERS // max(numbers, 1)))
        self._noise_std = self._collect_noise_std()

    def game_batches(self, first: int, last: int) -> Iterator[list[Minibatch]]:
        """Batches of steps `first` to `last` - 1: the adversary's, then the releaser's."""
        for block in range(first // self._block, math.ceil(last / self._block)):
            start = block * self._block
            steps = slice(max(first - start, 0), min(last - start, self._block))
            index, noise = (draws[steps].flatten(0, 1) for draws in self._draw_block(block))
            batches = self._read_batches(index, noise)
            for _ in range(len(index) // self._per_step):
                yield list(itertools.islice(batches, self._per_step))

    def raw_batches(self, first: int, last: int) -> Iterator[Minibatch]:
        """One batch for each of the steps `first` to `last` - 1.

        It has noise only if the releaser learns to copy.
        """
        for block in range(first // _MAX_BLOCK_STEPS, math.ceil(last / _MAX_BLOCK_STEPS)):
            index = self._draw_records(f"raw batches {block}", (_MAX_BLOCK_STEPS, self._size))
            start = block * _MAX_BLOCK_STEPS
            index = index[max(first - start, 0) : min(last - start, _MAX_BLOCK_STEPS)]
            batches = self._read_batches(index, self._noise_std.new_zeros(len(index), 0))
            for step, batch in enumerate(batches, max(first, start)):
                copies = self._releaser.copies_first
                yield replace(batch, noise=self._copying_noise(step)) if copies else batch

    def keep(self, members: Sequence[int]) -> None:
        """Continues with these members only."""
        self._configs = [self._configs[i] for i in members]
        self._train = [self._train[i] for i in members]
        self._noise_std = self._collect_noise_std()

    def record_releaser(self, parameters: Sequence[Tensor], member: int) -> RecordReleaser:
        """One member's releaser, from the parameters of the whole stack [S, ...]."""
        own = [p[member : member + 1].detach().clone() for p in parameters]
        return RecordReleaser(self._releaser, own, self._configs[member], self._pool)

    def _draw_block(self, block: int) -> tuple[Tensor, Tensor]:
        """Records and noise of a block, shapes [steps, batches, S, B] and [..., *noise_shape]."""
        shape = (self._block, self._per_step, self._size)
        index = self._draw_records(f"batches {block}", shape)
        return index, self._draw_noise(f"noise {block}", shape)

    def _copying_noise(self, step: int) -> Tensor:
        """Noise of one step before the game, shape [S, B, *noise_shape]."""
        return self._draw_noise(f"copying noise {step}", (self._size,))

    def _draw_noise(self, stream: str, shape: tuple[int, ...]) -> Tensor:
        """Scaled noise of a shape [..., B], with members before B: [..., S, B, *noise_shape]."""
        sources = [_torch_generator(config.seed, stream) for config in self._configs]
        draws = [self._releaser.draw_noise(s, (*shape, *self._noise_shape)) for s in sources]
        noise = torch.stack(draws, len(shape) - 1).to(self._noise_std.device)
        return noise.mul_(self._noise_std.view(-1, *[1] * (1 + len(self._noise_shape))))

    def _draw_records(self, stream: str, shape: tuple[int, ...]) -> Tensor:
        """Indices into the pool, uniform over each member's training split, shape [..., S, B]."""
        draws = [
            train[generator(config.seed, stream).integers(0, len(train), shape)]
            for config, train in zip(self._configs, self._train, strict=True)
        ]
        return torch.from_numpy(np.stack(draws, -2)).to(self._noise_std.device)

    def _read_batches(self, index: Tensor, noise: Tensor) -> Iterator[Minibatch]:
        """Batches of records [N, S, B] and noise [N, S, B, ...], read several at a time."""
        numbers = math.prod(index.shape[1:]) * self._pool.x[0].numel()
        together = max(1, _MAX_READ_NUMBERS // max(numbers, 1))
        parts = zip(torch.split(index, together), torch.split(noise, together), strict=True)
        for part_index, part_noise in parts:
            yield from _split_batches(_select_batch(self._pool, part_index, part_noise))

    def _collect_noise_std(self) -> Tensor:
        stds = [config.noise_std for config in self._configs]
        return torch.tensor(stds, dtype=torch.float32, device=self._pool.x.device)


@dataclass(frozen=True, eq=False)
class RecordReleaser:
    """One member's finished releaser, and the records that it may release.

    Attributes:
        network: The releaser's network.
        parameters: Its parameters, each of shape [1, ...].
        config: The member's configuration.
        pool: All records, without side information if the releaser sees none.
    """

    network: Releaser
    parameters: Sequence[Tensor]
    config: AdversarialConfig
    pool: Pool

    @torch.no_grad()
    def release(
        self,
        records: NDArray[np.int64],
        stream: str,
        noise_device: torch.device | str = "cpu",
    ) -> Tensor:
        """Releases records by index [n] in the pool, shape [n, ...]; each stream has own noise.

        Noise drawn on the CPU is the same for a pool on any device; other noise is drawn faster.
        """
        device, parts = self.pool.x.device, []
        source = _torch_generator(self.config.seed, stream, noise_device)
        record_shape = self.pool.x.shape[1:]
        noise_shape = self.network.noise_shape(record_shape)
        together = self.network.released_together(record_shape)
        for first in range(0, len(records), together):
            part = torch.from_numpy(records[first : first + together])
            noise = self.network.draw_noise(source, (1, len(part), *noise_shape))
            noise = self.config.noise_std * noise.to(device)
            batch = _select_batch(self.pool, part[None].to(device), noise)
            parts.append(self.network.release(self.parameters, batch)[0])
        return torch.cat(parts)

    def is_random(self, records: NDArray[np.int64]) -> bool:
        """Whether two releases of the same records differ."""
        one, other = (self.release(records, f"randomness {i}") for i in range(2))
        return not torch.equal(one, other)


def _select_batch(pool: Pool, index: Tensor, noise: Tensor) -> Minibatch:
    columns = {n: v for n, v in vars(pool).items() if v is not None and n != "group"}
    selected = {name: _select_rows(values, index) for name, values in columns.items()}
    return Minibatch(**selected, noise=noise)


def _select_rows(values: Tensor, index: Tensor) -> Tensor:
    """Equal to `values[index]`, which is slower on a CPU."""
    return values.index_select(0, index.flatten()).view(*index.shape, *values.shape[1:])


def _split_batches(batches: Minibatch) -> Iterator[Minibatch]:
    """Batches along a leading dimension, one by one."""
    parts = {name: part for name, part in vars(batches).items() if part is not None}
    for each in zip(*(part.unbind() for part in parts.values()), strict=True):
        yield replace(batches, **dict(zip(parts, each, strict=True)))


def _torch_generator(seed: int, stream: str, device: torch.device | str = "cpu") -> torch.Generator:
    source = torch.Generator(device)
    source.manual_seed(int(generator(seed, stream).integers(2**62)))
    return source
