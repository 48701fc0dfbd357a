"""Stochastic U-Net and fader network: an image in, another out, with noise between.

The releases have the shape and range of the image.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from privnets.networks.layers import SLOPE, leaky

LEVELS = 3
"""Times that the image is halved."""

_REVERSAL = 0.03
"""Weight of the attribute's classifier for the encoder, relative to the copy."""


class UNet(nn.Module):
    """Encoder and decoder with a shortcut at each resolution (arXiv 1505.04597).

    Gaussian noise is added to the features of lowest resolution, which have no shortcut. The
    published sizes are lost.
    """

    def __init__(self, channels: int, width: int, classes: int, side: int = 0) -> None:
        """Draws all layers, of `width` channels and twice as many at each level.

        `classes` are outputs of `UNetClassifier`. Images may have any size, whatever `side` is.
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
            maps = leaky(layer(torch.cat([large, shortcut], 1)))
        return torch.sigmoid(self.last(maps))

    def encode(self, x: Tensor) -> list[Tensor]:
        """Features of each resolution."""
        maps = [leaky(self.first(x))]
        for layer in self.down:
            maps.append(leaky(layer(maps[-1])))
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


class Fader(nn.Module):
    """Encoder and decoder without shortcuts; the decoder gets an attribute (arXiv 1706.00409).

    A classifier reads the attribute from the latent features. The encoder is trained against it,
    so that the decoder takes the attribute from its own input. The published sizes are larger.
    """

    def __init__(self, channels: int, width: int, classes: int, side: int) -> None:
        """Draws all layers, of `width` channels and twice as many at each level."""
        super().__init__()
        sizes = [channels, *(width * 2**level for level in range(LEVELS + 1))]
        self.down = nn.ModuleList(
            nn.Conv2d(sizes[i], sizes[i + 1], 3, 1 if i == 0 else 2, padding=1)
            for i in range(LEVELS + 1)
        )
        self.up = nn.ModuleList(
            nn.Conv2d(sizes[i + 1] + classes, sizes[i], 3, padding=1)
            for i in reversed(range(1, LEVELS + 1))
        )
        self.last = nn.Conv2d(width + classes, channels, 3, padding=1)
        maps, size, _ = noise_shape(side, width)
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(maps * size**2, maps),
            nn.LeakyReLU(SLOPE),
            nn.Linear(maps, classes),
        )
        self._classes, self._side = classes, side

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        """Releases images [n, channels, h, w] in [0, 1]; every attribute is equally likely."""
        attribute = x.new_full((len(x), self._classes), 1 / self._classes)
        return self.decode(self.encode(x) + noise, attribute)

    def encode(self, x: Tensor) -> Tensor:
        """Latent features in (-1, 1), of the shape `noise_shape`.

        Unbounded features would grow to confuse the classifier.
        """
        *layers, last = self.down
        for layer in layers:
            x = leaky(layer(x))
        return torch.tanh(last(x))

    def decode(self, latent: Tensor, attribute: Tensor) -> Tensor:
        """Images in [0, 1] of latent features with an attribute, as shares of classes [n, C]."""
        maps = latent
        for level, layer in zip(reversed(range(LEVELS)), self.up, strict=True):
            maps = leaky(layer(_with_attribute(maps, attribute)))
            size = -(-self._side // 2**level)
            maps = interpolate(maps, size=(size, size))
        return torch.sigmoid(self.last(_with_attribute(maps, attribute)))


class FaderTraining(Fader):
    """The same layers with the outputs that training needs."""

    def forward(self, x: Tensor, noise: Tensor, attribute: Tensor) -> Tensor:  # type: ignore[override]
        """Copies by the true attribute, and logits of it from the latent features, [n, ...]."""
        latent = self.encode(x) + noise
        copy = self.decode(latent, attribute)
        logits = self.classifier(_Reversal.apply(latent))  # type: ignore[no-untyped-call]
        return torch.cat([copy.flatten(1), logits], 1)


class _Reversal(torch.autograd.Function):
    """The identity, whose gradient is reversed, so that one loss trains both opponents."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -_REVERSAL * gradient


def _with_attribute(maps: Tensor, attribute: Tensor) -> Tensor:
    planes = attribute[:, :, None, None].expand(-1, -1, *maps.shape[-2:])
    return torch.cat([maps, planes], 1)
