"""Interface of releasers, which map records to released ones, and those without parameters.

Trivial obfuscations are the baselines of learned releasers. Each is a function of records and one
strength r >= 0; 0 releases the records themselves. Defaults of studies go from there to releases
that tell nearly nothing.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privnets.adversarial.records import Minibatch
from privnets.networks.streams import RandomStreams, standard_normal

# Most records that are released together, and most of their numbers, for memory. Other devices than
# a CPU release many in the time of few.
_RELEASED_RECORDS, _RELEASED_NUMBERS, _RELEASED_NUMBERS_ON_GPU = 1024, 2**21, 2**26
_GREY = 0.5
_BLUR_SHARE = 1 / 8  # of the image's side: standard deviation of the blur of strength 1
_LEAST_WIDTH = 1e-3  # pixels, at which a blur changes nothing


class Releaser(ABC):
    """A stacked network that maps observed records to released records.

    Attributes:
        copies_first: Whether it is trained by `copying_loss` before the game.
        trained: Number of leading tensors of `initial` that train; None for all.
        captures: Whether a CUDA graph may repeat its calls.
    """

    copies_first: ClassVar[bool] = False
    trained: int | None = None
    captures: bool = True

    @abstractmethod
    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Initial parameters of one releaser, float32, without the stack's dimension."""

    def noise_shape(self, record_shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of the noise for the release of one record: by default that of the record."""
        return tuple(record_shape)

    def set_training(self, training: bool) -> None:  # noqa: B027
        """Puts a user's modules into training or evaluation mode."""

    def released_together(
        self, record_shape: Sequence[int], releasers: int, device: torch.device
    ) -> int:
        """Number of records that each of some releasers releases at once after training."""
        numbers = max(math.prod(record_shape), math.prod(self.noise_shape(record_shape)), 1)
        if device.type == "cpu":
            return min(_RELEASED_RECORDS, max(1, _RELEASED_NUMBERS // numbers))
        return max(1, _RELEASED_NUMBERS_ON_GPU // (numbers * releasers))

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
        self, keys: Sequence[NDArray[np.uint64]], scales: Tensor, records: Sequence[int]
    ) -> Iterator[Tensor]:
        """Noise [S, n, *noise_shape] of records, in parts that are released together.

        A record's noise depends on a key (see `privnets.randomness.stream_key`) and its place
        alone. `scales` has the shape [S], and `records` is the shape of all records of one key.
        """
        shape, device = self.noise_shape(records[1:]), scales.device
        together = self.released_together(records[1:], len(keys), device)
        streams = RandomStreams(keys, noise_words(shape), device)
        for first in range(0, records[0], together):
            words = streams.rows(first, min(first + together, records[0]))
            noise = self.draw_noise(words).mul_(scales[:, None])
            yield view_noise(noise, shape).transpose(0, 1)

    def copying_loss(self, parameters: Sequence[Tensor], batch: Minibatch) -> Tensor:
        """Loss [S] on raw records."""
        raise NotImplementedError


def noise_words(shape: Sequence[int]) -> int:
    """Random words for noise of a shape: an even number."""
    return 2 * math.ceil(math.prod(shape) / 2)


def view_noise(noise: Tensor, shape: Sequence[int]) -> Tensor:
    """The first numbers of the last dimension of `noise`, which becomes `shape`."""
    return noise[..., : math.prod(shape)].view(*noise.shape[:-1], *shape)


@dataclass(frozen=True)
class FixedReleaser(Releaser):
    """A releaser that does not train. Its noise is its strength; random ones multiply it.

    Attributes:
        pixels: Whether releases are pixels in [0, 1].
    """

    pixels: bool = False

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """No parameters."""
        return []

    def noise_shape(self, record_shape: Sequence[int]) -> tuple[int, ...]:
        """One number: the strength."""
        return (1,)

    def draw_noise(self, words: Tensor) -> Tensor:
        """Ones, which the strength scales."""
        return torch.ones(words.shape, device=words.device)

    def release(self, parameters: Sequence[Tensor], batch: Minibatch) -> Tensor:
        """Releases records; see `Releaser.release`."""
        shape = (*batch.noise.shape[:2], *[1] * (batch.x.ndim - 2))
        return self.obfuscate(batch.x, batch.noise[..., 0].reshape(shape))

    @abstractmethod
    def obfuscate(self, x: Tensor, strength: Tensor) -> Tensor:
        """Changes records [S, n, ...] by strengths [S, n, 1, ...] of as many dimensions."""


@final
@dataclass(frozen=True)
class AddedNoise(FixedReleaser):
    """Gaussian noise, whose standard deviation is the strength; pixels are clipped to [0, 1]."""

    def noise_shape(self, record_shape: Sequence[int]) -> tuple[int, ...]:
        """The record's shape."""
        return tuple(record_shape)

    def draw_noise(self, words: Tensor) -> Tensor:
        """Standard Gaussian noise."""
        return Releaser.draw_noise(self, words)

    def release(self, parameters: Sequence[Tensor], batch: Minibatch) -> Tensor:
        """Releases records of any shape; see `Releaser.release`."""
        return self.obfuscate(batch.x, batch.noise)

    def obfuscate(self, x: Tensor, strength: Tensor) -> Tensor:
        """Adds noise that is scaled already."""
        return (x + strength).clamp(0, 1) if self.pixels else x + strength


@final
class Blur(FixedReleaser):
    """Gaussian blur of images, of a standard deviation of an eighth of the side at strength 1."""

    def obfuscate(self, x: Tensor, strength: Tensor) -> Tensor:
        """Blurs images [S, n, channels, side, side]."""
        width = (strength * _BLUR_SHARE * x.shape[-1]).clamp_min(_LEAST_WIDTH)
        kernel = (-0.5 * (_distances(x) / width).square()).softmax(-1)
        return kernel @ x @ kernel.mT


@final
class Box(FixedReleaser):
    """Grey box in the middle of images, over the share 1 - exp(-r) of their side."""

    def obfuscate(self, x: Tensor, strength: Tensor) -> Tensor:
        """Covers images [S, n, channels, side, side]; pixels at the edge are covered in part."""
        side = x.shape[-1]
        half = -torch.expm1(-strength) * side / 2
        place = torch.arange(side, device=x.device, dtype=x.dtype) - (side - 1) / 2
        covered = (half + 0.5 - place.abs()).clamp(0, 1).minimum(2 * half)
        return x.lerp(torch.full_like(x, _GREY), covered * covered.mT)


@final
class Rounding(FixedReleaser):
    """Rounding to multiples of the strength, the step, in standard deviations of the records."""

    def obfuscate(self, x: Tensor, strength: Tensor) -> Tensor:
        """Rounds records of any shape."""
        return torch.where(strength > 0, (x / strength).round() * strength, x)


@final
class MovingAverage(FixedReleaser):
    """Mean over the share 1 - exp(-r) of a series to both sides of each step."""

    def obfuscate(self, x: Tensor, strength: Tensor) -> Tensor:
        """Averages series [S, n, T, features]; steps at the window's ends count in part."""
        reach = -torch.expm1(-strength) * (x.shape[-2] - 1)
        weight = (reach + 1 - _distances(x.mT)).clamp(0, 1)
        return (weight / weight.sum(-1, keepdim=True)) @ x


def _distances(x: Tensor) -> Tensor:
    """Distance between places along the last dimension, shape [n, n]."""
    place = torch.arange(x.shape[-1], device=x.device, dtype=x.dtype)
    return (place[:, None] - place).abs()


OBFUSCATIONS: Final[Mapping[str, type[FixedReleaser]]] = {
    "noise": AddedNoise,
    "blur": Blur,
    "box": Box,
    "rounding": Rounding,
    "average": MovingAverage,
}
"""Releaser of each value of the field `obfuscation`."""
