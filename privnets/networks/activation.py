"""Activations by name, with the gain that keeps the variance of what passes through them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

Name = Literal["relu", "leaky", "tanh"]

SLOPE: Final = 0.1
"""Of the leaky rectifier below zero."""


@dataclass(frozen=True, eq=False)
class Activation:
    """An elementwise function whose derivative its value tells.

    Attributes:
        apply: In place; gives its argument.
        pull: The gradient at the argument, of the gradient at the value and the value.
        gain: Standard deviation of weights times the root of their number that keeps variance.
    """

    apply: Callable[[Tensor], Tensor]
    pull: Callable[[Tensor, Tensor], Tensor]
    gain: float


def leaky(x: Tensor) -> Tensor:
    """The rectifier that lets a tenth through below zero, so that no unit dies."""
    return leaky_relu(x, SLOPE)


def _leaky_pull(gradient: Tensor, value: Tensor) -> Tensor:
    pulled: Tensor = torch.ops.aten.leaky_relu_backward(gradient, value, SLOPE, True)
    return pulled


def _relu_pull(gradient: Tensor, value: Tensor) -> Tensor:
    pulled: Tensor = torch.ops.aten.threshold_backward(gradient, value, 0)
    return pulled


def _tanh_pull(gradient: Tensor, value: Tensor) -> Tensor:
    pulled: Tensor = torch.ops.aten.tanh_backward(gradient, value)
    return pulled


# Gains: He et al., arXiv 1502.01852, eq. 10 and 15; a tanh starts in its linear part.
ACTIVATIONS: Final[Mapping[Name, Activation]] = {
    "relu": Activation(torch.relu_, _relu_pull, math.sqrt(2)),
    "leaky": Activation(
        lambda x: leaky_relu(x, SLOPE, inplace=True), _leaky_pull, math.sqrt(2 / (1 + SLOPE**2))
    ),
    "tanh": Activation(torch.tanh_, _tanh_pull, 1.0),
}
GAINS: Final[Mapping[Name, float]] = {name: a.gain for name, a in ACTIVATIONS.items()}
