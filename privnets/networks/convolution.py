"""Stacked two-dimensional convolutions, and the classifier of images made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d

from privnets.networks.layers import GAINS, dense, gaussian_weights, initial_dense, leaky

# How many channels of the first layer, over all networks, a CPU convolves together.
_CHANNELS = 32


def convolve(x: Tensor, weight: Tensor, bias: Tensor, stride: int = 1) -> Tensor:
    """Every network's convolution, padded so that stride 1 keeps the size.

    One grouped convolution of images that have the networks' channels side by side. On a CPU the
    channels of several networks then lie innermost; a GPU keeps PyTorch's order.

    Args:
        x: Shape [S, n, in, h, w].
        weight: Shape [S, out, in, k, k], k odd.
        bias: Shape [S, out].
        stride: Between neighbouring outputs.

    Returns:
        Shape [S, n, out, ceil(h / stride), ceil(w / stride)].
    """
    networks, n = x.shape[:2]
    # From one convolution to the next this is a view, as what is returned still lies this way.
    images = x.transpose(0, 1).reshape(n, -1, *x.shape[3:])
    if networks > 1 and not x.is_cuda:
        images = images.contiguous(memory_format=torch.channels_last)
    padding = weight.shape[-1] // 2
    y = conv2d(images, weight.flatten(0, 1), bias.flatten(), stride, padding, groups=networks)
    return y.view(n, networks, -1, *y.shape[2:]).transpose(0, 1)


def encode(parameters: Sequence[Tensor], x: Tensor, strides: Sequence[int]) -> Tensor:
    """Flat features [S, n, d] of images [S, n, 1, h, w] after leaky convolutions.

    On a CPU only so many networks are convolved together as fill its vectors: with more, what the
    layers hand on no longer fits its caches (`tests/benchmarks/network_forms.py`).

    Args:
        parameters: Weight and bias of each convolution in turn.
        x: Pixels in [0, 1].
        strides: Of each convolution.
    """
    together = len(x) if x.is_cuda else max(1, _CHANNELS // parameters[0].shape[1])
    parts = zip(*(torch.split(t, together) for t in (x, *parameters)), strict=True)
    return torch.cat([_encode(own, images, strides) for images, *own in parts])


def _encode(parameters: Sequence[Tensor], maps: Tensor, strides: Sequence[int]) -> Tensor:
    for layer, stride in enumerate(strides):
        maps = leaky(convolve(maps, parameters[2 * layer], parameters[2 * layer + 1], stride))
    return maps.flatten(2)


def initial_convolution(
    random: np.random.Generator, kernel: int, inputs: int, outputs: int
) -> list[Tensor]:
    """Weight and bias of one network whose units are leaky: He's Gaussian weights, and 0."""
    scale = GAINS["leaky"] / math.sqrt(inputs * kernel**2)
    return [
        gaussian_weights(random, (outputs, inputs, kernel, kernel), scale),
        torch.zeros(outputs),
    ]


@dataclass(frozen=True)
class ConvolutionalClassifier:
    """Logits of square grey images.

    A 5x5 and a 3x3 convolution of stride 2, with `width` and 2 `width` channels, a dense layer of
    4 `width` units, all leaky, and a linear head. The larger form has one more 3x3 convolution, of
    stride 1, before the dense layer. The published sizes are lost; these read thickness from
    AMNIST as well as the published attacker does. There is no batch normalisation, as it would
    let a record's logits depend on its neighbours.

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
        channels, hidden = 2 * self.width, 4 * self.width
        parts = initial_encoder(random, self.width)
        if self.larger:
            parts += initial_convolution(random, 3, channels, channels)
        parts += initial_dense(
            random, channels * encoded_side(self.side) ** 2, hidden, GAINS["leaky"]
        )
        return parts + initial_dense(random, hidden, self.classes, 1.0)

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Logits [S, n, classes] of images [S, n, 1, side, side] with pixels in [0, 1]."""
        *body, weight, bias, head_weight, head_bias = parameters
        strides = (2, 2, 1) if self.larger else (2, 2)
        hidden = leaky(dense(encode(body, x, strides), weight, bias))
        return dense(hidden, head_weight, head_bias)


def initial_encoder(random: np.random.Generator, channels: int) -> list[Tensor]:
    """A 5x5 and a 3x3 convolution of one network, to `channels` and to twice as many."""
    return [
        *initial_convolution(random, 5, 1, channels),
        *initial_convolution(random, 3, channels, 2 * channels),
    ]


def encoded_side(side: int) -> int:
    """Side of an image after two convolutions of stride 2."""
    return -(-side // 4)
