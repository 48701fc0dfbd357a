"""Shifts and flips of images: random ones in training, fixed ones for attacks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from privnets.membership.config import Augmentation


def largest_shift(side: int) -> int:
    """Largest shift of an image in pixels: 4 of 32, as is usual, and at least 1."""
    return max(1, side // 8)


def augment(images: Tensor, kind: Augmentation, randoms: Sequence[np.random.Generator]) -> Tensor:
    """Shifts images [S, n, channels, height, width] at random, and mirrors half of them.

    Each of S models has its generator. A shift is uniform in each direction; pixels beyond the edge
    are reflected.
    """
    if kind == "none":
        return images
    most, count = largest_shift(min(images.shape[-2:])), images.shape[1]
    drawn = [(r.integers(-most, most + 1, (2, count)), r.random(count) < 0.5) for r in randoms]
    shifts, flipped = (
        torch.from_numpy(np.concatenate(parts, -1)) for parts in zip(*drawn, strict=True)
    )
    if kind == "shift":
        flipped = torch.zeros_like(flipped)
    flat = images.flatten(0, 1)
    return (
        _shift(flat, shifts.to(flat.device), flipped.to(flat.device))
        .contiguous()
        .view(images.shape)
    )


def changed_copies(images: Tensor, kind: Augmentation, queries: int) -> list[Tensor]:
    """Copies of images for queries beyond the first, which is the image itself.

    Copies are mirrored, shifted by the largest shift in eight directions, or both (Carlini et al.,
    arXiv 2112.03570, section VI: 2 queries mirror, 18 add the shifts).
    """
    most = largest_shift(min(images.shape[-2:]))
    flips = [False] if kind == "shift" else [False, True]
    steps = sorted(((i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)), key=lambda s: s != (0, 0))
    changes = [(step, flip) for step in steps for flip in flips][1:queries]
    count, device = len(images), images.device
    return [
        _shift(
            images,
            most * torch.tensor(step, device=device)[:, None].expand(2, count),
            torch.full((count,), flip, device=device),
        )
        for step, flip in changes
    ]


def _shift(images: Tensor, shifts: Tensor, flipped: Tensor) -> Tensor:
    """Moves images by `shifts` [2, n] pixels, rows first, after mirroring those of `flipped`."""
    images = torch.where(flipped[:, None, None, None], images.flip(-1), images)
    height, width = images.shape[-2:]
    most = largest_shift(min(height, width))
    padded = pad(images, (most, most, most, most), mode="reflect")
    rows, columns = (
        torch.arange(side, device=images.device) + most - shift[:, None]
        for side, shift in zip((height, width), shifts, strict=True)
    )
    number = torch.arange(len(images), device=images.device)[:, None, None]
    return padded.movedim(1, -1)[number, rows[:, :, None], columns[:, None]].movedim(-1, 1)
