"""Minibatches and release noise of a stack, drawn from each configuration's own seed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.adversarial.config import AdversarialConfig
from privnets.adversarial.encodings import RecordEncoding
from privnets.adversarial.evidence import Redraw
from privnets.adversarial.problem import Splits
from privnets.adversarial.records import Minibatch, Pool
from privnets.adversarial.training.releaser import Releaser, noise_words, view_noise
from privnets.networks.streams import RandomStreams, integers
from privnets.randomness import stream_key

# Random words and record values, over all members, that are drawn and read together; they change no
# batch. A CPU keeps few words in its cache, and other devices draw many by as many calls as few.
_MAX_DRAWN_WORDS, _MAX_DRAWN_WORDS_ON_CPU = 2**24, 2**20
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

        Batches have side information if the problem's settings show it to the releaser.
        """
        self._configs, self._train = list(configs), [split.train for split in splits]
        self._releaser = releaser
        shows_side = configs[0].settings.shows_side_information
        self._pool = pool if shows_side else replace(pool, side=None)
        self._size = configs[0].batch_size
        self._per_step = configs[0].adversary_steps + 1
        noise_shape = releaser.noise_shape(pool.x.shape[1:])
        self._noise_shape = (self._size, *noise_shape)
        self._raw_noise_shape = (self._size, *(noise_shape if releaser.copies_first else (0,)))
        self._prepare_members()

    def game_batches(self, first: int, last: int) -> Iterator[list[Minibatch]]:
        """Batches of steps `first` to `last` - 1: the adversary's, then the releaser's."""
        rows, total = range(self._per_step), self._per_step * max(last, self._configs[0].steps)
        for step in range(first, last):
            start = self._per_step * step
            yield [self._next(self._game, self._noise_shape, start + i, total) for i in rows]

    def raw_batches(self, first: int, last: int) -> Iterator[Minibatch]:
        """One batch for each of the steps `first` to `last` - 1.

        It has noise only if the releaser learns to copy.
        """
        total = max(last, self._configs[0].pretrain_steps)
        for step in range(first, last):
            yield self._next(self._raw, self._raw_noise_shape, step, total)

    def keep(self, members: Sequence[int]) -> None:
        """Continues with these members only."""
        self._configs = [self._configs[i] for i in members]
        self._train = [self._train[i] for i in members]
        if self._configs:
            self._prepare_members()

    def record_releaser(
        self, parameters: Sequence[Tensor], member: int, encoding: RecordEncoding | None
    ) -> RecordReleaser:
        """One member's releaser, from the parameters of the whole stack [S, ...]."""
        own = [p[member : member + 1].detach().clone() for p in parameters]
        return RecordReleaser(self._releaser, own, self._configs[member], self._pool, encoding)

    def _prepare_members(self) -> None:
        device, sizes = self._pool.x.device, torch.tensor([[len(train)] for train in self._train])
        self._records = torch.from_numpy(np.concatenate(self._train)).to(device)
        self._sizes, self._starts = sizes.to(device), (sizes.cumsum(0) - sizes).to(device)
        self._noise = torch.tensor([[config.noise_scale] for config in self._configs]).to(device)
        self._ahead: tuple[RandomStreams, int, Iterator[Minibatch]] | None = None
        self._game = self._batch_streams("batches", self._noise_shape)
        self._raw = self._batch_streams("raw batches", self._raw_noise_shape)

    def _batch_streams(self, purpose: str, noise_shape: Sequence[int]) -> RandomStreams:
        """Streams whose rows have the noise of a batch, then its records."""
        keys = [stream_key(config.seed, purpose) for config in self._configs]
        return RandomStreams(keys, noise_words(noise_shape) + self._size, self._pool.x.device)

    def _next(
        self, streams: RandomStreams, noise_shape: Sequence[int], row: int, last: int
    ) -> Minibatch:
        """The batch of a row, which many others are drawn with; the last row is `last` - 1."""
        if self._ahead is None or self._ahead[:2] != (streams, row):
            batches = self._draw_batches(streams, noise_shape, row, last)
        else:
            batches = self._ahead[2]
        batch = next(batches)
        self._ahead = (streams, row + 1, batches) if row + 1 < last else None
        return batch

    def _draw_batches(
        self, streams: RandomStreams, noise_shape: Sequence[int], first: int, last: int
    ) -> Iterator[Minibatch]:
        """Batches of rows `first` to `last` - 1."""
        on_cpu, of_noise = self._pool.x.device.type == "cpu", noise_words(noise_shape)
        most = _MAX_DRAWN_WORDS_ON_CPU if on_cpu else _MAX_DRAWN_WORDS
        together = max(1, most // (len(self._configs) * (of_noise + self._size)))
        for start in range(first, last, together):
            words = streams.rows(start, min(start + together, last))
            noise = self._releaser.draw_noise(words[..., :of_noise]).mul_(self._noise)
            places = integers(words[..., of_noise : of_noise + self._size], self._sizes)
            index = _select_rows(self._records, places.add_(self._starts))
            # Records [N, S, B] and noise [N, S, B, ...] are read several batches at a time.
            numbers = math.prod(index.shape[1:]) * self._pool.x[0].numel()
            read = max(1, _MAX_READ_NUMBERS // max(numbers, 1))
            drawn = index, view_noise(noise, noise_shape)
            for part in zip(*(torch.split(each, read) for each in drawn), strict=True):
                batches = _select_batch(self._pool, *part)
                columns = batches.tensors()
                for each in zip(*(column.unbind() for column in columns.values()), strict=True):
                    yield replace(batches, **dict(zip(columns, each, strict=True)))


@dataclass(frozen=True, eq=False)
class RecordReleaser:
    """One member's finished releaser, and the records that it may release.

    Parameters have the shape [1, ...]; the pool has no side information if the releaser sees none.
    Without an encoding releases are not rounded.
    """

    network: Releaser
    parameters: Sequence[Tensor]
    config: AdversarialConfig
    pool: Pool
    encoding: RecordEncoding | None

    def release(self, records: NDArray[np.int64], stream: str) -> Tensor:
        """Releases records by index [n] in the pool, shape [n, ...]; each stream has own noise.

        They are rounded and clipped as in a file. Those that are not finite are left as they are.
        """
        return _release_together([self], [records], stream)[0]

    def is_random(self, records: NDArray[np.int64]) -> bool:
        """Whether two releases of the same records differ."""
        one, other = (self.release(records, f"randomness {i}") for i in range(2))
        return not torch.equal(one, other)


@dataclass(frozen=True, eq=False)
class RepeatedRelease:
    """Releases the same records, by index [n] in the pool, with the noise of a named stream."""

    releaser: RecordReleaser
    records: NDArray[np.int64]

    def __call__(self, stream: str) -> Tensor:
        """See `RecordReleaser.release`."""
        return self.releaser.release(self.records, stream)


def redraw_together(redraws: Sequence[Redraw], stream: str) -> Tensor:
    """Releases that `redraws` return, [S, n, ...]; on other devices than a CPU together."""
    repeated = [redraw for redraw in redraws if isinstance(redraw, RepeatedRelease)]
    if len(repeated) < len(redraws) or repeated[0].releaser.pool.x.device.type == "cpu":
        return torch.stack([redraw(stream) for redraw in redraws])
    releasers = [redraw.releaser for redraw in repeated]
    return _release_together(releasers, [redraw.records for redraw in repeated], stream)


@torch.no_grad()
def _release_together(
    releasers: Sequence[RecordReleaser], records: Sequence[NDArray[np.int64]], stream: str
) -> Tensor:
    """Releases records by index [n], as many for each member of one stack: [S, n, ...]."""
    first, x = releasers[0], releasers[0].pool.x
    keys = [stream_key(releaser.config.seed, stream) for releaser in releasers]
    scales = torch.tensor([releaser.config.noise_scale for releaser in releasers]).to(x.device)
    parameters = [
        torch.cat(parts) for parts in zip(*(r.parameters for r in releasers), strict=True)
    ]
    index = torch.from_numpy(np.stack(records)).to(x.device)
    noise = first.network.record_noise(keys, scales, (index.shape[1], *x.shape[1:]))
    together = first.network.released_together(x.shape[1:], len(releasers), x.device)
    released = [
        first.network.release(parameters, _select_batch(first.pool, part, own))
        for part, own in zip(torch.split(index, together, 1), noise, strict=True)
    ]
    z = torch.cat(released, 1)
    if first.encoding is not None:
        for own, is_finite in zip(z, z.isfinite().flatten(1).all(1).tolist(), strict=True):
            if is_finite:
                own.copy_(torch.from_numpy(first.encoding.reencode(own.cpu().numpy())))
    return z


def _select_batch(pool: Pool, index: Tensor, noise: Tensor) -> Minibatch:
    columns = pool.tensors()
    columns.pop("group", None)
    selected: Any = {name: _select_rows(values, index) for name, values in columns.items()}
    return Minibatch(**selected, noise=noise)


def _select_rows(values: Tensor, index: Tensor) -> Tensor:
    """Equal to `values[index]`, which is slower on a CPU."""
    return values.index_select(0, index.flatten()).view(*index.shape, *values.shape[1:])
