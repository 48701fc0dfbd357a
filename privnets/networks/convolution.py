"""Stacked two-dimensional convolutions, and the classifier of images made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d

from privnets.networks.activation import GAINS, leaky
from privnets.networks.dense import dense, dense_initial, gaussian

KERNEL = 3


def convolve(x: Tensor, weight: Tensor, bias: Tensor, stride: int = 1) -> Tensor:
    """Every network's convolution, padded so that stride 1 keeps the size.

    Args:
        x: Shape [S, n, in, h, w].
        weight: Shape [S, out, in, k, k], k odd.
        bias: Shape [S, out].
        stride: Between neighbouring outputs.

    Returns:
        Shape [S, n, out, ceil(h / stride), ceil(w / stride)].
    """
    padding = weight.shape[-1] // 2
    members = zip(x, weight, bias, strict=True)
    return torch.stack([conv2d(i, w, b, stride, padding) for i, w, b in members])


def convolution_initial(
    random: np.random.Generator, inputs: int, outputs: int, gain: float = GAINS["leaky"]
) -> list[Tensor]:
    """Weight and bias of one network: Gaussian of variance gain^2 / inputs of a unit, and 0."""
    fan = inputs * KERNEL**2
    weight = gaussian(random, (outputs, inputs, KERNEL, KERNEL), gain / fan**0.5)
    return [weight, torch.zeros(outputs)]


@dataclass(frozen=True)
class ConvolutionalClassifier:
    """Logits of square grey images.

    Two 3x3 convolutions of stride 2 with `width` and 2 `width` channels, a dense layer of
    4 `width` units, all leaky, and a linear head. The larger form has one more convolution, of
    stride 1 and 4 `width` channels, before the dense layer. The published sizes are lost. There is
    no batch normalisation, as it would let a record's logits depend on its neighbours.

    Attributes:
        side: Of the images, in pixels.
        width: Channels of the first layer.
        classes: Number of logits.
        larger: Whether the additional layer is there.
    """

    side: int
    width: int
    classes: int
    larger: bool = False

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Weight and bias of each layer in turn: He's Gaussian weights, and biases of 0."""
        parts: list[Tensor] = []
        channels = 1
        for outputs, _ in self._convolutions:
            parts += convolution_initial(random, channels, outputs)
            channels = outputs
        flat, hidden = channels * quartered(self.side) ** 2, 4 * self.width
        parts += dense_initial(random, flat, hidden, GAINS["leaky"])
        return parts + dense_initial(random, hidden, self.classes, 1.0)

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Logits [S, n, classes] of images [S, n, 1, side, side] with pixels in [0, 1]."""
        *body, weight, bias, head_weight, head_bias = parameters
        hidden = x
        for layer, (_, stride) in enumerate(self._convolutions):
            hidden = leaky(convolve(hidden, body[2 * layer], body[2 * layer + 1], stride))
        hidden = leaky(dense(hidden.flatten(2), weight, bias))
        return dense(hidden, head_weight, head_bias)

    @property
    def _convolutions(self) -> list[tuple[int, int]]:
        """Channels and stride of each."""
        layers = [(self.width, 2), (2 * self.width, 2)]
        return [*layers, (4 * self.width, 1)] if self.larger else layers


def quartered(side: int) -> int:
    """Side of an image after two convolutions of stride 2."""
    return -(-side // 4)
