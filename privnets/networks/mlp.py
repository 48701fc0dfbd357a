"""Multilayer perceptrons as a stack of batched matrix products."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privnets.networks.activation import ACTIVATIONS, GAINS, Activation
from privnets.networks.dense import dense, dense_initial


@dataclass(frozen=True)
class Perceptron:
    """A multilayer perceptron on vectors, or on anything else made flat.

    Attributes:
        widths: From input to output, the input's after flattening.
        activation: Of the hidden layers; the output is linear.
    """

    widths: tuple[int, ...]
    activation: Activation = "leaky"

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Weight [in, out] and bias [1, out] of each layer in turn.

        Weights are Gaussian, of the variance that the activation keeps (He et al., arXiv
        1502.01852); biases are 0.
        """
        gain, last = GAINS[self.activation], len(self.widths) - 2
        parts = []
        for layer, (i, o) in enumerate(itertools.pairwise(self.widths)):
            parts += dense_initial(random, i, o, gain if layer < last else 1.0)
        return parts

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Outputs [S, n, out] of every network on x [S, n, ...]."""
        return forward(parameters, x.flatten(2), ACTIVATIONS[self.activation])


@dataclass(frozen=True)
class Shape:
    """Widths from input to output; hidden layers are tanh, the output linear."""

    widths: tuple[int, ...]

    @property
    def parameters(self) -> int:
        """How many numbers one network has."""
        return sum((i + 1) * o for i, o in self._layers)

    @property
    def _layers(self) -> list[tuple[int, int]]:
        return list(zip(self.widths[:-1], self.widths[1:], strict=True))

    def initial(self, random: np.random.Generator) -> Tensor:
        """Parameters of one network, flat, shape [parameters]: Glorot-uniform weights, bias 0."""
        parts = []
        for inputs, outputs in self._layers:
            limit = math.sqrt(6 / (inputs + outputs))
            parts += [random.uniform(-limit, limit, inputs * outputs), np.zeros(outputs)]
        return torch.from_numpy(np.concatenate(parts))

    def unpack(self, flat: Tensor) -> list[Tensor]:
        """Weights [S, in, out] and biases [S, 1, out] in turn, as views of flat [S, parameters]."""
        tensors, start = [], 0
        for inputs, outputs in self._layers:
            size = inputs * outputs
            tensors.append(flat[:, start : start + size].view(-1, inputs, outputs))
            tensors.append(flat[:, start + size : start + size + outputs].view(-1, 1, outputs))
            start += size + outputs
        return tensors


def forward(
    parameters: Sequence[Tensor], x: Tensor, activation: Callable[[Tensor], Tensor] = torch.tanh
) -> Tensor:
    """Outputs of every network.

    Args:
        parameters: Weights [S, in, out] and biases [S, 1, out] in turn.
        x: Inputs of each network, shape [S, n, in], or of all, shape [n, in].
        activation: Of the hidden layers; the output is linear.

    Returns:
        Shape [S, n, out].
    """
    hidden = x.expand(len(parameters[0]), *x.shape[-2:])
    last = len(parameters) // 2 - 1
    for layer in range(last + 1):
        hidden = dense(hidden, parameters[2 * layer], parameters[2 * layer + 1])
        if layer < last:
            hidden = activation(hidden)
    return hidden
