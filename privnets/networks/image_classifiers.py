"""Convolutional classifiers of images as torch modules, for stacks of `torch.func.vmap`."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

_STAGES: Final = (1, 2, 2, 2)
"""Strides of the four stages of `resnet18`."""


def cnn(inputs: tuple[int, int, int], outputs: int, width: int = 16) -> nn.Module:
    """Makes a small network: two 3x3 convolutions, each with pooling by 2, and a dense layer.

    Args:
        inputs: Channels, height and width.
        outputs: Number of classes.
        width: Channels of the first convolution; the second has twice as many.
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
    images.

    Args:
        inputs: Channels, height and width.
        outputs: Number of classes.
        width: Channels of the first of four stages; each further stage has twice as many.
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
