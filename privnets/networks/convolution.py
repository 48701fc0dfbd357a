"""Stacked two-dimensional convolutions, and a classifier of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import conv2d, fold, leaky_relu

from privnets.networks.devices import cast_inputs, fastest_forms
from privnets.networks.layers import GAINS, SLOPE, dense, gaussian_weights, initial_dense, leaky

_FEW_NUMBERS: Final = 2**13  # of an image times channels of the first layer


def convolve(x: Tensor, weight: Tensor, bias: Tensor, stride: int = 1) -> Tensor:
    """Convolves the images of every network, with padding that keeps the size at stride 1.

    Computed as one grouped convolution over the channels of all networks.

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
    padding = weight.shape[-1] // 2
    y = conv2d(images, weight.flatten(0, 1), bias.flatten(), stride, padding, groups=networks)
    return y.view(n, networks, -1, *y.shape[2:]).transpose(0, 1)


def encode(parameters: Sequence[Tensor], x: Tensor, strides: Sequence[int]) -> Tensor:
    """Encodes images by convolutions with leaky units, in the fastest form.

    Args:
        parameters: Weight and bias of each convolution in turn.
        x: Pixels in [0, 1], shape [S, n, channels, h, w].

    Returns:
        Features, shape [S, n, d].
    """
    if fastest_forms(x).groups_convolutions:
        return encode_grouped(parameters, x, strides)
    # One network at a time fits into the caches of a CPU. Several fill its vector units, which one
    # with few channels of small images would not.
    numbers = parameters[0].shape[1] * x.shape[3] * x.shape[4]
    return encode_innermost(parameters, x, strides, 8 if numbers < _FEW_NUMBERS else 1)


def encode_grouped(parameters: Sequence[Tensor], x: Tensor, strides: Sequence[int]) -> Tensor:
    """Computes `encode` in PyTorch's memory order, all networks together."""
    for layer, stride in enumerate(strides):
        x = leaky(convolve(x, parameters[2 * layer], parameters[2 * layer + 1], stride))
    return x.flatten(2)


def encode_innermost(
    parameters: Sequence[Tensor], x: Tensor, strides: Sequence[int], together: int
) -> Tensor:
    """Computes `encode` with channels innermost in memory, for some networks at a time."""
    if together < len(x):
        parts = zip(*(torch.split(t, together) for t in (x, *parameters)), strict=True)
        return torch.cat([encode_innermost(own, y, strides, together) for y, *own in parts])
    networks = len(x)
    maps = x.transpose(0, 1).flatten(1, 2)
    for layer, stride in enumerate(strides):
        weight, bias = parameters[2 * layer : 2 * layer + 2]
        layers = cast_inputs([maps, weight.flatten(0, 1), bias.flatten()])
        maps = _LeakyConvolution.apply(*layers, stride, networks)  # type: ignore[no-untyped-call]
    features = maps.view(len(maps), networks, -1, *maps.shape[2:])
    return features.transpose(0, 1).flatten(2)


class _LeakyConvolution(torch.autograd.Function):
    """Grouped convolution with leaky units, channels innermost in features and in gradients.

    The gradient of flattened features has another memory order than the features. With both orders
    in one operation, the derivative of the units takes ten times as long.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, stride: int, groups: int
    ) -> Tensor:
        x, weight = _move_channels_inside(x), _move_channels_inside(weight)
        y = conv2d(x, weight, bias, stride, weight.shape[-1] // 2, groups=groups)
        y = leaky_relu(y, SLOPE, inplace=True)
        ctx.save_for_backward(x, weight, y)
        ctx.stride, ctx.groups = stride, groups
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, y = ctx.saved_tensors
        gradient = _move_channels_inside(gradient)
        gradient = torch.ops.aten.leaky_relu_backward(gradient, y, SLOPE, True)
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        # oneDNN computes a vector of channels at a time, of which one alone would use an eighth.
        is_folded = needs_x and weight.shape[1] == 1
        padding = weight.shape[-1] // 2
        for_x, for_weight, for_bias = torch.ops.aten.convolution_backward(
            gradient, x, weight, [len(weight)], [ctx.stride] * 2, [padding] * 2, [1, 1], False,
            [0, 0], ctx.groups, [needs_x and not is_folded, needs_weight, needs_bias],
        )  # fmt: skip
        if is_folded:  # by a matrix product for each patch
            matrices = weight.view(ctx.groups, -1, *weight.shape[1:]).flatten(2).mT
            rows, kernel = gradient.flatten(2), weight.shape[-1]
            patches = matrices @ rows.view(len(rows), ctx.groups, -1, rows.shape[2])
            for_x = fold(patches.flatten(1, 2), x.shape[2:], kernel, 1, padding, ctx.stride)
        return for_x, for_weight, for_bias, None, None


def _move_channels_inside(images: Tensor) -> Tensor:
    """Images [n, channels, h, w] with channels innermost in memory.

    `contiguous` would leave a single channel as it is, which oneDNN takes for the outermost.
    """
    if images.shape[1] > 1:
        return images.contiguous(memory_format=torch.channels_last)
    rows = images.movedim(1, -1)
    return rows.flatten(1).view(rows.shape).movedim(-1, 1)


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
