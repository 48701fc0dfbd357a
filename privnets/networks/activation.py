"""Activations by name, with the gain that keeps the variance of what passes through them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, Literal

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

Activation = Literal["relu", "leaky", "tanh"]

SLOPE: Final = 0.1
"""Of the leaky rectifier below zero."""

# He et al., arXiv 1502.01852, eq. 10 and 15; a tanh starts in its linear part.
GAINS: Final[Mapping[Activation, float]] = {
    "relu": math.sqrt(2),
    "leaky": math.sqrt(2 / (1 + SLOPE**2)),
    "tanh": 1.0,
}


def leaky(x: Tensor) -> Tensor:
    """The rectifier that lets a tenth through below zero, so that no unit dies."""
    return leaky_relu(x, SLOPE)


ACTIVATIONS: Final[Mapping[Activation, Callable[[Tensor], Tensor]]] = {
    "relu": torch.relu,
    "leaky": leaky,
    "tanh": torch.tanh,
}
