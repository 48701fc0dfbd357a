"""Stacked dense layers, and how weights of any layer start."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def dense(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Every network's x w + b.

    Args:
        x: Shape [S, n, in].
        weight: Shape [S, in, out].
        bias: Shape [S, 1, out].

    Returns:
        Shape [S, n, out].
    """
    return torch.baddbmm(bias, x, weight)


def dense_initial(
    random: np.random.Generator, inputs: int, outputs: int, gain: float
) -> list[Tensor]:
    """Weight and bias of one network's dense layer: Gaussian of `gain` / sqrt(inputs), and 0."""
    return [gaussian(random, (inputs, outputs), gain / math.sqrt(inputs)), torch.zeros(1, outputs)]


def gaussian(random: np.random.Generator, shape: Sequence[int], scale: float) -> Tensor:
    """Independent Gaussian weights of standard deviation `scale`, float32."""
    return torch.from_numpy(scale * random.standard_normal(shape)).float()


def uniform(random: np.random.Generator, shape: Sequence[int], limit: float) -> Tensor:
    """Independent weights between -limit and limit, float32."""
    return torch.from_numpy(random.uniform(-limit, limit, shape)).float()
