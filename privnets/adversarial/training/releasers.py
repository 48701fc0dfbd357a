"""The networks that release: what they see, where noise enters, and what comes out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privnets.networks import mlp
from privnets.networks.convolution import encode, encoded_side, initial_encoder
from privnets.networks.layers import GAINS, dense, gaussian_weights, initial_dense
from privnets.networks.mlp import Perceptron
from privnets.networks.recurrent import initial_lstm, lstm

_DARK = -2.0
"""Where a pixel's logit starts: most pixels of a drawn digit are black."""


class _Gaussian:
    """A releaser whose noise is Gaussian."""

    def draw(self, random: torch.Generator, shape: Sequence[int]) -> Tensor:
        """Standard Gaussian noise on the generator's device."""
        return torch.randn(tuple(shape), generator=random, device=random.device)


@dataclass(frozen=True)
class LinearFilter(_Gaussian):
    """q = theta x + noise, with Gaussian noise on each dimension of x."""

    dimensions: int

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Theta [d, d], Gaussian of variance 1 / d."""
        d = self.dimensions
        return [gaussian_weights(random, (d, d), 1 / math.sqrt(d))]

    def noise_shape(self, records: Sequence[int]) -> tuple[int, ...]:
        """That of the record."""
        return tuple(records)

    def release(
        self,
        parameters: Sequence[Tensor],
        x: Tensor,
        noise: Tensor,
        secret: Tensor,
        side: Tensor | None,
    ) -> Tensor:
        """Releases [S, n, d] of vectors [S, n, d]; see `privnets.adversarial.problem.Releaser`."""
        (theta,) = parameters
        return torch.baddbmm(noise, x, theta.mT)


@dataclass(frozen=True)
class PerceptronReleaser(_Gaussian):
    """A multilayer perceptron on the record and Gaussian noise beside it, two leaky layers.

    Attributes:
        record: Shape of a record.
        width: Units of a hidden layer.
        noise: Noise inputs.
        pixels: Whether releases are pixels, kept in [0, 1] by a sigmoid; else they are unbounded.
    """

    record: tuple[int, ...]
    width: int
    noise: int = 16
    pixels: bool = False

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Parameters as of `Perceptron`; pixels start dark."""
        parameters = self._network.initial(random)
        parameters[-1] += _DARK if self.pixels else 0.0
        return parameters

    def noise_shape(self, records: Sequence[int]) -> tuple[int, ...]:
        """One number for each noise input."""
        return (self.noise,)

    def release(
        self,
        parameters: Sequence[Tensor],
        x: Tensor,
        noise: Tensor,
        secret: Tensor,
        side: Tensor | None,
    ) -> Tensor:
        """Releases of the shape of x; see `privnets.adversarial.problem.Releaser`."""
        outputs = self._network.forward(parameters, torch.cat([x.flatten(2), noise], -1))
        return (outputs.sigmoid() if self.pixels else outputs).view(x.shape)

    @property
    def _network(self) -> Perceptron:
        size = math.prod(self.record)
        return Perceptron((size + self.noise, self.width, self.width, size))


@dataclass(frozen=True)
class EncoderDecoder(_Gaussian):
    """A convolutional encoder and a dense decoder of square grey images, with Gaussian noise.

    A 5x5 and a 3x3 convolution of stride 2 and a dense layer give a code of `width` numbers within
    (-1, 1), which gets noise; a hidden layer of 4 `width` units and a sigmoid make pixels of it.
    These get noise too, and are cut off at 0 and 1: behind noise on the code alone a secret stays
    that the adversary overlooks and a fresh attacker finds. The published sizes are lost.

    Attributes:
        side: Of the images, in pixels.
        width: Numbers of the code; the first convolution has an eighth as many channels.
        pixel_noise: How strong the noise on pixels is, as a multiple of that on the code.
    """

    side: int
    width: int
    pixel_noise: float = 1.0

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Weight and bias of each layer in turn: He's Gaussian weights, biases 0, pixels dark."""
        channels, size = max(1, self.width // 8), self.side**2
        flat, hidden = 2 * channels * encoded_side(self.side) ** 2, 4 * self.width
        parameters = [
            *initial_encoder(random, channels),
            *initial_dense(random, flat, self.width, GAINS["tanh"]),
            *initial_dense(random, self.width, hidden, GAINS["leaky"]),
            *initial_dense(random, hidden, size, 1.0),
        ]
        parameters[-1] += _DARK
        return parameters

    def noise_shape(self, records: Sequence[int]) -> tuple[int, ...]:
        """That of the code, and of the pixels if they get noise."""
        return (self.width + (self.side**2 if self.pixel_noise else 0),)

    def release(
        self,
        parameters: Sequence[Tensor],
        x: Tensor,
        noise: Tensor,
        secret: Tensor,
        side: Tensor | None,
    ) -> Tensor:
        """Releases [S, n, 1, side, side] in [0, 1]; see `privnets.adversarial.problem.Releaser`."""
        convolutions, (weight, bias), decoder = parameters[:4], parameters[4:6], parameters[6:]
        code = dense(encode(convolutions, x, (2, 2)), weight, bias).tanh()
        pixels = mlp.forward(decoder, code + noise[..., : self.width], "leaky").sigmoid()
        if self.pixel_noise:
            pixels = (pixels + self.pixel_noise * noise[..., self.width :]).clamp(0, 1)
        return pixels.view(x.shape)


@dataclass(frozen=True)
class RecurrentReleaser:
    """Causal LSTM layers on power, secret, side information and uniform noise of each step.

    z_t = a y_t + b h_t + c with the states h of the last layer. It starts at a = 1, b = c = 0,
    which releases y itself, and reaches full privacy by letting go of a.

    Attributes:
        classes: Of the secret, which enters one-hot, as zeros where it is missing.
        side: Features of side information; 0 when there is none.
        hidden: Units of a layer.
        layers: How many.
    """

    classes: int
    side: int = 0
    hidden: int = 64
    layers: int = 4

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Parameters of the layers (see `initial_lstm`), then the head's weight and bias."""
        weight = torch.zeros(self.hidden + 1, 1)
        weight[-1] = 1
        body = initial_lstm(random, 2 + self.classes + self.side, self.hidden, self.layers)
        return [*body, weight, torch.zeros(1, 1)]

    def noise_shape(self, records: Sequence[int]) -> tuple[int, ...]:
        """One number for each step."""
        return tuple(records)

    def draw(self, random: torch.Generator, shape: Sequence[int]) -> Tensor:
        """Noise uniform on [0, 1], on the generator's device."""
        return torch.rand(tuple(shape), generator=random, device=random.device)

    def release(
        self,
        parameters: Sequence[Tensor],
        x: Tensor,
        noise: Tensor,
        secret: Tensor,
        side: Tensor | None,
    ) -> Tensor:
        """Releases [S, n, T, 1] of x [S, n, T, 1]; see `privnets.adversarial.problem.Releaser`."""
        *body, weight, bias = parameters
        known = secret[..., None] == torch.arange(self.classes, device=secret.device)
        seen = [x, known.to(x.dtype), *([] if side is None else [side]), noise]
        states = torch.cat([lstm(torch.cat(seen, -1), body), x], -1)
        return dense(states.flatten(1, 2), weight, bias).view(x.shape)
