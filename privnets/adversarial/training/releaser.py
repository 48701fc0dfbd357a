"""Interface of releasers: stacked networks that map observed records to released ones."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.adversarial.records import Minibatch
from privnets.networks.streams import RandomStreams, standard_normal

# Most records that are released together, and most of their numbers, for memory.
_RELEASED_RECORDS, _RELEASED_NUMBERS = 1024, 2**21


class Releaser(ABC):
    """A stacked network that maps observed records to released records.

    Attributes:
        copies_first: Whether it is trained by `copying_loss` before the game.
        trained: Number of leading tensors of `initial` that train; None for all.
    """

    copies_first: ClassVar[bool] = False
    trained: int | None = None

    @abstractmethod
    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Initial parameters of one releaser, float32, without the stack's dimension."""

    def noise_shape(self, record_shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of the noise for the release of one record: by default that of the record."""
        return tuple(record_shape)

    def set_training(self, training: bool) -> None:  # noqa: B027
        """Puts a user's modules into training or evaluation mode."""

    def released_together(self, record_shape: Sequence[int]) -> int:
        """Number of records that are released at once after training."""
        numbers = max(math.prod(record_shape), math.prod(self.noise_shape(record_shape)), 1)
        return min(_RELEASED_RECORDS, max(1, _RELEASED_NUMBERS // numbers))

    @abstractmethod
    def release(self, parameters: Sequence[Tensor], batch: Minibatch) -> Tensor:
        """Releases a minibatch by stacked parameters [S, ...]; the result has the shape of its `x`.

        Only recurrent releasers use its secret and its side information.
        """

    def draw_noise(self, words: Tensor) -> Tensor:
        """Noise before scaling from uniform 32-bit words [..., an even number], of their shape.

        Standard Gaussian by default.
        """
        return standard_normal(words)

    def record_noise(
        self, key: NDArray[np.uint64], scale: float, records: Sequence[int], device: torch.device
    ) -> Iterator[Tensor]:
        """Scaled noise [1, n, *noise_shape] of records, in parts that are released together.

        A record's noise depends on the key and its place alone.

        Args:
            key: As `privnets.randomness.stream_key` returns it.
            scale: Factor on the noise.
            records: Shape of all records.
            device: Device of the noise.
        """
        shape, together = self.noise_shape(records[1:]), self.released_together(records[1:])
        stream = RandomStreams([key], noise_words(shape), device)
        for first in range(0, records[0], together):
            words = stream.rows(first, min(first + together, records[0]))
            yield view_noise(self.draw_noise(words).mul_(scale), shape).transpose(0, 1)

    def copying_loss(self, parameters: Sequence[Tensor], batch: Minibatch) -> Tensor:
        """Loss [S] on raw records."""
        raise NotImplementedError


def noise_words(shape: Sequence[int]) -> int:
    """Random words for noise of a shape: an even number."""
    return 2 * math.ceil(math.prod(shape) / 2)


def view_noise(noise: Tensor, shape: Sequence[int]) -> Tensor:
    """The first numbers of the last dimension of `noise`, which becomes `shape`."""
    return noise[..., : math.prod(shape)].view(*noise.shape[:-1], *shape)
