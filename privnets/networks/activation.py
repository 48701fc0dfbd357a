"""Activations by name, with the gain that keeps the variance of what passes through them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

ActivationName = Literal["relu", "leaky", "tanh"]

SLOPE: Final = 0.1
"""Of the leaky rectifier below zero."""


@dataclass(frozen=True, eq=False)
class Activation:
    """An elementwise function whose derivative its value tells.

    Attributes:
        apply: In place; gives its argument.
        pull: The gradient at the argument, in place of the gradient at the value; and the value.
        gain: Standard deviation of weights times the root of their number that keeps variance.
    """

    apply: Callable[[Tensor], Tensor]
    pull: Callable[[Tensor, Tensor], None]
    gain: float


def leaky(x: Tensor) -> Tensor:
    """The rectifier that lets a tenth through below zero, so that no unit dies."""
    return leaky_relu(x, SLOPE)


def _leaky_pull(gradient: Tensor, value: Tensor) -> None:
    pull = torch.ops.aten.leaky_relu_backward.grad_input
    pull(gradient, value, SLOPE, True, grad_input=gradient)


def _relu_pull(gradient: Tensor, value: Tensor) -> None:
    torch.ops.aten.threshold_backward.grad_input(gradient, value, 0, grad_input=gradient)


def _tanh_pull(gradient: Tensor, value: Tensor) -> None:
    torch.ops.aten.tanh_backward.grad_input(gradient, value, grad_input=gradient)


# Gains: He et al., arXiv 1502.01852, eq. 10 and 15; a tanh starts in its linear part.
ACTIVATIONS: Final[Mapping[ActivationName, Activation]] = {
    "relu": Activation(torch.relu_, _relu_pull, math.sqrt(2)),
    "leaky": Activation(
        lambda x: leaky_relu(x, SLOPE, inplace=True), _leaky_pull, math.sqrt(2 / (1 + SLOPE**2))
    ),
    "tanh": Activation(torch.tanh_, _tanh_pull, 1.0),
}
GAINS: Final[Mapping[ActivationName, float]] = {name: a.gain for name, a in ACTIVATIONS.items()}
