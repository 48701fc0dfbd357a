"""Stacked networks: interface, dense layers, activation functions, random initial weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

ActivationName = Literal["relu", "leaky", "tanh"]

SLOPE: Final = 0.1
"""Slope of the leaky rectifier for negative arguments."""


class Architecture(Protocol):
    """Shape of a network. Parameters are separate tensors with a leading stack dimension S."""

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Draws the parameters of one network, float32, each without the stack dimension."""

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Computes outputs [S, n, ...] of networks on x [S, n, ...]; network s uses x[s] alone."""


def stack_parameters(networks: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Stacks the parameters of several networks, each to shape [S, ...]."""
    return [torch.stack(parts) for parts in zip(*networks, strict=True)]


@dataclass(frozen=True, eq=False)
class Activation:
    """Elementwise function whose derivative is a function of its value.

    Attributes:
        apply: Applies the function in place and returns its argument.
        backward: Takes the gradient at the value, and the value; replaces the gradient by that at
            the argument.
        gain: Weights with standard deviation gain / sqrt(inputs) keep the variance of a layer.
    """

    apply: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], object]
    gain: float


def leaky(x: Tensor) -> Tensor:
    """Leaky rectifier of slope 0.1: no unit has a zero gradient."""
    return leaky_relu(x, SLOPE)


def _tanh(x: Tensor) -> Tensor:
    """Hyperbolic tangent in place; on a CPU by `sigmoid`, to 1e-7, in a fifth of its time."""
    if x.device.type == "cpu":
        return x.mul_(2).sigmoid_().mul_(2).sub_(1)
    return x.tanh_()


# Gains: He et al., arXiv 1502.01852, eq. 10 and 15; tanh is nearly linear at the start.
_aten = torch.ops.aten
ACTIVATIONS: Final[Mapping[ActivationName, Activation]] = {
    "relu": Activation(
        torch.relu_,
        lambda g, value: _aten.threshold_backward.grad_input(g, value, 0, grad_input=g),
        math.sqrt(2),
    ),
    "leaky": Activation(
        lambda x: leaky_relu(x, SLOPE, inplace=True),
        lambda g, value: _aten.leaky_relu_backward.grad_input(g, value, SLOPE, True, grad_input=g),
        math.sqrt(2 / (1 + SLOPE**2)),
    ),
    "tanh": Activation(
        _tanh, lambda g, value: _aten.tanh_backward.grad_input(g, value, grad_input=g), 1.0
    ),
}
GAINS: Final[Mapping[ActivationName, float]] = {name: a.gain for name, a in ACTIVATIONS.items()}


def dense(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Computes x w + b, [S, n, out], for x [S, n, in], w [S, in, out] and b [S, 1, out]."""
    return torch.baddbmm(bias, x, weight)


def initial_dense(
    random: np.random.Generator, inputs: int, outputs: int, gain: float
) -> list[Tensor]:
    """Draws one network's weight [in, out], N(0, gain^2 / inputs), and a bias [1, out] of 0."""
    weight = gaussian_weights(random, (inputs, outputs), gain / math.sqrt(inputs))
    return [weight, torch.zeros(1, outputs)]


def gaussian_weights(random: np.random.Generator, shape: Sequence[int], scale: float) -> Tensor:
    """Draws independent Gaussian weights with standard deviation `scale`, float32."""
    return torch.from_numpy(scale * random.standard_normal(shape)).float()


def uniform_weights(random: np.random.Generator, shape: Sequence[int], limit: float) -> Tensor:
    """Draws independent uniform weights in [-limit, limit], float32."""
    return torch.from_numpy(random.uniform(-limit, limit, shape)).float()
