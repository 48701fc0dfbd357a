"""Stacked two-dimensional convolutions, and a classifier of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d

from privnets.networks.layers import GAINS, dense, gaussian_weights, initial_dense, leaky

# Channels of the first layer, over all networks, that a CPU convolves together.
_MAX_CHANNELS = 32


def convolve(x: Tensor, weight: Tensor, bias: Tensor, stride: int = 1) -> Tensor:
    """Convolves the images of every network, with padding that keeps the size at stride 1.

    Computed as one grouped convolution over the channels of all networks. On a CPU, channels of
    several networks are the innermost dimension; a GPU keeps PyTorch's order.

    Args:
        x: Shape [S, n, in, h, w].
        weight: Shape [S, out, in, k, k], k odd.
        bias: Shape [S, out].
        stride: Distance of neighbouring outputs in pixels.

    Returns:
        Shape [S, n, out, ceil(h / stride), ceil(w / stride)].
    """
    networks, n = x.shape[:2]
    # A view if x is the result of another convolution, which has this memory order.
    images = x.transpose(0, 1).reshape(n, -1, *x.shape[3:])
    if networks > 1 and not x.is_cuda:
        images = images.contiguous(memory_format=torch.channels_last)
    padding = weight.shape[-1] // 2
    y = conv2d(images, weight.flatten(0, 1), bias.flatten(), stride, padding, groups=networks)
    return y.view(n, networks, -1, *y.shape[2:]).transpose(0, 1)


def encode(parameters: Sequence[Tensor], x: Tensor, strides: Sequence[int]) -> Tensor:
    """Encodes images by convolutions with leaky units.

    A CPU convolves only as many networks together as fill its vector unit; the activations of
    more would exceed its caches (`tests/benchmarks/network_forms.py`).

    Args:
        parameters: Weight and bias of each convolution in turn.
        x: Pixels in [0, 1], shape [S, n, channels, h, w].

    Returns:
        Features, shape [S, n, d].
    """
    together = len(x) if x.is_cuda else max(1, _MAX_CHANNELS // parameters[0].shape[1])
    parts = zip(*(torch.split(t, together) for t in (x, *parameters)), strict=True)
    return torch.cat([_encode(own, images, strides) for images, *own in parts])


def _encode(parameters: Sequence[Tensor], maps: Tensor, strides: Sequence[int]) -> Tensor:
    for layer, stride in enumerate(strides):
        maps = leaky(convolve(maps, parameters[2 * layer], parameters[2 * layer + 1], stride))
    return maps.flatten(2)


def initial_convolution(
    random: np.random.Generator, kernel: int, inputs: int, outputs: int
) -> list[Tensor]:
    """Draws weight and bias of one network with leaky units: He's Gaussian weights, bias 0."""
    scale = GAINS["leaky"] / math.sqrt(inputs * kernel**2)
    return [
        gaussian_weights(random, (outputs, inputs, kernel, kernel), scale),
        torch.zeros(outputs),
    ]


@dataclass(frozen=True)
class ConvolutionalClassifier:
    """Classifier of square images.

    Layers: a 5x5 and a 3x3 convolution of stride 2, with `width` and 2 `width` channels; a dense
    layer of 4 `width` units; a linear output. All but the last are leaky. The larger form adds a
    3x3 convolution of stride 1 before the dense layer. The published sizes are unknown; these
    classify thickness in AMNIST as accurately as the published attacker. Batch normalisation is
    not used, since logits would depend on other records of the batch.

    Attributes:
        width: Channels of the first layer.
        larger: Whether to add the third convolution.
        channels: Channels of an image: 1 for grey ones, 3 for RGB.
    """

    side: int
    width: int
    classes: int
    larger: bool = False
    channels: int = 1

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Draws weight and bias of each layer in turn: He's Gaussian weights, biases 0."""
        maps, hidden = 2 * self.width, 4 * self.width
        parts = initial_encoder(random, self.width, self.channels)
        if self.larger:
            parts += initial_convolution(random, 3, maps, maps)
        parts += initial_dense(random, maps * encoded_side(self.side) ** 2, hidden, GAINS["leaky"])
        return parts + initial_dense(random, hidden, self.classes, 1.0)

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Returns logits [S, n, classes] of images [S, n, channels, side, side] in [0, 1]."""
        *body, weight, bias, head_weight, head_bias = parameters
        strides = (2, 2, 1) if self.larger else (2, 2)
        hidden = leaky(dense(encode(body, x, strides), weight, bias))
        return dense(hidden, head_weight, head_bias)


def initial_encoder(random: np.random.Generator, width: int, channels: int = 1) -> list[Tensor]:
    """Draws a 5x5 and a 3x3 convolution of one network, from `channels` to `width`, 2 `width`."""
    return [
        *initial_convolution(random, 5, channels, width),
        *initial_convolution(random, 3, width, 2 * width),
    ]


def encoded_side(side: int) -> int:
    """Side of an image after two convolutions of stride 2, in pixels."""
    return -(-side // 4)
