"""Stacked LSTM networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privnets.networks.dense import dense, dense_initial, uniform


def lstm(x: Tensor, parameters: Sequence[Tensor], bidirectional: bool = False) -> Tensor:
    """Hidden states of every network's last LSTM layer, from a state of zeros.

    Args:
        x: Shape [S, n, T, in].
        parameters: For each layer, and then each direction, the weights of the input [S, 4 h, in]
            and of the hidden state [S, 4 h, h], and the bias [S, 4 h]; the gates are input, forget,
            cell and output, as in `torch.nn.LSTM`.
        bidirectional: Whether each layer also runs backwards; else no output sees a later input.

    Returns:
        Shape [S, n, T, h], or [S, n, T, 2 h] when bidirectional.
    """
    hidden, bias = parameters[1].shape[-1], parameters[2]
    runs = len(parameters) // 3
    start = x.new_zeros(runs, x.shape[1], hidden)
    outputs = []
    for s in range(len(x)):
        weights: list[Tensor] = []
        for run in range(runs):
            weights += [p[s] for p in parameters[3 * run : 3 * run + 3]] + [
                torch.zeros_like(bias[s])
            ]
        layers = runs // 2 if bidirectional else runs
        states, _, _ = torch.lstm(
            x[s], (start, start), weights, True, layers, 0.0, True, bidirectional, True
        )
        outputs.append(states)
    return torch.stack(outputs)


def lstm_initial(
    random: np.random.Generator, inputs: int, hidden: int, layers: int, bidirectional: bool = False
) -> list[Tensor]:
    """One network's parameters for `lstm`.

    Weights are uniform within 1 / sqrt(hidden), as `torch.nn.LSTM` has them. There is one bias
    where that has two that are added; it is 0, and 1 for the forget gate, so that memory lasts
    from the start (Jozefowicz et al., ICML 2015).
    """
    limit, directions = 1 / math.sqrt(hidden), 2 if bidirectional else 1
    parts = []
    for layer in range(layers):
        width = inputs if layer == 0 else hidden * directions
        for _ in range(directions):
            bias = torch.zeros(4 * hidden)
            bias[hidden : 2 * hidden] = 1
            parts += [
                uniform(random, (4 * hidden, width), limit),
                uniform(random, (4 * hidden, hidden), limit),
                bias,
            ]
    return parts


@dataclass(frozen=True)
class Recurrent:
    """LSTM layers with a linear head at each time step; causal unless bidirectional.

    Attributes:
        inputs: Features of a step.
        hidden: Units of a layer and direction.
        layers: How many.
        outputs: Of a step.
        bidirectional: Whether each layer also runs backwards.
    """

    inputs: int
    hidden: int
    layers: int
    outputs: int
    bidirectional: bool = False

    def initial(self, random: np.random.Generator) -> list[Tensor]:
        """Parameters of the layers (see `lstm_initial`), then the head's weight and bias."""
        body = lstm_initial(random, self.inputs, self.hidden, self.layers, self.bidirectional)
        width = self.hidden * (2 if self.bidirectional else 1)
        return body + dense_initial(random, width, self.outputs, 1.0)

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Outputs [S, n, T, outputs] of every network on x [S, n, T, inputs]."""
        *body, weight, bias = parameters
        states = lstm(x, body, self.bidirectional)
        return dense(states.flatten(1, 2), weight, bias).view(*x.shape[:3], self.outputs)
