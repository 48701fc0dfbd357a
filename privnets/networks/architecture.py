"""Interface of a stacked network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor


class Architecture(Protocol):
    """Shape of a network. Parameters are separate tensors with a leading stack dimension S."""

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Draws the parameters of one network, float32, each without the stack dimension."""

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Computes outputs [S, n, ...] of networks on x [S, n, ...]; network s uses x[s] alone."""


def stack_parameters(networks: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Stacks the parameters of several networks, each to shape [S, ...]."""
    return [torch.stack(parts) for parts in zip(*networks, strict=True)]
