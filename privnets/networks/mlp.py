"""Multilayer perceptrons as a stack of batched matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


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


def forward(parameters: Sequence[Tensor], x: Tensor) -> Tensor:
    """Outputs of every network.

    Args:
        parameters: From `Shape.unpack`.
        x: Inputs of each network, shape [S, n, in], or of all, shape [n, in].

    Returns:
        Shape [S, n, out].
    """
    hidden = x.expand(len(parameters[0]), *x.shape[-2:])
    last = len(parameters) // 2 - 1
    for layer in range(last + 1):
        hidden = torch.baddbmm(parameters[2 * layer + 1], hidden, parameters[2 * layer])
        if layer < last:
            hidden = hidden.tanh()
    return hidden
