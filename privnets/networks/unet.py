"""Stochastic U-Net: an image in, an image of the same shape and range out, with noise inside."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, leaky_relu

from privnets.networks.layers import SLOPE

LEVELS = 3
"""Times that the image is halved."""


class UNet(nn.Module):
    """Encoder and decoder with a shortcut at each resolution (arXiv 1505.04597).

    Gaussian noise is added to the features of lowest resolution, which have no shortcut. The
    published sizes are lost.
    """

    def __init__(self, channels: int, width: int, classes: int) -> None:
        """Draws all layers.

        Args:
            channels: Channels of an image.
            width: Channels of the first layer; each level has twice as many.
            classes: Outputs of `UNetClassifier`.
        """
        super().__init__()
        sizes = [width * 2**level for level in range(LEVELS + 1)]
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.down = nn.ModuleList(
            nn.Conv2d(sizes[i], sizes[i + 1], 3, 2, padding=1) for i in range(LEVELS)
        )
        self.up = nn.ModuleList(
            nn.Conv2d(sizes[i] + sizes[i + 1], sizes[i], 3, padding=1)
            for i in reversed(range(LEVELS))
        )
        self.last = nn.Conv2d(width, channels, 3, padding=1)
        self.classes = nn.Linear(sizes[-1], classes)

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        """Releases images [n, channels, h, w] in [0, 1]; see `noise_shape`."""
        *shortcuts, maps = self.encode(x)
        maps = maps + noise
        for layer, shortcut in zip(self.up, reversed(shortcuts), strict=True):
            large = interpolate(maps, size=shortcut.shape[-2:])
            maps = _leaky(layer(torch.cat([large, shortcut], 1)))
        return torch.sigmoid(self.last(maps))

    def encode(self, x: Tensor) -> list[Tensor]:
        """Features of each resolution."""
        maps = [_leaky(self.first(x))]
        for layer in self.down:
            maps.append(_leaky(layer(maps[-1])))
        return maps


class UNetClassifier(UNet):
    """The same layers as a classifier by the features of lowest resolution."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """Logits [n, classes] of images [n, channels, h, w]."""
        logits: Tensor = self.classes(self.encode(x)[-1].mean((-2, -1)))
        return logits


def noise_shape(side: int, width: int) -> tuple[int, int, int]:
    """Shape of the noise for a square image."""
    size = -(-side // 2**LEVELS)
    return width * 2**LEVELS, size, size


def _leaky(x: Tensor) -> Tensor:
    return leaky_relu(x, SLOPE)
