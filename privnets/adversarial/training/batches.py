"""Minibatches and noise, drawn from each configuration's own seed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.problem import Releaser
from privnets.adversarial.records import Pool, Splits
from privnets.randomness import generator

# Draws are made for a run of steps at a time; a run holds at most so many numbers of noise and a
# member, and so many steps. Both follow from the structure, so a stack's size changes no draw.
_MOST_NUMBERS = 2**21
_MOST_STEPS = 64
# Records of so many numbers, over all members, are gathered at once; it changes no batch.
_GATHERED_NUMBERS = 2**22
_RELEASED_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class Batch:
    """One minibatch of every member: as `Pool`, with the stack's dimension in front.

    Attributes:
        x: Shape [S, B, ...].
        secret: Shape [S, B] or [S, B, T].
        utility: Shape [S, B], or None.
        side: Shape [S, B, T, c], or None.
        present: Shape [S, B, T], or None.
        noise: Scaled, shape [S, B, ...].
    """

    x: Tensor
    secret: Tensor
    utility: Tensor | None
    side: Tensor | None
    present: Tensor | None
    noise: Tensor


class Batches:
    """The source of a stack's minibatches."""

    def __init__(
        self,
        configs: Sequence[AdversarialConfig],
        releaser: Releaser,
        pool: Pool,
        splits: Sequence[Splits],
    ) -> None:
        """Prepare to draw from the `train` split of every member."""
        self._configs, self._train = list(configs), [split.train for split in splits]
        self._releaser, self._pool = releaser, pool
        self._size = configs[0].batch_size
        self._per_step = configs[0].adversary_steps + 1
        self._shape = releaser.noise_shape(pool.x.shape[1:])
        numbers = self._per_step * self._size * math.prod(self._shape)
        self._run = max(1, min(_MOST_STEPS, _MOST_NUMBERS // max(numbers, 1)))
        self._scale = self._scales()

    def between(self, first: int, last: int) -> Iterator[list[Batch]]:
        """For each step from `first` up to `last`: the adversary's batches, then the releaser's."""
        for run in range(first // self._run, math.ceil(last / self._run)):
            steps = slice(max(first - run * self._run, 0), min(last - run * self._run, self._run))
            index, noise = (drawn[steps].flatten(0, 1) for drawn in self._drawn(run))
            batches = self._gathered(index, noise)
            for _ in range(len(index) // self._per_step):
                yield list(itertools.islice(batches, self._per_step))

    def raw(self, first: int, last: int) -> Iterator[Batch]:
        """For each step from `first` up to `last`, a batch that no noise is needed for."""
        for run in range(first // _MOST_STEPS, math.ceil(last / _MOST_STEPS)):
            index = self._indices(f"raw batches {run}", (_MOST_STEPS, self._size))
            start = run * _MOST_STEPS
            index = index[max(first - start, 0) : min(last - start, _MOST_STEPS)]
            yield from self._gathered(index, self._scale.new_zeros(len(index), 0))

    def keep(self, members: Sequence[int]) -> None:
        """Go on with these members alone."""
        self._configs = [self._configs[i] for i in members]
        self._train = [self._train[i] for i in members]
        self._scale = self._scales()

    def released(self, parameters: Sequence[Tensor], batch: Batch) -> Tensor:
        """What the releasers make of a batch."""
        return self._releaser.release(
            parameters, batch.x, batch.noise, batch.secret, self.seen(batch.side)
        )

    def release(
        self, parameters: Sequence[Tensor], member: int, records: np.ndarray, stream: str
    ) -> Tensor:
        """What one member's releaser makes of records, with noise of its own.

        Args:
            parameters: Of the whole stack.
            member: Its place.
            records: Indices into the pool, shape [n].
            stream: The noise's purpose.

        Returns:
            Shape [n, ...].
        """
        own = [p[member : member + 1] for p in parameters]
        source = _torch_generator(self._configs[member].seed, stream)
        parts = []
        for first in range(0, len(records), _RELEASED_AT_ONCE):
            part = torch.from_numpy(records[first : first + _RELEASED_AT_ONCE])
            noise = self._releaser.draw(source, (1, len(part), *self._shape))
            noise = self._configs[member].noise_std * noise.to(self._pool.x.device)
            with torch.no_grad():
                parts.append(self.released(own, self._batch(part[None].to(noise.device), noise))[0])
        return torch.cat(parts)

    def seen(self, side: Tensor | None) -> Tensor | None:
        """Side information, when the game is to use it."""
        return side if self._configs[0].side_information else None

    def _drawn(self, run: int) -> tuple[Tensor, Tensor]:
        """A run's records and noise, shapes [steps, batches, S, B] and [..., *noise_shape]."""
        shape = (self._run, self._per_step, self._size)
        index = self._indices(f"batches {run}", shape)
        noise = torch.stack(
            [
                self._releaser.draw(
                    _torch_generator(config.seed, f"noise {run}"), (*shape, *self._shape)
                )
                for config in self._configs
            ],
            2,
        ).to(self._scale.device)
        return index, noise.mul_(self._scale.view(-1, *[1] * (noise.ndim - 3)))

    def _indices(self, stream: str, shape: tuple[int, ...]) -> Tensor:
        """Into the pool, uniform over each member's training records; shape [..., S, B]."""
        drawn = [
            train[generator(config.seed, stream).integers(0, len(train), shape)]
            for config, train in zip(self._configs, self._train, strict=True)
        ]
        return torch.from_numpy(np.stack(drawn, -2)).to(self._scale.device)

    def _gathered(self, index: Tensor, noise: Tensor) -> Iterator[Batch]:
        """Batches of records [N, S, B] and noise [N, S, B, ...] in turn, many read together."""
        numbers = math.prod(index.shape[1:]) * self._pool.x[0].numel()
        together = max(1, _GATHERED_NUMBERS // max(numbers, 1))
        parts = zip(torch.split(index, together), torch.split(noise, together), strict=True)
        for places, scaled in parts:
            yield from _each(self._batch(places, scaled))

    def _batch(self, index: Tensor, noise: Tensor) -> Batch:
        pool = self._pool
        return Batch(
            x=_rows(pool.x, index),
            secret=_rows(pool.secret, index),
            utility=None if pool.utility is None else _rows(pool.utility, index),
            side=None if pool.side is None else _rows(pool.side, index),
            present=None if pool.present is None else _rows(pool.present, index),
            noise=noise,
        )

    def _scales(self) -> Tensor:
        stds = [config.noise_std for config in self._configs]
        return torch.tensor(stds, dtype=torch.float32, device=self._pool.x.device)


def _rows(values: Tensor, index: Tensor) -> Tensor:
    """As `values[index]`, which is slower on a CPU."""
    return values.index_select(0, index.flatten()).view(*index.shape, *values.shape[1:])


def _each(batches: Batch) -> Iterator[Batch]:
    """Batches that lie along a dimension in front, one by one."""
    parts = {name: part for name, part in vars(batches).items() if part is not None}
    for each in zip(*(part.unbind() for part in parts.values()), strict=True):
        yield replace(batches, **dict(zip(parts, each, strict=True)))


def _torch_generator(seed: int, stream: str) -> torch.Generator:
    source = torch.Generator()
    source.manual_seed(int(generator(seed, stream).integers(2**62)))
    return source
