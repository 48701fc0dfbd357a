"""Convolutional classifiers of images as torch modules, for stacks of `torch.func.vmap`.

Each is made from the channels, height and width of an image, the number of classes, and the
channels of its first stage.
"""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor, nn

_GROUP: Final = 8
"""Most channels that are normalised together."""

_SMALL_SIDE: Final = 16

_STAGES: Final = (1, 2, 2, 2)
"""Strides of the four stages of `resnet18`."""


def cnn(inputs: tuple[int, int, int], outputs: int, width: int = 16) -> nn.Module:
    """Makes a small network: two 3x3 convolutions, each with pooling by 2, and a dense layer.

    The second convolution has twice the `width` channels of the first.
    """
    channels, height, across = inputs
    features = 2 * width * (height // 4) * (across // 4)
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(features, 4 * width), nn.ReLU(), nn.Linear(4 * width, outputs),
    )  # fmt: skip


def resnet18(inputs: tuple[int, int, int], outputs: int, width: int = 64) -> nn.Module:
    """Makes a residual network of 18 layers (He et al., CVPR 2016) for images of 32x32 pixels.

    The first convolution is 3x3 with stride 1 and no pooling follows it, as is usual for small
    images. Each of four stages has twice the channels of the one before, which start at `width`.
    """
    layers: list[nn.Module] = [_convolution(inputs[0], width, 1), nn.ReLU()]
    channels = width
    for stage, stride in enumerate(_STAGES):
        next_channels = width * 2**stage
        layers += [_Block(channels, next_channels, stride), _Block(next_channels, next_channels, 1)]
        channels = next_channels
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, outputs)
    return nn.Sequential(*layers, *head)


class _Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _convolution(inputs, outputs, stride), nn.ReLU(), _convolution(outputs, outputs, 1)
        )
        is_equal = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if is_equal else _convolution(inputs, outputs, stride, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def _convolution(inputs: int, outputs: int, stride: int, kernel: int = 3) -> nn.Module:
    """Convolution with batch normalisation."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


def xception(inputs: tuple[int, int, int], outputs: int, width: int = 32) -> nn.Module:
    """Makes a network of separable convolutions with shortcuts, as Xception (arXiv 1610.02357).

    A convolution of stride 2 is followed by three blocks, which halve the image and double the
    channels. Normalisation is by groups of channels, so that logits depend on their own record
    alone.
    """
    layers = [nn.Conv2d(inputs[0], width, 3, 2, padding=1, bias=False), _group_norm(width)]
    blocks = [_SeparableBlock(width * 2**i, width * 2 ** (i + 1)) for i in range(3)]
    return nn.Sequential(*layers, nn.ReLU(), *blocks, *_head(8 * width, outputs))


def wide_resnet(inputs: tuple[int, int, int], outputs: int, width: int = 64) -> nn.Module:
    """Makes a wide residual network of 10 layers (Zagoruyko and Komodakis, arXiv 1605.07146).

    Three stages have one block each, with `width`, 2 `width` and 4 `width` channels. The first
    convolution has a stride of 2 for images of more than 16 pixels. Normalisation is by groups.
    `width` is 16 times the widening factor.
    """
    first, stride = max(4, width // 4), 2 if inputs[1] > _SMALL_SIDE else 1
    layers = [
        nn.Conv2d(inputs[0], first, 3, stride, padding=1, bias=False),
        _WideBlock(first, width, 1),
        _WideBlock(width, 2 * width, 2),
        _WideBlock(2 * width, 4 * width, 2),
    ]
    return nn.Sequential(*layers, _group_norm(4 * width), nn.ReLU(), *_head(4 * width, outputs))


class _SeparableBlock(nn.Module):
    """Two separable convolutions, the second of stride 2, beside a shortcut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_separable(inputs, outputs, 1), nn.ReLU(), *_separable(outputs, outputs, 2)
        )
        self.shortcut = nn.Conv2d(inputs, outputs, 1, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class _WideBlock(nn.Module):
    """Two 3x3 convolutions behind normalisation and rectifier, beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _group_norm(inputs), nn.ReLU(),
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            _group_norm(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        )  # fmt: skip
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.body(x) + self.shortcut(x))


def _separable(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
    """A convolution within each channel, one across channels, and normalisation."""
    within = nn.Conv2d(inputs, inputs, 3, stride, padding=1, groups=inputs, bias=False)
    return [within, nn.Conv2d(inputs, outputs, 1, bias=False), _group_norm(outputs)]


def _group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(channels // math.gcd(_GROUP, channels), channels)


def _head(channels: int, outputs: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, outputs)]
