"""Multilayer perceptrons as a stack of batched matrix products."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from privnets.networks.layers import ACTIVATIONS, GAINS, Activation, ActivationName, initial_dense

# So few features are turned beforehand: products with them then cost half, the copy a tenth.
_FEW = 16


@dataclass(frozen=True)
class Perceptron:
    """A multilayer perceptron on vectors, or on anything else made flat.

    Attributes:
        widths: From input to output, the input's after flattening.
        activation: Of the hidden layers; the output is linear.
    """

    widths: tuple[int, ...]
    activation: ActivationName = "leaky"

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Weight [in, out] and bias [1, out] of each layer in turn.

        Weights are Gaussian, of the variance that the activation keeps (He et al., arXiv
        1502.01852); biases are 0.
        """
        gain, last = GAINS[self.activation], len(self.widths) - 2
        parts = []
        for layer, (i, o) in enumerate(itertools.pairwise(self.widths)):
            parts += initial_dense(random, i, o, gain if layer < last else 1.0)
        return parts

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Outputs [S, n, out] of every network on x [S, n, ...]."""
        return forward(parameters, x.flatten(2), self.activation)


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


def forward(parameters: Sequence[Tensor], x: Tensor, activation: ActivationName = "tanh") -> Tensor:
    """Outputs of every network.

    Gradients are closed forms, of first order alone.

    Args:
        parameters: Weights [S, in, out] and biases [S, 1, out] in turn.
        x: Inputs of each network, shape [S, n, in], or of all, shape [n, in].
        activation: Of the hidden layers; the output is linear.

    Returns:
        Shape [S, n, out].
    """
    records = x.expand(len(parameters[0]), *x.shape[-2:]).mT
    if records.shape[1] <= _FEW:
        records = records.contiguous()
    layers = ACTIVATIONS[activation], records, *parameters
    outputs: Tensor = _Layers.apply(*layers)  # type: ignore[no-untyped-call]
    return outputs.mT


class _Layers(torch.autograd.Function):
    """All layers, on records that lie innermost, [S, in, n]: a vector processor's best form.

    With features innermost a product that has two columns, as logits of two classes and their
    gradients are, fills few of its lanes. Activations are taken in place, as their value tells
    their derivative.
    """

    @staticmethod
    def forward(ctx: Any, activation: Activation, x: Tensor, *parameters: Tensor) -> Tensor:
        hidden, values = x, [x]
        for layer in range(0, len(parameters), 2):
            if layer:
                values.append(activation.apply(hidden))
            weight, bias = parameters[layer : layer + 2]
            hidden = torch.baddbmm(bias.mT, weight.mT, hidden)
        ctx.activation = activation
        ctx.save_for_backward(*values, *parameters[::2])
        return hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[1:]
        saved = ctx.saved_tensors
        values, weights = saved[: len(saved) // 2], saved[len(saved) // 2 :]
        pulled: list[Tensor | None] = []
        for layer in reversed(range(len(weights))):
            of_weight, of_bias = wanted[2 * layer + 1 : 2 * layer + 3]
            pulled += [
                gradient.sum(2)[:, None] if of_bias else None,
                torch.bmm(values[layer], gradient.mT) if of_weight else None,
            ]
            if not any(wanted[: 2 * layer + 1]):
                pulled += [None] * (2 * layer)
                break
            gradient = torch.bmm(weights[layer], gradient)
            if layer:
                ctx.activation.backward(gradient, values[layer])
        return None, gradient if wanted[0] else None, *reversed(pulled)
