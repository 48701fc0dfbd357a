"""Stacked multilayer perceptrons, computed as batched matrix products."""

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

from privnets.networks.devices import cast_inputs
from privnets.networks.layers import ACTIVATIONS, GAINS, Activation, ActivationName, initial_dense

# Up to this many features, a transposed copy costs a tenth of the time that it saves.
_MAX_COPIED_FEATURES = 16


@dataclass(frozen=True)
class Perceptron:
    """A multilayer perceptron on flattened records.

    Attributes:
        widths: Units of each layer, from the flattened input to the output.
    """

    widths: tuple[int, ...]
    activation: ActivationName = "leaky"

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Draws the weight [in, out] and the bias [1, out] of each layer in turn.

        Weights are Gaussian, with the variance that keeps that of activations (He et al., arXiv
        1502.01852); biases are 0.
        """
        gain, last = GAINS[self.activation], len(self.widths) - 2
        parts = []
        for layer, (i, o) in enumerate(itertools.pairwise(self.widths)):
            parts += initial_dense(random, i, o, gain if layer < last else 1.0)
        return parts

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Returns outputs [S, n, out] of every network on x [S, n, ...]."""
        return forward(parameters, x.flatten(2), self.activation)


@dataclass(frozen=True)
class FlatPerceptron:
    """A perceptron with tanh units and a linear output, whose parameters are one flat vector."""

    widths: tuple[int, ...]

    @property
    def parameter_count(self) -> int:
        """Number of weights and biases."""
        return sum((inputs + 1) * outputs for inputs, outputs in itertools.pairwise(self.widths))

    def initial(self, random: np.random.Generator) -> Tensor:
        """Draws one network's parameters, shape [d], float64: Glorot-uniform weights, bias 0."""
        parts = []
        for inputs, outputs in itertools.pairwise(self.widths):
            limit = math.sqrt(6 / (inputs + outputs))
            parts += [random.uniform(-limit, limit, inputs * outputs), np.zeros(outputs)]
        return torch.from_numpy(np.concatenate(parts))

    def unpack(self, flat: Tensor) -> list[Tensor]:
        """Returns weights [S, in, out] and biases [S, 1, out] in turn, as views of [S, d]."""
        tensors, start = [], 0
        for inputs, outputs in itertools.pairwise(self.widths):
            size = inputs * outputs
            tensors.append(flat[:, start : start + size].view(-1, inputs, outputs))
            tensors.append(flat[:, start + size : start + size + outputs].view(-1, 1, outputs))
            start += size + outputs
        return tensors


def forward(parameters: Sequence[Tensor], x: Tensor, activation: ActivationName = "tanh") -> Tensor:
    """Computes the outputs of every network; differentiable once.

    Args:
        parameters: Weights [S, in, out] and biases [S, 1, out] in turn.
        x: Inputs of each network, shape [S, n, in], or the same for all, shape [n, in].

    Returns:
        Shape [S, n, out].
    """
    records = x.expand(len(parameters[0]), *x.shape[-2:]).mT
    if records.shape[1] <= _MAX_COPIED_FEATURES:
        records = records.contiguous()
    layers = ACTIVATIONS[activation], *cast_inputs([records, *parameters])
    outputs: Tensor = _Layers.apply(*layers)  # type: ignore[no-untyped-call]
    return outputs.mT


class _Layers(torch.autograd.Function):
    """All layers, with records as the innermost dimension: [S, in, n].

    With features innermost, products with few columns, such as the logits of two classes, would
    use a small part of the vector unit. Activations work in place: their derivative is a function
    of their value.
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
        needs_gradient = ctx.needs_input_grad[1:]
        saved = ctx.saved_tensors
        values, weights = saved[: len(saved) // 2], saved[len(saved) // 2 :]
        gradients: list[Tensor | None] = []
        for layer in reversed(range(len(weights))):
            for_weight, for_bias = needs_gradient[2 * layer + 1 : 2 * layer + 3]
            gradients += [
                gradient.sum(2)[:, None] if for_bias else None,
                torch.bmm(values[layer], gradient.mT) if for_weight else None,
            ]
            if not any(needs_gradient[: 2 * layer + 1]):
                gradients += [None] * (2 * layer)
                break
            gradient = torch.bmm(weights[layer], gradient)
            if layer:
                ctx.activation.backward(gradient, values[layer])
        return None, gradient if needs_gradient[0] else None, *reversed(gradients)
