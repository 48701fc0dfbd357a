"""What every stacked network offers: one network's parameters, and all networks' outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor


class Architecture(Protocol):
    """A network's shape. Parameters live outside it, stacked along a leading dimension S."""

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Parameters of one network, float32, each without the stack's dimension."""

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Outputs of every network.

        Args:
            parameters: As `initial` gives them, each stacked to shape [S, ...].
            x: Inputs of each network, shape [S, n, ...].

        Returns:
            Shape [S, n, ...]; network s has seen x[s] alone.
        """


def stack_parameters(networks: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Parameters of several networks, each parameter of shape [S, ...]."""
    return [torch.stack(parts) for parts in zip(*networks, strict=True)]
